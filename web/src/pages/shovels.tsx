import { useState } from "preact/hooks";
import { del, mustBeNew, path, put } from "../api";
import { useAction, useApi } from "../data";
import { count, nameOfExchange } from "../format";
import { useMe } from "../me";
import { setQuery, useRoute } from "../route";
import type { Json, Parameter, Shovel, Table, Vhost } from "../types";
import { AreaField, Badge, Button, ConfirmDialog, Empty, Failure, FormDialog, Notice, Page, SelectField, SortedTable, State, TextField } from "../ui";
import { readObject } from "./queues";

/** A shovel: what it is to do, for those who make policies, and what it does, for those who monitor. */
interface Row { vhost: string; name: string; value?: Table; does?: Shovel }

export function Shovels() {
  const me = useMe();
  const { query } = useRoute();
  const vhost = query.get("vhost") ?? "", at = vhost ? `/${path(vhost)}` : "";
  const definitions = useApi<Parameter[]>(me.makesPolicies ? `parameters/shovel${at}` : null, 15_000);
  const doing = useApi<Shovel[]>(me.monitors ? `shovels${at}` : null, 5000);
  const vhosts = useApi<Vhost[]>("vhosts", 60_000);
  const restart = useAction();
  const [editing, setEditing] = useState<Row | "new">();
  const [deleting, setDeleting] = useState<Row>();
  const names = (vhosts.data ?? []).map((v) => v.name);
  const known = definitions.data ?? doing.data;
  const rows = rowsOf(definitions.data ?? [], doing.data ?? [], me.makesPolicies);
  return (
    <Page title="Shovels" sub="They take messages from a queue or an exchange, of this cluster or of another broker, and publish them elsewhere."
      actions={me.makesPolicies && <Button tone="main" onClick={() => setEditing("new")}>Add a shovel</Button>}>
      {names.length > 1 && <div class="filters"><select aria-label="Virtual host" value={vhost} onChange={(e) => setQuery({ vhost: e.currentTarget.value })}><option value="">all virtual hosts</option>{names.map((v) => <option key={v} value={v} selected={v === vhost}>{v}</option>)}</select></div>}
      <Failure error={definitions.error ?? doing.error} />
      {known && (rows.length === 0 ? <Empty>None yet. With a shovel, messages of a queue go to another cluster, or come from one, without a program of your own.</Empty>
        : <SortedTable name="Shovels" rows={rows} start="name" id={(s) => path(s.vhost, s.name)} columns={[
          { id: "name", title: "Shovel", by: (s) => s.name, cell: (s) => s.value ? <button type="button" class="link mono" onClick={() => setEditing(s)}>{s.name}</button> : <span class="mono">{s.name}</span> },
          { id: "vhost", title: "Virtual host", by: (s) => s.vhost, cell: (s) => <span class="mono">{s.vhost}</span> },
          ...(me.monitors ? [{ id: "state", title: "State", by: (s: Row) => s.does?.state ?? "", cell: (s: Row) => s.does && <Doing of={s.does} /> }] : []),
          { id: "from", title: "From", cell: (s) => <End {...sourceOf(s)} /> }, { id: "to", title: "To", cell: (s) => <End {...destinationOf(s)} /> },
          ...(me.monitors ? [
            { id: "forwarded", title: "Forwarded", num: true, by: (s: Row) => s.does?.forwarded ?? 0, cell: (s: Row) => count(s.does?.forwarded) },
            { id: "pending", title: "Under way", num: true, by: (s: Row) => s.does?.pending ?? 0, cell: (s: Row) => count(s.does?.pending) },
          ] : []),
          ...(me.makesPolicies ? [{ id: "actions", title: "Change", cell: (s: Row) => <>
            <Button tone="quiet" busy={restart.busy} onClick={() => void restart.run(() => del(`shovels/vhost/${path(s.vhost, s.name)}/restart`), `Shovel ${s.name} connects anew.`)}>Restart</Button>
            <Button tone="quiet" onClick={() => setDeleting(s)}>Delete…</Button></> }] : []),
        ]} />)}
      {restart.error && <Notice tone="bad">{restart.error}</Notice>}
      {editing && <Edit of={editing === "new" ? undefined : editing} vhosts={names} vhost={vhost} close={() => setEditing(undefined)} />}
      {deleting && <ConfirmDialog title={`Delete the shovel ${deleting.name}?`} name={deleting.name} submit="Delete" close={() => setDeleting(undefined)} act={() => del(`shovels/vhost/${path(deleting.vhost, deleting.name)}`)} done={`Shovel ${deleting.name} is deleted.`}>
        <p>Nothing is lost: what it has not forwarded stays in its source, or goes back to it.</p></ConfirmDialog>}
    </Page>
  );
}

function rowsOf(definitions: Parameter[], doing: Shovel[], defined: boolean): Row[] {
  const key = (s: { vhost: string; name: string }) => path(s.vhost, s.name);
  const does = new Map(doing.map((s) => [key(s), s]));
  return defined ? definitions.map((d) => ({ vhost: d.vhost, name: d.name, value: d.value, does: does.get(key(d)) })) : doing.map((s) => ({ vhost: s.vhost, name: s.name, does: s }));
}

function Doing({ of }: { of: Shovel }) {
  return <><State state={of.state} />{of.blocked_status === "blocked" && <> <Badge tone="warn" title="The destination takes no messages at present.">blocked</Badge></>}{of.node && ` on ${of.node}`}{of.waiting > 0 && `, ${count(of.waiting)} refused or without a queue: tried again`}{of.reason && <span class="wrap">: {of.reason}</span>}</>;
}

interface Place { uri?: string; queue?: string; exchange?: string; routingKey?: string }

function End({ uri, queue, exchange, routingKey }: Place) {
  const what = queue ? `queue ${queue}` : exchange !== undefined ? `exchange ${nameOfExchange(exchange)}${routingKey ? `, ${routingKey}` : ""}` : routingKey !== undefined ? `key ${routingKey}` : "each message's own exchange and key";
  return <span class="wrap"><span class="mono">{what}</span>{uri && <span class="muted"> {uri}</span>}</span>;
}

/** What is shown of a definition: no passwords. */
function hidden(uri: Json | undefined): string | undefined {
  return uri === undefined ? undefined : listOf(uri).map((u) => u.replace(/\/\/[^/@]*@/, (login) => login.replace(/:.*@/, ":…@"))).join(" ");
}

function sourceOf({ value, does }: Row): Place {
  if (does) return { uri: does.src_uri || hidden(value?.["src-uri"]), queue: does.src_queue, exchange: does.src_exchange, routingKey: does.src_exchange_key };
  return { uri: hidden(value?.["src-uri"]), queue: text(value?.["src-queue"]), exchange: text(value?.["src-exchange"]), routingKey: text(value?.["src-exchange-key"]) };
}

function destinationOf({ value, does }: Row): Place {
  if (does) return { uri: does.dest_uri || hidden(value?.["dest-uri"]), queue: does.dest_queue, exchange: does.dest_exchange, routingKey: does.dest_exchange_key };
  return { uri: hidden(value?.["dest-uri"]), queue: text(value?.["dest-queue"]), exchange: text(value?.["dest-exchange"]), routingKey: text(value?.["dest-exchange-key"]) };
}

function text(v: Json | undefined): string | undefined { return typeof v === "string" ? v : undefined; }
function listOf(v: Json | undefined): string[] { return (Array.isArray(v) ? v : [v]).filter((u): u is string => typeof u === "string"); }

/** Keys that have a field of their own. */
const fields = ["src-uri", "src-queue", "src-exchange", "src-exchange-key", "dest-uri", "dest-queue", "dest-exchange", "dest-exchange-key", "ack-mode", "src-prefetch-count", "reconnect-delay", "src-delete-after"];

function Edit({ of, vhosts, vhost, close }: { of: Row | undefined; vhosts: string[]; vhost: string; close: () => void }) {
  const v = of?.value ?? {};
  const start = (key: string) => v[key] === undefined ? "" : String(v[key]);
  const [at, setAt] = useState(of?.vhost ?? (vhost || (vhosts.includes("/") ? "/" : vhosts[0] ?? "/")));
  const [name, setName] = useState(of?.name ?? "");
  const [from, setFrom] = useState(of ? listOf(v["src-uri"]).join(" ") : "amqp://");
  const [sourceKind, setSourceKind] = useState(v["src-exchange"] !== undefined ? "exchange" : "queue");
  const [source, setSource] = useState(start(sourceKind === "queue" ? "src-queue" : "src-exchange"));
  const [sourceKey, setSourceKey] = useState(start("src-exchange-key"));
  const [to, setTo] = useState(of ? listOf(v["dest-uri"]).join(" ") : "amqp://");
  const [destinationKind, setDestinationKind] = useState(v["dest-queue"] !== undefined || !of ? "queue" : v["dest-exchange"] !== undefined ? "exchange" : "own");
  const [destination, setDestination] = useState(start(destinationKind === "queue" ? "dest-queue" : "dest-exchange"));
  const [destinationKey, setDestinationKey] = useState(start("dest-exchange-key"));
  const [mode, setMode] = useState(start("ack-mode") || "on-confirm");
  const [prefetch, setPrefetch] = useState(start("src-prefetch-count"));
  const [delay, setDelay] = useState(start("reconnect-delay"));
  const [until, setUntil] = useState(start("src-delete-after"));
  const others = Object.fromEntries(Object.entries(v).filter(([k, is]) => !fields.includes(k) || k === "dest-exchange-key" && is === ""));
  const [more, setMore] = useState(Object.keys(others).length > 0 ? JSON.stringify(others, null, 2) : "");
  const spec = () => {
    const uris = (s: string) => { const l = s.trim().split(/\s+/); return l.length === 1 ? l[0]! : l; };
    const set = (key: string, s: string) => s.trim() === "" ? {} : { [key]: /^-?\d+$/.test(s.trim()) ? Number(s) : s.trim() };
    return {
      "src-uri": uris(from), ...(sourceKind === "queue" ? { "src-queue": source } : { "src-exchange": source, ...(sourceKey && { "src-exchange-key": sourceKey }) }),
      "dest-uri": uris(to), ...(destinationKind === "queue" ? { "dest-queue": destination } : { ...(destinationKind === "exchange" && { "dest-exchange": destination }), ...(destinationKey && { "dest-exchange-key": destinationKey }) }),
      "ack-mode": mode, ...set("src-prefetch-count", prefetch), ...set("reconnect-delay", delay), ...set("src-delete-after", until),
      ...readObject(more, "Other settings"),
    };
  };
  const uriHint = "amqp:// is this cluster; several with spaces between them";
  return (
    <FormDialog title={of ? `Change ${of.name}` : "Add a shovel"} submit="Save" close={close} wide done={`Shovel ${name} is ${of ? "changed" : "added"}.`} act={async () => {
      const what = spec();
      if (!of) await mustBeNew(`parameters/shovel/${path(at, name)}`, `a shovel ${name} in ${at}`);
      await put(`parameters/shovel/${path(at, name)}`, { value: what });
    }}>
      <div class="form-row">
        {!of && vhosts.length > 1 && <SelectField label="Virtual host" value={at} set={setAt} options={vhosts} />}
        {!of && <TextField label="Name" value={name} set={setName} required autoFocus mono />}
      </div>
      <div class="form-row">
        <TextField label="Source: URI" value={from} set={setFrom} required mono hint={uriHint} />
        <SelectField label="Source: from" value={sourceKind} set={setSourceKind} options={[["queue", "a queue"], ["exchange", "an exchange"]]} />
        <TextField label="Source: name" value={source} set={setSource} required mono />
        {sourceKind === "exchange" && <TextField label="Source: binding key" value={sourceKey} set={setSourceKey} mono />}
      </div>
      <div class="form-row">
        <TextField label="Destination: URI" value={to} set={setTo} required mono hint={uriHint} />
        <SelectField label="Destination: to" value={destinationKind} set={setDestinationKind} options={[["queue", "a queue"], ["exchange", "an exchange"], ["own", "the exchange that each message names"]]} />
        {destinationKind !== "own" && <TextField label="Destination: name" value={destination} set={setDestination} required={destinationKind === "queue"} mono hint={destinationKind === "exchange" ? "empty: the default exchange" : undefined} />}
        {destinationKind !== "queue" && <TextField label="Destination: routing key" value={destinationKey} set={setDestinationKey} mono hint="empty: the message's own" />}
      </div>
      <div class="form-row">
        <SelectField label="Acked at the source" value={mode} set={setMode} hint={mode === "on-confirm" ? undefined : "messages may be lost"} options={[["on-confirm", "when confirmed"], ["on-publish", "when sent"], ["no-ack", "at once"]]} />
        <TextField label="Under way at most" type="number" value={prefetch} set={setPrefetch} placeholder="1000" />
        <TextField label="Tries again after (s)" type="number" value={delay} set={setDelay} placeholder="5" />
        <TextField label="Ends after" value={until} set={setUntil} placeholder="never" hint="never, queue-length, or a number of messages" />
      </div>
      <AreaField label="Other settings (JSON)" value={more} set={setMore} rows={3} hint="Passwords in URIs can be read by everybody who makes policies." />
    </FormDialog>
  );
}
