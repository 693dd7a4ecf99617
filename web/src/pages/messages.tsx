// Looking into a queue: nothing is taken, unless one asks for it.
import { useEffect, useState } from "preact/hooks";
import { ApiError, getExact, path, postExact, withQuery } from "../api";
import { decode, download } from "../body";
import { changed } from "../data";
import { ago, bytes, count, nameOfExchange } from "../format";
import { BodyView, MessageView, Reason, Retried } from "../message";
import { draftOf, PublishDialog, type Draft } from "../publish";
import { setQuery, useRoute } from "../route";
import type { Message, Properties } from "../types";
import { Badge, Button, Dialog, Empty, Facts, Failure, FieldsView, FormDialog, Notice, Section, SelectField, TextField } from "../ui";

export const standings: [string, string][] = [["ready", "ready"], ["unacked", "with consumers"], ["delayed", "delayed"], ["outbox", "leaving"], ["parked", "parked"]];

const pageSize = 50;

/** Pages of messages, as a peek gives them. */
export function usePeek(vhost: string, name: string, params: Record<string, string | number | string[] | undefined>) {
  const key = JSON.stringify([vhost, name, params]);
  const [state, set] = useState<{ key: string; list: Message[]; next?: string; error?: ApiError; busy: boolean }>({ key: "", list: [], busy: true });
  const [round, again] = useState(0);
  const ask = async (after: string | undefined, before: Message[], signal?: AbortSignal) => {
    set((s) => ({ ...s, busy: true }));
    try {
      const got = await getExact<{ messages: Message[]; next?: string }>(withQuery(`warren/queues/${path(vhost, name)}/messages`, { count: pageSize, truncate: 50_000, ...params, after }), signal);
      set({ key, list: [...before, ...got.messages], next: got.next, busy: false });
    } catch (err) {
      if (!signal?.aborted) set({ key, list: before, busy: false, error: err instanceof ApiError ? err : new ApiError(0, "error", String(err)) });
    }
  };
  useEffect(() => {
    const abort = new AbortController();
    void ask(undefined, [], abort.signal);
    return () => abort.abort();
  }, [key, round]);
  const mine = state.key === key;
  return { list: mine ? state.list : [], busy: state.busy, error: mine ? state.error : undefined, more: mine && state.next ? () => void ask(state.next, state.list) : undefined, reload: () => again((n) => n + 1) };
}

/** Has every word of the text somewhere in it: key, exchange, properties, headers, body. */
export function found(m: Message, text: string): boolean {
  if (text === "") return true;
  const whole = `${m.routing_key}\n${m.exchange}\n${JSON.stringify(m.properties)}\n${m.payload_encoding === "string" ? m.payload : ""}`.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((w) => whole.includes(w));
}

/** A list of messages on the left, the one that is looked at below its line. */
export function MessageList({ vhost, queue, list, selected, select, actions }: {
  vhost: string; queue: string; list: Message[]; selected?: Set<number>; select?: (id: number, on: boolean) => void; actions?: (m: Message) => preact.ComponentChildren;
}) {
  const open = Number(useRoute().query.get("message")) || 0;
  return (
    <ol class="messages" aria-label="Messages">
      {list.map((m) => (
        <li key={m.id} class={m.id === open ? "open" : undefined}>
          <div class="message-line">
            {select && <input type="checkbox" aria-label={`Select message ${m.id}`} checked={selected!.has(m.id)} onChange={(e) => select(m.id, e.currentTarget.checked)} />}
            <button type="button" class="message-button" aria-expanded={m.id === open} onClick={() => setQuery({ message: m.id === open ? undefined : m.id }, true)}>
              <span class="mono id">{m.id}</span>
              {(m.reason ?? m.deaths[0]?.reason) && <Reason reason={m.reason ?? m.deaths[0]!.reason} />}
              {m.retried && <Retried n={m.deaths_since_retry ?? 0} />}
              <span class="mono key">{m.routing_key || "(empty key)"}</span>
              <Snippet m={m} />
              <span class="muted size">{bytes(m.payload_bytes)}</span>
              <span class="muted age">{m.died_at ? ago(m.died_at) : m.deaths[0] ? ago(m.deaths[0].last_time) : m.redelivered ? "redelivered" : ""}</span>
            </button>
          </div>
          {m.id === open && <MessageView message={m} vhost={vhost} queue={queue} actions={actions?.(m)} />}
        </li>
      ))}
    </ol>
  );
}

function Snippet({ m }: { m: Message }) {
  const [text, set] = useState(m.payload_encoding === "string" ? m.payload.slice(0, 120) : "");
  useEffect(() => {
    if (m.payload_encoding !== "base64") return;
    let gone = false;
    void decode(m).then((d) => { if (!gone) set(d.form === "hex" ? "(bytes)" : d.text.slice(0, 120)); });
    return () => { gone = true; };
  }, [m.payload]);
  return <span class="snippet">{text.replace(/\s+/g, " ")}</span>;
}

export function Messages({ vhost, name }: { vhost: string; name: string }) {
  const { query } = useRoute();
  const state = query.get("state") ?? "ready";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const [text, setText] = useState("");
  const [draft, setDraft] = useState<Draft>();
  const [getting, setGetting] = useState(false);
  const peek = usePeek(vhost, name, { state, offset: offset || undefined });
  const shown = peek.list.filter((m) => found(m, text));
  return (
    <Section title="Messages" note="looking changes nothing: no order, count or flag" actions={<>
      <Button onClick={peek.reload} busy={peek.busy}>Look again</Button>
      <Button onClick={() => setGetting(true)}>Get (takes them)</Button>
    </>}>
      <div class="filters">
        <span class="segmented" role="group" aria-label="Where messages stand">{standings.map(([s, title]) => <button key={s} type="button" aria-pressed={s === state} onClick={() => setQuery({ state: s === "ready" ? undefined : s, message: undefined, offset: undefined })}>{title}</button>)}</span>
        <input type="search" class="search" data-search placeholder="Search in what is loaded" aria-label="Search in the loaded messages" value={text} onInput={(e) => setText(e.currentTarget.value)} />
        <label class="inline">from place <input type="number" min={0} value={offset} onChange={(e) => setQuery({ offset: Number(e.currentTarget.value) || undefined })} /></label>
        {shown.length > 0 && <Button tone="quiet" onClick={() => download(`${name}-messages.json`, JSON.stringify(shown, null, 2))}>Download {count(shown.length)}</Button>}
      </div>
      <Failure error={peek.error} />
      {shown.length > 0 ? <MessageList vhost={vhost} queue={name} list={shown} actions={(m) => !m.truncated && <Button onClick={() => setDraft(draftOf(m))}>Publish a copy…</Button>} />
        : !peek.busy && !peek.error && <Empty>{text ? "None of the loaded messages has this." : `No messages ${standings.find(([s]) => s === state)?.[1] ?? state}.`}</Empty>}
      {peek.more && <Button onClick={peek.more} busy={peek.busy}>Load more</Button>}
      {draft && <PublishDialog vhost={vhost} draft={draft} close={() => setDraft(undefined)} />}
      {getting && <Get vhost={vhost} name={name} close={() => { setGetting(false); peek.reload(); }} />}
    </Section>
  );
}

interface Got { payload: string; payload_encoding: "string" | "base64"; payload_bytes: number; properties: Properties; redelivered: boolean; exchange: string; routing_key: string; message_count: number }

function Get({ vhost, name, close }: { vhost: string; name: string; close: () => void }) {
  const [n, setN] = useState("1");
  const [mode, setMode] = useState("ack_requeue_true");
  const [got, setGot] = useState<Got[]>();
  if (got) {
    return (
      <Dialog title={`${count(got.length)} taken from ${name}`} close={close} wide>
        <div class="dialog-body">
          {got.length === 0 && <Empty>The queue had none.</Empty>}
          {got.map((m, i) => (
            <div key={i} class="got">
              <Facts rows={[["Exchange", <span class="mono">{nameOfExchange(m.exchange)}</span>], ["Routing key", <span class="mono">{m.routing_key || "(empty)"}</span>], ["Behind it", count(m.message_count)], ["Redelivered", m.redelivered ? <Badge tone="warn">yes</Badge> : "no"]]} />
              <BodyView message={m} />
              <FieldsView of={m.properties.headers} none="no headers" />
            </div>
          ))}
        </div>
        <div class="dialog-foot"><Button tone="main" onClick={close}>Close</Button></div>
      </Dialog>
    );
  }
  return (
    <FormDialog title={`Get from ${name}`} submit="Get" close={close} keep act={async () => {
      setGot(await postExact<Got[]>(`queues/${path(vhost, name)}/get`, { count: Math.max(1, Math.floor(Number(n)) || 1), ackmode: mode, encoding: "auto", truncate: 50_000 }));
      changed();
    }}>
      <Notice>This takes messages as a client does. To look only, the list behind this dialog is enough.</Notice>
      <TextField label="How many" type="number" value={n} set={setN} />
      <SelectField label="What becomes of them" value={mode} set={setMode} options={[
        ["ack_requeue_true", "they go back, marked as redelivered"], ["ack_requeue_false", "they are gone: acknowledged"], ["reject_requeue_true", "rejected, and go back"], ["reject_requeue_false", "rejected: dead-lettered, or dropped"]]} />
    </FormDialog>
  );
}
