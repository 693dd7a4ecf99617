import { useState } from "preact/hooks";
import { del, path, withQuery } from "../api";
import { useApi } from "../data";
import { ago, bytes, count, perSecond, time } from "../format";
import { go, href, useRoute } from "../route";
import { rate, rateOf } from "../stats";
import type { Channel, Connection, Consumer, Paged } from "../types";
import { Badge, Button, DataTable, Empty, Facts, Failure, FieldsView, Figure, Figures, FilterBar, FormDialog, Page, Pager, Section, State, TextField, useListing, type Column } from "../ui";
import { queueHref } from "./queues";

const columns: Column<Connection>[] = [
  { id: "name", title: "Connection", sort: "name", cell: (c) => <a class="mono name" href={href(["connections", c.name])}>{c.user_provided_name || c.name}</a> },
  { id: "peer", title: "From", sort: "peer_host", cell: (c) => <span class="mono">{c.peer_host}:{c.peer_port}</span> },
  { id: "user", title: "User", sort: "user", cell: (c) => c.user },
  { id: "vhost", title: "Virtual host", sort: "vhost", cell: (c) => <span class="mono">{c.vhost}</span> },
  { id: "state", title: "State", sort: "state", cell: (c) => <State state={c.state} /> },
  { id: "tls", title: "TLS", cell: (c) => (c.ssl ? c.ssl_protocol ?? "yes" : "no") },
  { id: "client", title: "Client", cell: (c) => [c.client_properties["product"], c.client_properties["version"]].filter((x) => typeof x === "string").join(" ") || "–" },
  { id: "channels", title: "Channels", sort: "channels", num: true, cell: (c) => count(c.channels) },
  { id: "in", title: "From client", sort: "recv_oct_details.rate", num: true, cell: (c) => bytesRate(rateOf(c.recv_oct_details), c.recv_oct) },
  { id: "out", title: "To client", sort: "send_oct_details.rate", num: true, cell: (c) => bytesRate(rateOf(c.send_oct_details), c.send_oct) },
  { id: "node", title: "Node", sort: "node", cell: (c) => <span class="mono">{c.node}</span> },
  { id: "since", title: "Since", sort: "connected_at", cell: (c) => <span title={time(c.connected_at)}>{ago(c.connected_at)}</span> },
];

function bytesRate(r: number | undefined, all: number): string { return r === undefined ? bytes(all) : `${bytes(r)}/s`; }

export function Connections() {
  const listing = useListing("connected_at", true);
  const list = useApi<Paged<Connection>>(withQuery("connections", listing.params));
  return (
    <Page title="Connections">
      <FilterBar listing={listing} what="connections" />
      <Failure error={list.error} />
      {list.data && (list.data.items.length > 0 ? <DataTable name="Connections" picker columns={columns} rows={list.data.items} id={(c) => `${c.node} ${c.name}`} sorted={listing.order} />
        : <Empty>{listing.name ? "No connection has such a name." : "No client is connected."}</Empty>)}
      {list.data && <Pager of={list.data} what="connections" />}
    </Page>
  );
}

export function ConnectionPage({ name }: { name: string }) {
  const at = path(name);
  const connection = useApi<Connection>(`connections/${at}`);
  const channels = useApi<Channel[]>(connection.data ? `connections/${at}/channels` : null);
  const [closing, setClosing] = useState(false);
  const [reason, setReason] = useState("");
  const c = connection.data;
  const { capabilities, ...properties } = c?.client_properties ?? {};
  return (
    <Page title={<span class="mono">{c?.user_provided_name || name}</span>} sub={c && <>of <b>{c.user}</b> in <span class="mono">{c.vhost}</span> <State state={c.state} /></>} actions={c && <Button onClick={() => setClosing(true)}>Close…</Button>}>
      {connection.error?.absent ? <Empty>This connection is closed. <a href="#/connections">All connections</a></Empty> : <Failure error={connection.error} />}
      {c && <>
        {c.state === "blocked" && <p>It has published while the cluster is short of memory or disk, and is held up until that is over.</p>}
        <Figures>
          <Figure name="Channels">{count(c.channels)}</Figure>
          <Figure name="From client">{bytes(c.recv_oct)}</Figure>
          <Figure name="To client">{bytes(c.send_oct)}</Figure>
        </Figures>
        <Section title="Connection"><Facts rows={[
          ["From", <span class="mono">{c.peer_host}:{c.peer_port}</span>], ["To", <span class="mono">{c.host}:{c.port} on {c.node}</span>], ["Since", `${time(c.connected_at)}, ${ago(c.connected_at)}`],
          ["Protocol", c.protocol], ["Login by", c.auth_mechanism], ["TLS", c.ssl ? `${c.ssl_protocol} ${c.ssl_cipher ?? ""}` : "none"],
          ...(c.peer_cert_subject ? [["Client's certificate", <span class="mono">{c.peer_cert_subject}</span>] as [string, preact.ComponentChildren]] : []),
          ["Heartbeat", c.timeout === 0 ? "none" : `${c.timeout} s`], ["Largest frame", bytes(c.frame_max)], ["Channels at most", count(c.channel_max)],
        ]} /></Section>
        <Section title="Client"><FieldsView of={properties} /></Section>
        {capabilities !== null && typeof capabilities === "object" && <Section title="Capabilities"><p class="chips">{Object.entries(capabilities).filter(([, v]) => v === true).map(([k]) => <span key={k} class="badge">{k}</span>)}</p></Section>}
        {channels.data && channels.data.length > 0 && <Section title="Channels"><DataTable name="Channels" columns={channelColumns} rows={channels.data} id={(x) => x.name} /></Section>}
      </>}
      {closing && <FormDialog title="Close the connection?" submit="Close it" tone="danger" close={() => setClosing(false)} act={async () => { await del(`connections/${at}`, undefined, { "X-Reason": reason || "closed on the management page" }); go(["connections"]); }} done="The connection is closed.">
        <p>The client is told to close. What it has not acknowledged goes back to its queues; most clients connect again.</p>
        <TextField label="Reason" value={reason} set={setReason} hint="The client is told." autoFocus />
      </FormDialog>}
    </Page>
  );
}

const channelColumns: Column<Channel>[] = [
  { id: "name", title: "Channel", sort: "name", cell: (c) => <span class="mono">{c.connection_details?.name ? <a href={href(["connections", c.connection_details.name])}>{c.name}</a> : c.name}</span> },
  { id: "user", title: "User", sort: "user", cell: (c) => c.user },
  { id: "vhost", title: "Virtual host", sort: "vhost", cell: (c) => <span class="mono">{c.vhost}</span> },
  { id: "mode", title: "Mode", cell: (c) => <>{c.confirm && <Badge title="the client waits for confirms">confirm</Badge>}{c.transactional && <Badge>transactions</Badge>}{!c.confirm && !c.transactional && "–"}</> },
  { id: "state", title: "State", sort: "state", cell: (c) => <State state={c.state} /> },
  { id: "consumers", title: "Consumers", sort: "consumer_count", num: true, cell: (c) => count(c.consumer_count) },
  { id: "unacked", title: "Unacked", sort: "messages_unacknowledged", num: true, cell: (c) => count(c.messages_unacknowledged) },
  { id: "unconfirmed", title: "Unconfirmed", sort: "messages_unconfirmed", num: true, cell: (c) => count(c.messages_unconfirmed) },
  { id: "prefetch", title: "Prefetch", sort: "prefetch_count", num: true, cell: (c) => (c.prefetch_count || c.global_prefetch_count ? `${c.prefetch_count || "–"}${c.global_prefetch_count ? ` (${c.global_prefetch_count} in all)` : ""}` : "no limit") },
  { id: "publish", title: "Publish", sort: "message_stats.publish_details.rate", num: true, cell: (c) => perSecond(rate(c.message_stats, "publish")) },
  { id: "deliver", title: "Deliver", sort: "message_stats.deliver_get_details.rate", num: true, cell: (c) => perSecond(rate(c.message_stats, "deliver_get")) },
  { id: "ack", title: "Ack", sort: "message_stats.ack_details.rate", num: true, cell: (c) => perSecond(rate(c.message_stats, "ack")) },
];

export function Channels() {
  const listing = useListing("name");
  const list = useApi<Paged<Channel>>(withQuery("channels", listing.params));
  return (
    <Page title="Channels">
      <FilterBar listing={listing} what="channels" />
      <Failure error={list.error} />
      {list.data && (list.data.items.length > 0 ? <DataTable name="Channels" picker columns={channelColumns} rows={list.data.items} id={(c) => c.name} sorted={listing.order} /> : <Empty>No channel is open.</Empty>)}
      {list.data && <Pager of={list.data} what="channels" />}
    </Page>
  );
}

const consumerColumns: Column<Consumer>[] = [
  { id: "tag", title: "Consumer tag", sort: "consumer_tag", cell: (c) => <span class="mono">{c.consumer_tag}</span> },
  { id: "queue", title: "Queue", sort: "queue.name", cell: (c) => <a class="mono" href={queueHref(c.queue.vhost, c.queue.name)}>{c.queue.name}</a> },
  { id: "channel", title: "Channel", cell: (c) => c.channel_details.connection_name ? <a class="mono" href={href(["connections", c.channel_details.connection_name])}>{c.channel_details.name}</a> : <span class="mono">{c.channel_details.name ?? "–"}</span> },
  { id: "state", title: "State", sort: "activity_status", cell: (c) => c.active ? <Badge tone="ok">active</Badge> : <Badge>{c.activity_status || "waiting"}</Badge> },
  { id: "prefetch", title: "Prefetch", sort: "prefetch_count", num: true, cell: (c) => (c.prefetch_count === 0 ? "no limit" : count(c.prefetch_count)) },
  { id: "ack", title: "Acknowledges", sort: "ack_required", cell: (c) => (c.ack_required ? "yes" : "no") },
  { id: "exclusive", title: "Exclusive", sort: "exclusive", cell: (c) => (c.exclusive ? "yes" : "no") },
];

export function Consumers() {
  const { query } = useRoute();
  const listing = useListing("queue.name");
  const vhost = query.get("vhost");
  const list = useApi<Paged<Consumer>>(withQuery(vhost ? `consumers/${path(vhost)}` : "consumers", listing.params));
  return (
    <Page title="Consumers">
      <Failure error={list.error} />
      {list.data && (list.data.items.length > 0 ? <DataTable name="Consumers" picker columns={consumerColumns} rows={list.data.items} id={(c) => path(c.queue.vhost, c.queue.name, c.channel_details.name ?? "", c.consumer_tag)} sorted={listing.order} /> : <Empty>Nobody consumes.</Empty>)}
      {list.data && <Pager of={list.data} what="consumers" />}
    </Page>
  );
}
