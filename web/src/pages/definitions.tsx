import { useRef, useState } from "preact/hooks";
import { ApiError, path, request, withQuery } from "../api";
import { download, indent } from "../body";
import { changed, useAction, useApi } from "../data";
import { count, plural } from "../format";
import type { Vhost } from "../types";
import { Button, Check, Empty, Field, Notice, Page, Section, SelectField } from "../ui";

interface Count { created?: number; updated?: number; unchanged?: number; skipped?: number; failed?: number }
interface Item { kind: string; vhost?: string; name?: string; reason?: string; action?: string; [other: string]: unknown }
interface Report { dry_run: boolean; unchanged?: boolean; counts: Record<string, Count> | null; changes: Item[] | null; skipped: Item[] | null; failed?: Item[] }

export function Definitions() {
  const vhosts = useApi<Vhost[]>("vhosts", 60_000);
  const [vhost, setVhost] = useState("");
  const save = useAction();
  return (
    <Page title="Definitions" sub="What the cluster is made of, as a file in RabbitMQ's form: users, virtual hosts, permissions, policies, queues, exchanges, bindings. No messages.">
      <Section title="Save">
        <div class="form-row narrow"><SelectField label="Of" value={vhost} set={setVhost} options={[["", "the whole cluster"], ...(vhosts.data ?? []).map((v): [string, string] => [v.name, `virtual host ${v.name}`])]} /></div>
        <p class="hint">The whole has password hashes in it: keep the file as you keep passwords.</p>
        {save.error && <Notice tone="bad">{save.error}</Notice>}
        <Button tone="main" busy={save.busy} onClick={() => void save.run(async () => download(`definitions${vhost ? `-${vhost}` : ""}.json`, indent(await (await request("GET", vhost ? `definitions/${path(vhost)}` : "definitions")).text())))}>Download</Button>
      </Section>
      <Load vhosts={(vhosts.data ?? []).map((v) => v.name)} />
    </Page>
  );
}

function Load({ vhosts }: { vhosts: string[] }) {
  const input = useRef<HTMLInputElement>(null);
  const [file, setFile] = useState<File>();
  const [vhost, setVhost] = useState("");
  const [skip, setSkip] = useState(false);
  const [report, setReport] = useState<Report>();
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<{ text: string; list: Item[] }>();
  const round = useRef(0); // grows when something else is to be loaded: a report that comes later is of what was
  const other = () => { round.current++; setReport(undefined); };
  const send = async (dry: boolean) => {
    if (!file) return;
    const mine = round.current;
    setBusy(true);
    setProblem(undefined);
    try {
      const to = withQuery(vhost ? `definitions/${path(vhost)}` : "definitions", { dry_run: dry, skip_unsupported: skip, report: true });
      const got = await (await request("POST", to, file, undefined, { "Content-Type": "application/json" })).json() as Report;
      if (mine === round.current || !dry) setReport(got);
      if (!dry) changed();
    } catch (err) {
      setReport(undefined);
      const body = err instanceof ApiError ? err.body as { problems?: Item[]; report?: Report } | undefined : undefined;
      setProblem({ text: err instanceof Error ? err.message : String(err), list: body?.problems ?? body?.report?.failed ?? [] });
    }
    setBusy(false);
  };
  const pick = (f: File | undefined) => { setFile(f); other(); setProblem(undefined); };
  return (
    <Section title="Load" note="adds and changes, never deletes">
      <div class="form-row narrow">
        <Field label="File">{(id) => <input id={id} ref={input} type="file" accept=".json,application/json" onChange={(e) => pick(e.currentTarget.files?.[0])} />}</Field>
        <SelectField label="Into" value={vhost} set={(v) => { setVhost(v); other(); }} options={[["", "the virtual hosts that it names"], ...vhosts.map((v): [string, string] => [v, `virtual host ${v}`])]} />
      </div>
      <p><Check label="leave out what Warren does not have, instead of refusing the file" value={skip} set={(v) => { setSkip(v); other(); }} /></p>
      <p class="actions">
        <Button tone={report?.dry_run ? undefined : "main"} busy={busy} disabled={!file} onClick={() => void send(true)}>What would change?</Button>
        <Button tone={report?.dry_run ? "main" : undefined} busy={busy} disabled={!file || !report?.dry_run} onClick={() => void send(false)}>Load it</Button>
      </p>
      {problem && <Notice tone="bad"><pre class="plain">{problem.text}</pre>{problem.list.length > 1 && <ul class="reasons">{problem.list.slice(0, 50).map((p, i) => <li key={i}>{itemWords(p)}</li>)}</ul>}</Notice>}
      {report && <ReportView r={report} />}
    </Section>
  );
}

function itemWords(i: Item): string { return [i.kind, i.vhost && `in ${i.vhost}`, i.name, i.reason && `– ${i.reason}`].filter(Boolean).join(" "); }

function ReportView({ r }: { r: Report }) {
  const rows = Object.entries(r.counts ?? {});
  const changes = r.changes ?? [], skipped = r.skipped ?? [];
  return (
    <div aria-live="polite">
      <Notice tone={r.dry_run ? "plain" : "ok"}>{r.dry_run ? changes.length === 0 ? "Nothing would change: everything in the file is there already." : `${plural(changes.length, "thing")} would change. Nothing has been changed yet.` : `Loaded: ${plural(changes.length, "change")}.`}</Notice>
      {rows.length > 0 && <div class="table-scroll" role="region" aria-label="Counts" tabIndex={0}><table><thead><tr><th scope="col">Kind</th><th scope="col" class="num">New</th><th scope="col" class="num">Changed</th><th scope="col" class="num">As it was</th><th scope="col" class="num">Left out</th></tr></thead>
        <tbody>{rows.map(([k, c]) => <tr key={k}><th scope="row">{k.replaceAll("_", " ")}</th><td class="num">{count(c.created ?? 0)}</td><td class="num">{count(c.updated ?? 0)}</td><td class="num">{count(c.unchanged ?? 0)}</td><td class="num">{count(c.skipped ?? 0)}</td></tr>)}</tbody></table></div>}
      {changes.length > 0 && <ul class="reasons mono">{changes.slice(0, 100).map((c, i) => <li key={i}>{c.action ? `${c.action} ` : ""}{itemWords(c)}</li>)}{changes.length > 100 && <li>… {count(changes.length - 100)} more</li>}</ul>}
      {skipped.length > 0 && <><h3>Left out</h3><ul class="reasons">{skipped.slice(0, 100).map((c, i) => <li key={i}>{itemWords(c)}</li>)}</ul></>}
      {rows.length === 0 && <Empty>The file has nothing in it.</Empty>}
    </div>
  );
}
