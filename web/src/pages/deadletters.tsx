// The dead-letter desk: where dead letters are, why they died, and back with them.
import { useEffect, useRef, useState } from "preact/hooks";
import { del, path, post, withQuery } from "../api";
import { tell, useAction, useApi } from "../data";
import { download } from "../body";
import { ago, bytes, count, iso, plural, span, time } from "../format";
import { useMe } from "../me";
import { Reason, reasons } from "../message";
import { draftOf, PublishDialog, type Draft } from "../publish";
import { href, setQuery, useRoute } from "../route";
import type { DeadGroup, DeadLetters, Message, OutboxStatus, Paged, Queue, RedrivePlan, RedriveStatus } from "../types";
import { Badge, Button, DataTable, Dialog, Empty, Failure, Figure, Figures, Meter, Notice, Page, Section, SelectField, TextField } from "../ui";
import { found, MessageList, usePeek } from "./messages";
import { counted } from "./queues";

export function deskHref(vhost: string, name: string): string { return href(["dead-letters", vhost, name]); }

/** Queues that hold dead letters, and what is on its way. */
export function DeadLetterList() {
  const queues = useApi<Paged<Queue>>(withQuery("queues", { page: 1, page_size: 200, sort: "messages_transferred", sort_reverse: true, pagination: true }));
  const outboxes = useApi<OutboxStatus[]>("warren/outboxes");
  const holding = (queues.data?.items ?? []).filter((q) => q.messages_transferred > 0);
  const full = holding.filter((q) => q.messages > 0);
  const more = queues.data !== undefined && holding.length > 0 && holding.length === queues.data.items.length && queues.data.total_count > holding.length;
  const out = outboxes.data ?? [];
  const mute = (queues.data?.items ?? []).filter((q) => !counted(q)).length;
  const parked = out.reduce((n, o) => n + o.states.parked_unrouted + o.states.parked_cycle, 0);
  return (
    <Page title="Dead letters" sub="Messages that a queue would not deliver: why, from where, and back with them.">
      <Failure error={queues.error ?? outboxes.error} />
      {mute > 0 && <Notice tone="warn">{plural(mute, "queue")} without a leader: what is in {mute === 1 ? "it" : "them"}, or on its way from {mute === 1 ? "it" : "them"}, is not known and not shown here.</Notice>}
      {more && <Notice tone="warn">Only the {count(holding.length)} queues that have been sent most dead letters are counted and shown here.</Notice>}
      <Figures>
        <Figure name="Queues with dead letters" tone="dead">{count(full.length)}</Figure>
        <Figure name="Messages in them">{count(full.reduce((n, q) => n + q.messages, 0))}</Figure>
        <Figure name="On their way" title="dead, and not taken by their target yet">{count(out.reduce((n, o) => n + o.messages_dlx, 0) - parked)}</Figure>
        <Figure name="Parked" title="dead, and no target takes them" tone={parked > 0 ? "dead" : undefined}>{count(parked)}</Figure>
      </Figures>
      <Section title="Where they are">
        {queues.data && (holding.length === 0
          ? <Empty>No queue has been sent a dead letter. A queue with a dead-letter exchange, by its argument <code>x-dead-letter-exchange</code> or a policy, sends what is rejected, expired or too much there.</Empty>
          : <DataTable name="Queues with dead letters" rows={holding} id={(q) => path(q.vhost, q.name)} rowTone={(q) => (q.messages === 0 ? "faint" : undefined)} columns={[
            { id: "name", title: "Queue", cell: (q) => <a class="mono" href={deskHref(q.vhost, q.name)}>{q.name}</a> },
            { id: "vhost", title: "Virtual host", cell: (q) => <span class="mono">{q.vhost}</span> },
            { id: "messages", title: "Messages", num: true, cell: (q) => count(q.messages) },
            { id: "transferred", title: "Arrived dead, ever", num: true, cell: (q) => count(q.messages_transferred) },
            { id: "consumers", title: "Consumers", num: true, cell: (q) => count(q.consumers) },
          ]} />)}
      </Section>
      <Section title="On their way" note="a dead letter stays in its queue until its target has it on a majority's disks">
        {outboxes.data && (out.length === 0 ? <Empty>Nothing is on its way: every dead letter has arrived.</Empty>
          : <ul class="stack">{out.map((o) => <li key={o.id}><Outbox o={o} /></li>)}</ul>)}
      </Section>
    </Page>
  );
}

/** What an outbox waits for, and what can be done. */
function Outbox({ o }: { o: OutboxStatus }) {
  const me = useMe();
  const action = useAction();
  const stuck = o.oldest_age_ms > 60_000;
  const name = o.queue || (o.delay_of ? `messages delayed by ${o.delay_of}` : `queue ${o.id}`);
  return (
    <article class={`card ${stuck ? "stuck" : ""}`} aria-label={name}>
      <div class="card-head">
        {o.queue ? <a class="mono" href={deskHref(o.vhost, o.queue)}>{o.queue}</a> : <span>{name}</span>}
        <span class="muted">{o.vhost}</span>
        {stuck ? <Badge tone="bad">waits for {span(o.oldest_age_ms)}</Badge> : <Badge tone="ok">moving</Badge>}
        <span class="spacer" />
        <span>{plural(o.messages_dlx, "message")}, {bytes(o.message_bytes_dlx)}</span>
      </div>
      <ul class="reasons">
        {o.states.unrouted > 0 && <li>{count(o.states.unrouted)} wait for the leader to say where they go.</li>}
        {(o.targets ?? []).filter((t) => t.pending > 0).map((t) => <li key={t.id}>{targetWords(t)}</li>)}
        {o.states.parked_unrouted > 0 && <li>{count(o.states.parked_unrouted)} are parked: nothing is bound that takes them. They are tried again whenever an exchange, a binding or a policy changes.</li>}
        {o.states.parked_cycle > 0 && <li>{count(o.states.parked_cycle)} are parked: the only way leads back to where they have been, and nobody rejected them since. They wait for another dead-letter exchange or key, or to be released.</li>}
        {o.last_error && <li class="muted">Last trouble, {ago(o.last_error.at)}: {o.last_error.text}</li>}
      </ul>
      {action.error && <Notice tone="bad">{action.error}</Notice>}
      {me.makesPolicies && o.queue && o.states.parked_unrouted + o.states.parked_cycle > 0 &&
        <Button busy={action.busy} onClick={() => void action.run(async () => {
          const r = await post<{ unrouted: number; cycle: number }>(`warren/queues/${path(o.vhost, o.queue)}/release`);
          tell(`${plural(r.unrouted + r.cycle, "parked letter")} of ${o.queue} ${r.unrouted + r.cycle === 1 ? "is" : "are"} looked at again.`);
        })}>Look for a way again</Button>}
    </article>
  );
}

function targetWords(t: NonNullable<OutboxStatus["targets"]>[number]) {
  const queue = <b class="mono">{t.queue || `queue ${t.id}`}</b>;
  const since = t.since ? ` for ${span(Date.now() - t.since)}` : "";
  switch (t.state) {
    case "full": return <>{count(t.pending)} wait for {queue}, which is full and refuses publishes{since}. They go on when it has room.</>;
    case "unreachable": return <>{count(t.pending)} wait for {queue}, whose leader has not answered{since}. They are sent again until it does.</>;
    case "gone": return <>{count(t.pending)} were for {queue}, which is being deleted; they are routed anew.</>;
  }
  return <>{count(t.pending)} on their way to {queue}.</>;
}

const ageNames = ["under a minute", "under an hour", "under a day", "under a week", "a week and more"];
const ageBounds = ["1m", "1h", "24h", "168h"];

const retriedWords: [string, string][] = [["", "All"], ["false", "Never retried"], ["true", "Retried before"]];

/** What the address says of which dead letters are meant. */
interface Chosen { reason: string; from: string; age: string; retried: string }

function filterOf(c: Chosen): { reasons?: string[]; from?: string; older_than?: string; newer_than?: string; retried?: boolean } {
  const at = c.age === "" ? -1 : Number(c.age);
  return {
    reasons: c.reason ? [c.reason] : undefined, from: c.from || undefined,
    older_than: at > 0 ? ageBounds[at - 1] : undefined, newer_than: at >= 0 && at < ageBounds.length ? ageBounds[at] : undefined,
    retried: c.retried === "" ? undefined : c.retried === "true",
  };
}

function words(c: Chosen): string {
  const list = [c.reason && c.reason, c.from && `from ${c.from}`, c.age !== "" && ageNames[Number(c.age)], c.retried !== "" && (c.retried === "true" ? "retried before" : "never retried")].filter(Boolean);
  return list.length > 0 ? list.join(", ") : "all";
}

export function Desk({ vhost, name }: { vhost: string; name: string }) {
  const { query } = useRoute();
  const me = useMe();
  const at = path(vhost, name);
  const chosen: Chosen = { reason: query.get("reason") ?? "", from: query.get("from") ?? "", age: query.get("age") ?? "", retried: query.get("retried") ?? "" };
  const groups = useApi<DeadLetters>(`warren/queues/${at}/dead-letters`, 10_000);
  const outbox = useApi<OutboxStatus>(`warren/queues/${at}/outbox`, 10_000);
  const status = useApi<RedriveStatus>(`warren/queues/${at}/redrive`, 1000);
  const { reasons: wanted, retried, ...f } = filterOf(chosen);
  const peek = usePeek(vhost, name, { state: "ready", ...f, reason: wanted, retried: retried?.toString() });
  const [text, setText] = useState("");
  const [selected, select] = useState(new Set<number>());
  const [sending, setSending] = useState<{ ids?: number[]; discard?: boolean }>();
  const [draft, setDraft] = useState<Draft>();
  const shown = peek.list.filter((m) => found(m, text));
  const running = status.data?.state === "running" || status.data?.state === "stopping";
  // What a retry or a drop has taken away is no longer shown when it has ended.
  const ended = running ? "" : status.data && `${status.data.number} ${status.data.state}`;
  const known = useRef<string | undefined>(undefined);
  useEffect(() => {
    if (ended && known.current !== undefined && known.current !== ended) { peek.reload(); groups.reload(); }
    if (ended !== undefined) known.current = ended;
  }, [ended]);
  useEffect(() => select(new Set()), [chosen.reason, chosen.from, chosen.age, chosen.retried]);
  const ids = [...selected].sort((a, b) => a - b);
  const any = chosen.reason !== "" || chosen.from !== "" || chosen.age !== "" || chosen.retried !== "";
  return (
    <Page title={<>Dead letters in <span class="mono">{name}</span></>} sub={<><a href="#/dead-letters">All dead letters</a> · <a href={href(["queues", vhost, name])}>the queue</a> in <span class="mono">{vhost}</span></>}
      actions={me.makesPolicies && <>
        <Button tone="main" disabled={running || groups.data?.looked === 0} onClick={() => setSending({})}>{any ? "Retry these…" : "Retry all…"}</Button>
        <Button disabled={running || groups.data?.looked === 0} onClick={() => setSending({ discard: true })}>Drop…</Button>
      </>}>
      {groups.error?.absent ? <Empty>There is no such queue.</Empty> : <Failure error={groups.error} />}
      {status.data && status.data.number > 0 && <Progress at={at} s={status.data} />}
      {outbox.data && outbox.data.messages_dlx > 0 && <Section title="On their way out of this queue"><Outbox o={outbox.data} /></Section>}
      {groups.data && <Section title="Why and from where" note={groups.data.complete ? `${plural(groups.data.looked, "message")} here` : `the first ${count(groups.data.looked)} messages were looked at`}
        actions={any && <Button onClick={() => setQuery({ reason: undefined, from: undefined, age: undefined, retried: undefined, message: undefined })}>Show all</Button>}>
        <Groups data={groups.data} chosen={chosen} />
      </Section>}
      <Section title="Messages" note={words(chosen)} actions={<>
        {me.makesPolicies && ids.length > 0 && <Button tone="main" disabled={running} onClick={() => setSending({ ids })}>{`Retry ${count(ids.length)} selected…`}</Button>}
        {me.makesPolicies && ids.length > 0 && <Button disabled={running} onClick={() => setSending({ ids, discard: true })}>Drop them…</Button>}
        {shown.length > 0 && <Button tone="quiet" onClick={() => download(`${name}-dead-letters.json`, JSON.stringify(shown, null, 2))}>Download {count(shown.length)}</Button>}
        <Button busy={peek.busy} onClick={peek.reload}>Look again</Button>
      </>}>
        <div class="filters"><span class="segmented" role="group" aria-label="Retried before">{retriedWords.map(([v, title]) => <button key={v} type="button" aria-pressed={chosen.retried === v} onClick={() => setQuery({ retried: v || undefined, message: undefined })}>{title}</button>)}</span>
          <input type="search" class="search" data-search placeholder="Search in what is loaded" aria-label="Search in the loaded messages" value={text} onInput={(e) => setText(e.currentTarget.value)} /></div>
        <Failure error={peek.error} />
        {shown.length > 0 ? <MessageList vhost={vhost} queue={name} list={shown} selected={me.makesPolicies ? selected : undefined}
          select={me.makesPolicies ? (id, on) => { const s = new Set(selected); if (on) s.add(id); else s.delete(id); select(s); } : undefined}
          actions={(m: Message) => <>
            {me.makesPolicies && <Button tone="main" disabled={running} onClick={() => setSending({ ids: [m.id] })}>Retry this one…</Button>}
            {!m.truncated && <Button onClick={() => setDraft(draftOf(m))}>Publish a copy…</Button>}
          </>} />
          : !peek.busy && !peek.error && <Empty>{text ? "None of the loaded messages has this." : any ? "No message here is of this group." : "No messages are ready here."}</Empty>}
        {peek.more && <Button onClick={peek.more} busy={peek.busy}>Load more</Button>}
      </Section>
      {sending && <Redrive vhost={vhost} name={name} chosen={chosen} ids={sending.ids} discard={sending.discard ?? false} close={(sent) => { setSending(undefined); if (sent) { select(new Set()); status.reload(); } }} />}
      {draft && <PublishDialog vhost={vhost} draft={draft} close={() => setDraft(undefined)} />}
    </Page>
  );
}

/** The ledger: one line for each reason and source, its ages as parts that can be chosen. */
function Groups({ data, chosen }: { data: DeadLetters; chosen: Chosen }) {
  if (data.looked === 0) return <Empty>The queue is empty.</Empty>;
  const max = Math.max(...data.groups.flatMap((g) => g.ages), 1);
  const is = (g: DeadGroup, age = "") => chosen.reason === g.reason && chosen.from === g.queue && chosen.age === age;
  const pick = (g: DeadGroup, age: string) => is(g, age) ? setQuery({ reason: undefined, from: undefined, age: undefined, message: undefined }) : setQuery({ reason: g.reason, from: g.queue, age, message: undefined });
  return (
    <div class="table-scroll" role="region" aria-label="Groups of dead letters" tabIndex={0}>
      <table class="ledger">
        <thead><tr><th scope="col">Died in</th><th scope="col">Because</th><th scope="col" class="num">Messages</th><th scope="col" class="num">Retried before</th>{ageNames.map((a) => <th key={a} scope="col" class="num">{a}</th>)}<th scope="col">Oldest</th><th scope="col" class="num">Bodies</th></tr></thead>
        <tbody>
          {data.groups.map((g) => (
            <tr key={`${g.queue} ${g.reason}`} class={is(g) ? "chosen" : undefined}>
              <th scope="row"><button type="button" class="link mono" aria-pressed={is(g)} onClick={() => pick(g, "")}>{g.queue}</button></th>
              <td><Reason reason={g.reason} /> <span class="muted">{reasons[g.reason]}</span></td>
              <td class="num"><b>{count(g.messages)}</b></td>
              <td class="num">{g.retried > 0 ? count(g.retried) : <span class="muted">·</span>}</td>
              {g.ages.map((n, i) => (
                <td key={i} class="num age">{n > 0
                  ? <button type="button" class={`heat heat-${Math.min(4, Math.max(1, Math.ceil((Math.log(n + 1) / Math.log(max + 1)) * 4)))}`} aria-pressed={is(g, String(i))} aria-label={`${n} from ${g.queue}, ${g.reason}, ${ageNames[i]}`} onClick={() => pick(g, String(i))}>{count(n)}</button>
                  : <span class="muted">·</span>}</td>
              ))}
              <td><time dateTime={iso(g.oldest)} title={time(g.oldest)}>{ago(g.oldest)}</time></td>
              <td class="num">{bytes(g.bytes)}</td>
            </tr>
          ))}
          {data.never_died > 0 && <tr class="faint"><th scope="row">(published here)</th><td>they never died; a retry leaves them</td><td class="num">{count(data.never_died)}</td><td />{ageNames.map((a) => <td key={a} />)}<td /><td /></tr>}
        </tbody>
      </table>
    </div>
  );
}

/** How far the newest retry or drop is. */
function Progress({ at, s }: { at: string; s: RedriveStatus }) {
  const me = useMe();
  const stop = useAction();
  const running = s.state === "running" || s.state === "stopping";
  if (!running && s.ended_at && Date.now() - s.ended_at > 3_600_000) return null;
  const what = s.discard ? "Drop" : "Retry";
  const left: string[] = [
    s.returned > 0 && `${count(s.returned)} came back, because the target had gone or had no room`, s.missing > 0 && `${count(s.missing)} have no such queue or route any more`,
    s.no_origin > 0 && `${count(s.no_origin)} never died, so that nothing says where they belong`, s.busy > 0 && `${count(s.busy)} were with a consumer`,
  ].filter((x): x is string => x !== false);
  return (
    <section class={`progress ${running ? "running" : ""}`} aria-label={`${what} ${s.number}`}>
      <div class="card-head">
        <h2>{what} {s.state === "running" ? "is under way" : s.state === "stopping" ? "is being stopped" : s.state === "stopped" ? "was stopped" : "is done"}</h2>
        <span class="muted">{running ? `for ${span(Date.now() - s.started_at)}` : s.ended_at ? ago(s.ended_at) : ""}{s.rate ? `, at most ${count(s.rate)} a second` : ""}</span>
        <span class="spacer" />
        {running && me.makesPolicies && <Button busy={stop.busy} disabled={s.state === "stopping"} onClick={() => void stop.run(() => del(`warren/queues/${at}/redrive`))}>Stop</Button>}
      </div>
      <p class="progress-line"><Meter name="looked through" value={running ? s.position : 1} max={running ? Math.max(1, s.tail) : 1} /> <b>{count(s.moved)}</b> {s.discard ? "dropped" : "sent back"}{s.under_way > 0 && <>, {count(s.under_way)} on their way</>}</p>
      {left.length > 0 && <p class="muted">Still here: {left.join("; ")}.</p>}
      {running && (s.waits_for ?? []).length > 0 && <p class="muted">Waits for {s.waits_for!.map((w) => w.queue ?? "a queue that is gone").join(", ")}.</p>}
      {stop.error && <Notice tone="bad">{stop.error}</Notice>}
    </section>
  );
}

/** Asks where to and how fast, shows what would happen, and begins. */
function Redrive({ vhost, name, chosen, ids, discard, close }: { vhost: string; name: string; chosen: Chosen; ids: number[] | undefined; discard: boolean; close: (sent: boolean) => void }) {
  const [to, setTo] = useState("last");
  const [queue, setQueue] = useState("");
  const [rate, setRate] = useState("");
  const [typed, setTyped] = useState("");
  const [plan, setPlan] = useState<RedrivePlan>();
  const [problem, setProblem] = useState("");
  const action = useAction();
  const form = {
    ...(ids ? { ids } : filterOf(chosen)),
    ...(discard ? { discard: true } : { to, queue: to === "queue" ? queue : undefined, rate: rate ? Math.floor(Number(rate)) : undefined }),
  };
  const at = `warren/queues/${path(vhost, name)}/redrive`;
  const key = JSON.stringify({ ...form, rate: undefined });
  const ready = to !== "queue" || queue !== "" || discard;
  useEffect(() => {
    setPlan(undefined);
    setProblem("");
    if (!ready) return;
    let gone = false;
    const timer = setTimeout(async () => {
      try {
        const p = await post<RedrivePlan>(at, { ...form, rate: undefined, dry_run: true });
        if (!gone) setPlan(p);
      } catch (err) {
        if (!gone) setProblem(err instanceof Error ? err.message : String(err));
      }
    }, 200);
    return () => { gone = true; clearTimeout(timer); };
  }, [key]);
  const what = ids ? plural(ids.length, "message") : words(chosen) === "all" ? `all dead letters of ${name}` : `dead letters of ${name}: ${words(chosen)}`;
  const whole = discard && !ids;
  return (
    <Dialog title={discard ? "Drop dead letters for good?" : "Retry dead letters"} close={() => close(false)}>
      <form onSubmit={async (e) => { e.preventDefault(); if (await action.run(async () => { await post(at, form); }, discard ? "The drop has begun." : "The retry has begun.")) close(true); }}>
        <div class="dialog-body">
          <p>{what[0]!.toUpperCase() + what.slice(1)}.</p>
          {!discard && <>
            <SelectField label="Back to" value={to} set={setTo} options={[["last", "the queue in which each died last"], ["first", "the queue in which each died first"], ["exchange", "the exchange it was published to"], ["queue", "one queue, by name"]]} />
            {to === "queue" && <TextField label="Queue" value={queue} set={setQueue} required mono />}
            <TextField label="At most so many a second" type="number" value={rate} set={setRate} hint="Empty or 0: as fast as the targets take them" />
          </>}
          <div class="preview" aria-live="polite">
            <h3>What would happen</h3>
            {problem && <Notice tone="bad">{problem}</Notice>}
            {!plan && !problem && <p class="muted">{ready ? "Looking…" : "Name the queue."}</p>}
            {plan && <Preview plan={plan} discard={discard} />}
          </div>
          {whole && <TextField label={`Type the queue's name to confirm: ${name}`} value={typed} set={setTyped} mono />}
          {action.error && <Notice tone="bad">{action.error}</Notice>}
        </div>
        <div class="dialog-foot"><Button onClick={() => close(false)}>Cancel</Button>
          <Button type="submit" tone={discard ? "danger" : "main"} busy={action.busy} disabled={!ready || problem !== "" || plan?.messages === 0 || (discard && !plan) || (whole && typed !== name)}>{discard ? "Drop" : "Retry"}</Button></div>
      </form>
    </Dialog>
  );
}

function Preview({ plan, discard }: { plan: RedrivePlan; discard: boolean }) {
  const to = Object.entries(plan.destinations).sort((a, b) => b[1] - a[1]), missing = Object.entries(plan.missing);
  if (plan.messages === 0) return <p>No message is meant: {count(plan.looked)} were looked at.</p>;
  if (discard) return <p><b>{plural(plan.messages, "message")}</b> would be removed. Nothing brings them back.</p>;
  return (
    <ul class="reasons">
      {to.map(([q, n]) => <li key={q}><b>{count(n)}</b> to <span class="mono">{q}</span></li>)}
      {missing.map(([q, n]) => <li key={q} class="bad-text">{count(n)} stay: {q === "" ? "there is no route" : <><span class="mono">{q}</span> does not take them, or is gone</>}</li>)}
      {plan.no_origin > 0 && <li class="muted">{count(plan.no_origin)} stay: they never died</li>}
      {plan.next ? <li class="muted">The first {count(plan.looked)} messages were looked at; there are more.</li> : null}
    </ul>
  );
}
