import { useEffect, useState } from "preact/hooks";
import { del, mustBeNew, path, post, put, withQuery } from "../api";
import { useApi } from "../data";
import { count, plural, value } from "../format";
import { useMe } from "../me";
import { setQuery, useRoute } from "../route";
import type { Policy, Vhost } from "../types";
import { AreaField, Button, ConfirmDialog, Empty, Failure, FormDialog, Notice, Page, SelectField, SortedTable, TextField } from "../ui";
import { readObject } from "./queues";

export function Policies() {
  const me = useMe();
  const { query } = useRoute();
  const operator = query.get("operator") === "1" && me.admin, vhost = query.get("vhost") ?? "";
  const kind = operator ? "operator-policies" : "policies";
  const list = useApi<Policy[]>(vhost ? `${kind}/${path(vhost)}` : kind, 15_000);
  const vhosts = useApi<Vhost[]>("vhosts", 60_000);
  const [editing, setEditing] = useState<Policy | "new">();
  const [deleting, setDeleting] = useState<Policy>();
  const names = (vhosts.data ?? []).map((v) => v.name);
  const rows = [...(list.data ?? [])].sort((a, b) => a.vhost.localeCompare(b.vhost) || b.priority - a.priority || a.name.localeCompare(b.name));
  return (
    <Page title={operator ? "Operator policies" : "Policies"} sub={operator ? "They bound what policies and arguments say: of lengths and times the smaller one counts." : "One policy applies to each queue and exchange: the one of the highest priority that matches its name."}
      actions={<Button tone="main" onClick={() => setEditing("new")}>{operator ? "Add an operator policy" : "Add a policy"}</Button>}>
      <div class="filters">
        {me.admin && <span class="segmented" role="group" aria-label="Kind"><button type="button" aria-pressed={!operator} onClick={() => setQuery({ operator: undefined })}>Policies</button><button type="button" aria-pressed={operator} onClick={() => setQuery({ operator: true })}>Operator policies</button></span>}
        {names.length > 1 && <select aria-label="Virtual host" value={vhost} onChange={(e) => setQuery({ vhost: e.currentTarget.value })}><option value="">all virtual hosts</option>{names.map((v) => <option key={v} value={v} selected={v === vhost}>{v}</option>)}</select>}
      </div>
      <Failure error={list.error} />
      {list.data && (rows.length === 0 ? <Empty>None yet. A policy sets dead-letter exchanges, times to live, lengths and more for all queues whose names match, and can be changed while they work.</Empty>
        : <SortedTable name="Policies" rows={rows} start="" id={(p) => path(p.vhost, p.name)} columns={[
          { id: "name", title: "Policy", by: (p) => p.name, cell: (p) => <button type="button" class="link mono" onClick={() => setEditing(p)}>{p.name}</button> },
          { id: "vhost", title: "Virtual host", by: (p) => p.vhost, cell: (p) => <span class="mono">{p.vhost}</span> }, { id: "pattern", title: "Names", by: (p) => p.pattern, cell: (p) => <span class="mono">{p.pattern}</span> },
          { id: "apply", title: "Of", by: (p) => p["apply-to"], cell: (p) => p["apply-to"].replace("_", " ") }, { id: "priority", title: "Priority", num: true, by: (p) => p.priority, cell: (p) => count(p.priority) },
          { id: "definition", title: "Sets", cell: (p) => <span class="wrap mono">{Object.entries(p.definition).map(([k, v]) => `${k}: ${value(v)}`).join(", ")}</span> },
          { id: "actions", title: "Change", cell: (p) => <Button tone="quiet" onClick={() => setDeleting(p)}>Delete…</Button> },
        ]} />)}
      {editing && <Edit policy={editing === "new" ? undefined : editing} operator={operator} vhosts={names} vhost={vhost} close={() => setEditing(undefined)} />}
      {deleting && <ConfirmDialog title={`Delete the policy ${deleting.name}?`} name={deleting.name} submit="Delete" close={() => setDeleting(undefined)} act={() => del(`${kind}/${path(deleting.vhost, deleting.name)}`)} done={`Policy ${deleting.name} is deleted.`}>
        <p>The queues and exchanges that it applies to get what the next policy that matches says, or their arguments alone.</p></ConfirmDialog>}
    </Page>
  );
}

interface Matches { matched: number; others: number; names: string[] }

const offered: [string, unknown][] = [["dead-letter-exchange", "dlx"], ["dead-letter-routing-key", "dead"], ["dead-letter-strategy", "at-least-once"], ["message-ttl", 60000], ["expires", 3600000], ["max-length", 100000], ["max-length-bytes", 1073741824],
  ["overflow", "reject-publish"], ["delivery-limit", 5], ["delayed-retry-type", "all"], ["delayed-retry-min", 1000]];
const forOperators = new Set(["message-ttl", "expires", "max-length", "max-length-bytes", "overflow", "delivery-limit", "delayed-retry-type", "delayed-retry-min"]);

function Edit({ policy, operator, vhosts, vhost, close }: { policy: Policy | undefined; operator: boolean; vhosts: string[]; vhost: string; close: () => void }) {
  const [at, setAt] = useState(policy?.vhost ?? (vhost || (vhosts.includes("/") ? "/" : vhosts[0] ?? "/")));
  const [name, setName] = useState(policy?.name ?? "");
  const [pattern, setPattern] = useState(policy?.pattern ?? "");
  const [apply, setApply] = useState(policy?.["apply-to"] ?? "queues");
  const [priority, setPriority] = useState(String(policy?.priority ?? 0));
  const [definition, setDefinition] = useState(policy ? JSON.stringify(policy.definition, null, 2) : "");
  const [look, setLook] = useState<{ queues: Matches; exchanges: Matches }>();
  const [problem, setProblem] = useState("");
  const kind = operator ? "operator-policies" : "policies";
  const spec = () => ({ pattern, "apply-to": apply, priority: Math.floor(Number(priority)) || 0, definition: readObject(definition, "The definition") });
  useEffect(() => {
    setLook(undefined);
    setProblem("");
    if (definition.trim() === "") return;
    let gone = false;
    const timer = setTimeout(async () => {
      try {
        const got = await post<{ queues: Matches; exchanges: Matches }>(withQuery(`warren/${kind}/${path(at)}/preview`, { name }), spec());
        if (!gone) setLook(got);
      } catch (err) {
        if (!gone) setProblem(err instanceof Error ? err.message : String(err));
      }
    }, 300);
    return () => { gone = true; clearTimeout(timer); };
  }, [at, name, pattern, apply, priority, definition]);
  const add = (key: string, v: unknown) => {
    try {
      setDefinition(JSON.stringify({ ...readObject(definition, ""), [key]: v }, null, 2));
    } catch { /* it is shown as the problem */ }
  };
  return (
    <FormDialog title={policy ? `Change ${policy.name}` : operator ? "Add an operator policy" : "Add a policy"} submit="Save" close={close} wide done={`Policy ${name} is in effect.`} act={async () => {
      const to = `${kind}/${path(at, name)}`, what = spec();
      if (!policy) await mustBeNew(to, `${operator ? "an operator policy" : "a policy"} ${name} in ${at}`);
      await put(to, what);
    }}>
      <div class="form-row">
        {!policy && vhosts.length > 1 && <SelectField label="Virtual host" value={at} set={setAt} options={vhosts} />}
        {!policy && <TextField label="Name" value={name} set={setName} required autoFocus mono />}
        <TextField label="Names that match (regular expression)" value={pattern} set={setPattern} required mono />
        <SelectField label="Of" value={apply} set={setApply} options={[["queues", "queues"], ["exchanges", "exchanges"], ["all", "queues and exchanges"], ["quorum_queues", "quorum queues"], ["classic_queues", "classic queues"]]} />
        <TextField label="Priority" type="number" value={priority} set={setPriority} />
      </div>
      <AreaField label="Definition (JSON)" value={definition} set={setDefinition} rows={5} />
      <div class="chips" role="group" aria-label="Add a setting">{offered.filter(([k]) => !operator || forOperators.has(k)).map(([k, v]) => <button key={k} type="button" class="chip" onClick={() => add(k, v)}>{k}</button>)}</div>
      <div class="preview" aria-live="polite">
        <h3>What it would apply to</h3>
        {problem ? <Notice tone="warn">{problem}</Notice> : !look ? <p class="muted">Say what it sets.</p> : <>
          <Matched what="queue" m={look.queues} /><Matched what="exchange" m={look.exchanges} />
          {look.queues.matched + look.exchanges.matched === 0 && <p>Nothing that exists now.</p>}
        </>}
      </div>
    </FormDialog>
  );
}

function Matched({ what, m }: { what: string; m: Matches }) {
  if (m.matched === 0) return null;
  const mine = m.matched - m.others;
  return <p><b>{plural(mine, what)}</b>{m.names.length > 0 && <>: <span class="mono">{m.names.slice(0, 12).join(", ")}</span>{mine > 12 && " …"}</>}{m.others > 0 && <span class="muted">; at {plural(m.others, "other")} another policy comes first</span>}</p>;
}
