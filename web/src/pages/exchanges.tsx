import { useState } from "preact/hooks";
import { del, path, post, put, withQuery } from "../api";
import { useAction, useApi } from "../data";
import { count, nameOfExchange, perSecond, value } from "../format";
import { PublishDialog } from "../publish";
import { go, href } from "../route";
import { rate } from "../stats";
import type { Binding, Exchange, Paged, Vhost } from "../types";
import { AreaField, Badge, Button, Check, ConfirmDialog, DataTable, Empty, Failure, Figure, Figures, FilterBar, FormDialog, Notice, Page, Pager, Section, SelectField, SortedTable, FieldsView, TextField, useListing, type Column } from "../ui";
import { queueHref, readObject } from "./queues";

/** The default exchange's name in paths. */
const inPath = (name: string) => name || "amq.default";
const fromPath = (name: string) => (name === "amq.default" ? "" : name);

export function exchangeHref(vhost: string, name: string): string { return href(["exchanges", vhost, inPath(name)]); }

const columns: Column<Exchange>[] = [
  { id: "name", title: "Exchange", sort: "name", cell: (x) => <><a class="mono name" href={exchangeHref(x.vhost, x.name)}>{nameOfExchange(x.name)}</a>{x.internal && <> <Badge>internal</Badge></>}{x.auto_delete && <> <Badge>auto-delete</Badge></>}{!x.durable && <> <Badge>in memory</Badge></>}</> },
  { id: "vhost", title: "Virtual host", sort: "vhost", cell: (x) => <span class="mono">{x.vhost}</span> },
  { id: "type", title: "Type", sort: "type", cell: (x) => x.type },
  { id: "policy", title: "Policy", cell: (x) => x.policy ?? "–" },
  { id: "in", title: "In", sort: "message_stats.publish_in_details.rate", num: true, cell: (x) => perSecond(rate(x.message_stats, "publish_in")) },
  { id: "out", title: "Out", sort: "message_stats.publish_out_details.rate", num: true, cell: (x) => perSecond(rate(x.message_stats, "publish_out")) },
  { id: "arguments", title: "Arguments", cell: (x) => (Object.keys(x.arguments).length === 0 ? "–" : <span class="mono">{value(x.arguments)}</span>) },
];

export function Exchanges() {
  const listing = useListing("name");
  const [declaring, setDeclaring] = useState(false);
  const vhosts = useApi<Vhost[]>("vhosts", 60_000);
  const list = useApi<Paged<Exchange>>(withQuery(listing.vhost ? `exchanges/${path(listing.vhost)}` : "exchanges", listing.params));
  const several = (vhosts.data?.length ?? 0) > 1;
  return (
    <Page title="Exchanges" actions={<><a class="button" href={href(["topology"], { vhost: listing.vhost })}>Topology</a><Button tone="main" onClick={() => setDeclaring(true)}>Declare an exchange</Button></>}>
      <FilterBar listing={listing} what="exchanges" vhosts={vhosts.data?.map((v) => v.name)} />
      <Failure error={list.error} />
      {list.data && (list.data.items.length > 0
        ? <DataTable name="Exchanges" picker columns={several ? columns : columns.filter((c) => c.id !== "vhost")} rows={list.data.items} id={(x) => path(x.vhost, x.name)} sorted={listing.order} />
        : <Empty>No exchange has such a name.</Empty>)}
      {list.data && <Pager of={list.data} what="exchanges" />}
      {declaring && <Declare vhosts={(vhosts.data ?? []).map((v) => v.name)} vhost={listing.vhost} close={() => setDeclaring(false)} />}
    </Page>
  );
}

function Declare({ vhosts, vhost, close }: { vhosts: string[]; vhost: string; close: () => void }) {
  const [at, setAt] = useState(vhost || (vhosts.includes("/") ? "/" : vhosts[0] ?? "/"));
  const [name, setName] = useState("");
  const [type, setType] = useState("topic");
  const [internal, setInternal] = useState(false);
  const [args, setArgs] = useState("");
  return (
    <FormDialog title="Declare an exchange" submit="Declare" close={close} done={`Exchange ${name} is declared.`} act={async () => {
      await put(`exchanges/${path(at, name)}`, { type, durable: true, auto_delete: false, internal, arguments: readObject(args, "Arguments") });
      go(["exchanges", at, name]);
    }}>
      {vhosts.length > 1 && <SelectField label="Virtual host" value={at} set={setAt} options={vhosts} />}
      <TextField label="Name" value={name} set={setName} required autoFocus mono />
      <SelectField label="Type" value={type} set={setType} options={[["topic", "topic: keys with patterns"], ["direct", "direct: keys that are equal"], ["fanout", "fanout: everything to everybody"], ["headers", "headers"], ["x-delayed-message", "x-delayed-message"], ["x-consistent-hash", "x-consistent-hash"]]} />
      <AreaField label="Arguments (JSON)" value={args} set={setArgs} rows={3} hint='{"alternate-exchange": "unrouted"}, {"x-delayed-type": "topic"}' />
      <Check label="internal: only other exchanges publish to it" value={internal} set={setInternal} />
    </FormDialog>
  );
}

export function ExchangePage({ vhost, name: shownName }: { vhost: string; name: string }) {
  const name = fromPath(shownName);
  const at = path(vhost, inPath(name));
  const exchange = useApi<Exchange>(`exchanges/${at}`);
  const listing = useListing("destination");
  // To the default exchange every queue is bound: that is said in a sentence.
  const out = useApi<Paged<Binding>>(name === "" ? null : withQuery(`exchanges/${at}/bindings/source`, listing.params));
  const into = useApi<Paged<Binding>>(withQuery(`exchanges/${at}/bindings/destination`, { page: 1, page_size: 500, sort: "source", pagination: true }));
  const [open, setOpen] = useState<"publish" | "bind" | "delete">();
  const unbind = useAction();
  const x = exchange.data;
  const close = () => setOpen(undefined);
  const builtIn = name === "" || name.startsWith("amq.");
  return (
    <Page title={<span class="mono">{nameOfExchange(name)}</span>} sub={x && <>{x.type} exchange in <span class="mono">{vhost}</span>{x.internal && <> <Badge>internal</Badge></>}{x.auto_delete && <> <Badge>auto-delete</Badge></>}{x.policy && <> · policy {x.policy}</>}</>}
      actions={x && <>
        {!x.internal && <Button tone="main" onClick={() => setOpen("publish")}>Publish</Button>}
        {name !== "" && <Button onClick={() => setOpen("bind")}>Bind</Button>}
        {!builtIn && <Button onClick={() => setOpen("delete")}>Delete</Button>}
      </>}>
      {exchange.error?.absent ? <Empty>There is no such exchange. <a href="#/exchanges">All exchanges</a></Empty> : <Failure error={exchange.error} />}
      {x && <>
        {x.message_stats && <Figures><Figure name="In">{perSecond(rate(x.message_stats, "publish_in"))}</Figure><Figure name="Out">{perSecond(rate(x.message_stats, "publish_out"))}</Figure></Figures>}
        {Object.keys(x.arguments).length > 0 && <Section title="Arguments"><FieldsView of={x.arguments} /></Section>}
        <RouteTester vhost={vhost} name={name} type={x.type} />
        <Section title="Bindings from here" note={out.data ? count(out.data.total_count) : ""}>
          {unbind.error && <Notice tone="bad">{unbind.error}</Notice>}
          <Failure error={out.error} />
          {name === "" && <Empty>Every queue is bound to the default exchange by its name.</Empty>}
          {out.data && (out.data.item_count === 0 ? <Empty>Nothing is bound: what is published here goes nowhere.</Empty>
            : <>
              <DataTable name="Bindings from here" rows={out.data.items} sorted={listing.order} id={(b) => path(b.destination_type, b.destination, b.properties_key)} columns={[
                { id: "to", title: "To", sort: "destination", cell: (b) => b.destination_type === "queue" ? <a class="mono" href={queueHref(vhost, b.destination)}>{b.destination}</a> : <><a class="mono" href={exchangeHref(vhost, b.destination)}>{b.destination}</a> <Badge>exchange</Badge></> },
                { id: "key", title: "Routing key", sort: "routing_key", cell: (b) => <span class="mono">{b.routing_key || "(empty)"}</span> },
                { id: "arguments", title: "Arguments", cell: (b) => (Object.keys(b.arguments).length === 0 ? "–" : <span class="mono">{value(b.arguments)}</span>) },
                { id: "actions", title: "Change", cell: (b) => <Button tone="quiet" busy={unbind.busy} onClick={() =>
                  void unbind.run(() => del(`bindings/${path(vhost)}/e/${path(inPath(name))}/${b.destination_type === "queue" ? "q" : "e"}/${path(b.destination, b.properties_key)}`), `${b.destination} is unbound.`)}>Unbind</Button> },
              ]} />
              <Pager of={out.data} what="bindings" />
            </>)}
        </Section>
        {into.data && into.data.item_count > 0 && <Section title="Bindings to here" note={count(into.data.total_count)}>
          {into.data.total_count > into.data.item_count && <Notice>The first {count(into.data.item_count)} by exchange are shown.</Notice>}
          <SortedTable name="Bindings to here" start="from" rows={into.data.items} id={(b) => path(b.source, b.properties_key)} columns={[
            { id: "from", title: "From exchange", by: (b) => b.source, cell: (b) => <a class="mono" href={exchangeHref(vhost, b.source)}>{nameOfExchange(b.source)}</a> },
            { id: "key", title: "Routing key", by: (b) => b.routing_key, cell: (b) => <span class="mono">{b.routing_key || "(empty)"}</span> },
            { id: "arguments", title: "Arguments", cell: (b) => (Object.keys(b.arguments).length === 0 ? "–" : <span class="mono">{value(b.arguments)}</span>) },
          ]} />
        </Section>}
      </>}
      {open === "publish" && <PublishDialog vhost={vhost} draft={{ exchange: name }} fixedExchange={name !== ""} close={close} />}
      {open === "bind" && <Bind vhost={vhost} name={name} close={close} />}
      {open === "delete" && <ConfirmDialog title={`Delete ${name}?`} name={name} submit="Delete" close={close} act={async () => { await del(`exchanges/${at}`); go(["exchanges"]); }} done={`Exchange ${name} is deleted.`}>
        <p>Its {count((out.data?.total_count ?? 0) + (into.data?.total_count ?? 0))} bindings go with it. What is published to it then ends the publisher's channel with 404.</p>
      </ConfirmDialog>}
    </Page>
  );
}

function Bind({ vhost, name, close }: { vhost: string; name: string; close: () => void }) {
  const [kind, setKind] = useState("q");
  const [to, setTo] = useState("");
  const [key, setKey] = useState("");
  const [args, setArgs] = useState("");
  const choices = useApi<Paged<{ name: string }>>(withQuery(`${kind === "q" ? "queues" : "exchanges"}/${path(vhost)}`, { page: 1, page_size: 50, name: to, columns: "name", pagination: true }), 0);
  return (
    <FormDialog title={`Bind to ${name}`} submit="Bind" close={close} done={`${to} is bound to ${name}.`} act={() => post(`bindings/${path(vhost)}/e/${path(name)}/${kind}/${path(to)}`, { routing_key: key, arguments: readObject(args, "Arguments") })}>
      <SelectField label="Messages go to a" value={kind} set={setKind} options={[["q", "queue"], ["e", "exchange"]]} />
      <TextField label="Its name" value={to} set={setTo} required mono list={(choices.data?.items ?? []).map((q) => q.name).filter((n) => n !== "")} />
      <TextField label="Routing key" value={key} set={setKey} mono hint="topic: words between dots; * is one word, # any number of them" />
      <AreaField label="Arguments (JSON)" value={args} set={setArgs} rows={2} hint='of a headers exchange: {"x-match": "all", "type": "report"}' />
    </FormDialog>
  );
}

interface RouteAnswer { routed: boolean; queues: string[] | null; delay_ms: number }

/** Says where a message with a key would go, without publishing one. */
function RouteTester({ vhost, name, type }: { vhost: string; name: string; type: string }) {
  const [key, setKey] = useState("");
  const [headers, setHeaders] = useState("");
  const [answer, setAnswer] = useState<{ key: string; to: RouteAnswer }>();
  const ask = useAction();
  return (
    <Section title="Where would a key go?" note="nothing is published">
      <form class="filters" onSubmit={(e) => {
        e.preventDefault();
        void ask.run(async () => {
          const h = readObject(headers, "Headers");
          setAnswer({ key, to: await post<RouteAnswer>(`warren/exchanges/${path(vhost, inPath(name))}/route`, { routing_key: key, properties: Object.keys(h).length > 0 ? { headers: h } : {} }) });
        });
      }}>
        <input class="search mono" aria-label="Routing key to try" placeholder="routing key" value={key} spellcheck={false} autocapitalize="none" onInput={(e) => setKey(e.currentTarget.value)} />
        {type === "headers" && <input class="search mono" aria-label="Headers to try (JSON)" placeholder='{"type": "report"}' value={headers} spellcheck={false} onInput={(e) => setHeaders(e.currentTarget.value)} />}
        <Button type="submit" busy={ask.busy}>Try</Button>
      </form>
      <div aria-live="polite">
        {ask.error && <Notice tone="bad">{ask.error}</Notice>}
        {answer && !ask.error && <Notice tone={answer.to.routed ? "ok" : "warn"}>
          {answer.to.routed ? <><span class="mono">{answer.key || "(empty)"}</span> goes to {(answer.to.queues ?? []).map((q, i) => <span key={q}>{i > 0 && ", "}<a class="mono" href={queueHref(vhost, q)}>{q}</a></span>)}{answer.to.delay_ms > 0 && ` after ${answer.to.delay_ms} ms`}.</>
            : <><span class="mono">{answer.key || "(empty)"}</span> goes to no queue.</>}
        </Notice>}
      </div>
    </Section>
  );
}
