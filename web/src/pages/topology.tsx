// The topology as a picture: exchanges, queues, and where dead letters go.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { path, withQuery } from "../api";
import { useApi } from "../data";
import { count, nameOfExchange, short } from "../format";
import { layout, type Edge as PlainEdge } from "../layout";
import { setQuery, useRoute } from "../route";
import type { Binding, Exchange, Paged, Queue, Vhost } from "../types";
import { Button, Check, Empty, Failure, Notice, Page } from "../ui";
import { exchangeHref } from "./exchanges";
import { queueHref } from "./queues";

interface Shape { id: string; kind: "exchange" | "queue"; name: string; note: string; messages?: number; href: string }
interface Edge extends PlainEdge { label: string; dead: boolean }

const boxWidth = 190, boxHeight = 34, stepX = 290, stepY = 50, shapesMax = 400;

function setting(q: Queue, name: string): string | undefined {
  const v = q.arguments[`x-${name}`] ?? q.effective_policy_definition?.[name];
  return typeof v === "string" ? v : undefined;
}

/** What is to be drawn: everything that is bound or has dead letters to send; of that, what has the text in its name, and its neighbours. */
export function graph(exchanges: Exchange[], queues: Queue[], bindings: Binding[], text: string, only: boolean): { shapes: Shape[]; edges: Edge[]; alone: number } {
  const all = new Map<string, Shape>();
  for (const x of exchanges) all.set(`x ${x.name}`, { id: `x ${x.name}`, kind: "exchange", name: nameOfExchange(x.name), note: x.type, href: exchangeHref(x.vhost, x.name) });
  for (const q of queues) all.set(`q ${q.name}`, { id: `q ${q.name}`, kind: "queue", name: q.name, note: q.type, messages: q.messages, href: queueHref(q.vhost, q.name) });
  const edges = new Map<string, Edge>();
  const join = (from: string, to: string, label: string, dead: boolean) => {
    if (!all.has(from) || !all.has(to)) return;
    const key = `${from}\n${to}\n${dead}`, was = edges.get(key);
    edges.set(key, { from, to, dead, label: was ? `${was.label}, ${label}` : label });
  };
  if (!only) for (const b of bindings) if (b.source !== "") join(`x ${b.source}`, `${b.destination_type === "queue" ? "q" : "x"} ${b.destination}`, b.routing_key || "(empty key)", false);
  for (const q of queues) {
    const dlx = setting(q, "dead-letter-exchange"), key = setting(q, "dead-letter-routing-key");
    if (dlx === undefined) continue;
    if (dlx === "" && key !== undefined) join(`q ${q.name}`, `q ${key}`, "dead letters", true);
    else if (dlx !== "") join(`q ${q.name}`, `x ${dlx}`, key === undefined ? "dead letters" : `dead letters as ${key}`, true);
  }
  if (only) { // the exchanges that dead letters come to lead on
    const dead = new Set([...edges.values()].map((e) => e.to));
    for (const b of bindings) if (dead.has(`x ${b.source}`)) join(`x ${b.source}`, `${b.destination_type === "queue" ? "q" : "x"} ${b.destination}`, b.routing_key || "(empty key)", false);
  }
  let list = [...edges.values()];
  if (text !== "") {
    const t = text.toLowerCase(), hit = (id: string) => id.slice(2).toLowerCase().includes(t);
    list = list.filter((e) => hit(e.from) || hit(e.to));
  }
  const used = new Set(list.flatMap((e) => [e.from, e.to]));
  return { shapes: [...used].map((id) => all.get(id)!), edges: list, alone: queues.filter((q) => !used.has(`q ${q.name}`)).length };
}

export function Topology() {
  const { query } = useRoute();
  const vhosts = useApi<Vhost[]>("vhosts", 60_000);
  const chosen = query.get("vhost") ?? (vhosts.data?.some((v) => v.name === "/") ? "/" : vhosts.data?.[0]?.name);
  const vhost = chosen ?? "", of = (to: string) => chosen === undefined ? null : to; // nothing is asked of a virtual host that may not be the reader's
  const text = query.get("name") ?? "", only = query.get("dead") === "1";
  const exchanges = useApi<Exchange[]>(of(`exchanges/${path(vhost)}`), 15_000);
  const bindings = useApi<Binding[]>(of(withQuery(`bindings/${path(vhost)}`, { default: "false" })), 15_000);
  const queues = useApi<Paged<Queue>>(of(withQuery(`queues/${path(vhost)}`, { page: 1, page_size: 500, sort: "name", columns: "vhost,name,type,messages,arguments,effective_policy_definition", pagination: true })), 15_000);
  const g = useMemo(() => exchanges.data && bindings.data && queues.data ? graph(exchanges.data, queues.data.items, bindings.data, text, only) : undefined, [exchanges.data, bindings.data, queues.data, text, only]);
  const large = g !== undefined && g.shapes.length > shapesMax;
  return (
    <Page title="Topology" sub="From exchanges to queues, and where their dead letters go.">
      <div class="filters" role="search">
        <input type="search" class="search" data-search placeholder="Only what has this in its name, and its neighbours" aria-label="Filter the picture by name" value={text} onInput={(e) => setQuery({ name: e.currentTarget.value }, true)} />
        {(vhosts.data?.length ?? 0) > 1 && <select aria-label="Virtual host" value={vhost} onChange={(e) => setQuery({ vhost: e.currentTarget.value })}>{vhosts.data!.map((v) => <option key={v.name} value={v.name} selected={v.name === vhost}>{v.name}</option>)}</select>}
        <Check label="dead letters only" value={only} set={(v) => setQuery({ dead: v }, true)} />
      </div>
      <Failure error={vhosts.error ?? exchanges.error ?? bindings.error ?? queues.error} />
      {vhosts.data?.length === 0 && <Empty>There is no virtual host that you may enter.</Empty>}
      {queues.data && queues.data.total_count > queues.data.item_count && <Notice tone="warn">Of {count(queues.data.total_count)} queues the first {count(queues.data.item_count)} by name are looked at.</Notice>}
      {large && <Notice tone="warn">{count(g.shapes.length)} exchanges and queues are too many for one picture: filter by a name.</Notice>}
      {g && g.shapes.length === 0 && <Empty>{text || only ? "Nothing that is bound or sends dead letters has this." : "No exchange is bound to a queue, and no queue sends dead letters. Queues are reached by their names through the default exchange."}</Empty>}
      {g && !large && g.shapes.length > 0 && <Picture shapes={g.shapes} edges={g.edges} />}
      {g && g.alone > 0 && <p class="muted">{g.alone === 1 ? "1 queue is" : `${count(g.alone)} queues are`} not drawn{text || only ? " with this filter" : ": nothing but the default exchange leads there"}.</p>}
    </Page>
  );
}

interface View { x: number; y: number; scale: number }

function Picture({ shapes, edges }: { shapes: Shape[]; edges: Edge[] }) {
  const ids = shapes.map((s) => s.id).sort().join("\n");
  const ways = edges.map((e) => `${e.from}\n${e.to}`).sort().join("\n");
  const at = useMemo(() => layout(shapes.map((s) => s.id), edges, stepX, stepY), [ids, ways]);
  const [view, setView] = useState<View>({ x: 20, y: 20, scale: 1 });
  const [lit, setLit] = useState<string>();
  const drag = useRef<{ x: number; y: number; view: View } | undefined>(undefined);
  const box = useRef<SVGSVGElement>(null);
  const back = edges.filter((e) => at.places.get(e.to)!.x <= at.places.get(e.from)!.x);
  const left = back.length > 0 ? 56 : 20, tall = at.height + (back.length > 0 ? 20 + 7 * back.length : 0);
  const height = Math.max(240, Math.min(640, tall + 60));
  const fit = () => {
    const w = box.current?.clientWidth ?? 800;
    const scale = Math.max(.15, Math.min(1, (w - 20) / (at.width - stepX + boxWidth + 2 * left), (height - 40) / Math.max(1, tall)));
    setView({ x: left * scale, y: Math.max(20, (height - tall * scale) / 2), scale });
  };
  useEffect(() => {
    fit();
    const sized = new ResizeObserver(fit);
    sized.observe(box.current!);
    return () => sized.disconnect();
  }, [ids, ways]);
  const zoom = (by: number, cx?: number, cy?: number) => setView((v) => {
    const scale = Math.min(3, Math.max(.1, v.scale * by)), k = scale / v.scale;
    const x = cx ?? (box.current?.clientWidth ?? 800) / 2, y = cy ?? height / 2;
    return { scale, x: x - (x - v.x) * k, y: y - (y - v.y) * k };
  });
  useEffect(() => {
    const el = box.current!;
    const wheel = (e: WheelEvent) => { // only with a key held: the page scrolls over the picture
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      const r = el.getBoundingClientRect();
      zoom(Math.exp(-e.deltaY / 400), e.clientX - r.left, e.clientY - r.top);
    };
    el.addEventListener("wheel", wheel, { passive: false });
    return () => el.removeEventListener("wheel", wheel);
  }, []);
  const key = (e: KeyboardEvent) => {
    const move: Record<string, [number, number]> = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    const m = move[e.key];
    if (m) setView((v) => ({ ...v, x: v.x + m[0], y: v.y + m[1] }));
    else if (e.key === "+" || e.key === "=") zoom(1.25);
    else if (e.key === "-") zoom(.8);
    else if (e.key === "0") fit();
    else return;
    e.preventDefault();
  };
  const labels = edges.length <= 60;
  return (
    <div class="picture">
      <div class="picture-bar"><Button onClick={() => zoom(1.25)}>+</Button><Button onClick={() => zoom(.8)}>−</Button><Button onClick={fit}>Fit</Button>
        <span class="legend"><i class="key-exchange" /> exchange <i class="key-queue" /> queue <i class="key-dead" /> dead letters</span></div>
      <svg ref={box} height={height} role="group" aria-label={`${shapes.length} exchanges and queues with ${edges.length} ways between them. Arrow keys move, + and - zoom, 0 fits.`} tabIndex={0} onKeyDown={key}
        onPointerDown={(e) => { if (!(e.target as Element).closest("a")) { drag.current = { x: e.clientX, y: e.clientY, view }; e.currentTarget.setPointerCapture(e.pointerId); } }}
        onPointerMove={(e) => { const d = drag.current; if (d) setView({ ...d.view, x: d.view.x + e.clientX - d.x, y: d.view.y + e.clientY - d.y }); }}
        onPointerUp={() => { drag.current = undefined; }} onPointerCancel={() => { drag.current = undefined; }}>
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" class="head" /></marker>
          <marker id="arrow-dead" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" class="head dead" /></marker>
        </defs>
        <g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
          {edges.map((e) => {
            const a = at.places.get(e.from)!, b = at.places.get(e.to)!;
            const forward = b.x > a.x;
            const on = lit === undefined || lit === e.from || lit === e.to;
            // A way back goes round below everything, between the columns, so that no box hides it.
            const y1 = a.y + boxHeight / 2, y2 = b.y + boxHeight / 2, right = a.x + boxWidth, low = at.height + 8 + 7 * back.indexOf(e);
            const d = forward ? `M${right} ${y1} C${right + 55} ${y1} ${b.x - 55} ${y2} ${b.x - 2} ${y2}`
              : `M${right} ${y1} C${right + 38} ${y1} ${right + 38} ${y1 + 8} ${right + 34} ${y1 + 30} L${right + 30} ${low - 14} Q${right + 28} ${low} ${right + 12} ${low} L${b.x - 24} ${low} Q${b.x - 40} ${low} ${b.x - 40} ${low - 16} L${b.x - 40} ${y2 + 22} Q${b.x - 40} ${y2} ${b.x - 2} ${y2}`;
            const lx = forward ? (a.x + boxWidth + b.x) / 2 : (a.x + b.x + boxWidth) / 2, ly = forward ? (y1 + y2) / 2 - 5 : low - 4;
            return (
              <g key={`${e.from}\n${e.to}\n${e.dead}`} class={`way ${e.dead ? "dead" : ""} ${on ? "" : "dim"}`}>
                <path d={d} marker-end={`url(#arrow${e.dead ? "-dead" : ""})`}><title>{e.label}</title></path>
                {labels && !(e.dead && e.label === "dead letters") && <text x={lx} y={ly} text-anchor="middle">{cut(e.label, 15)}</text>}
              </g>
            );
          })}
          {shapes.map((s) => {
            const p = at.places.get(s.id)!;
            return (
              <g key={s.id} transform={`translate(${p.x} ${p.y})`}><a href={s.href} class={`shape ${s.kind}`}
                onPointerEnter={() => setLit(s.id)} onPointerLeave={() => setLit(undefined)} onFocus={() => setLit(s.id)} onBlur={() => setLit(undefined)}>
                <rect width={boxWidth} height={boxHeight} rx={s.kind === "exchange" ? boxHeight / 2 : 4} />
                <text class="name" x={s.kind === "exchange" ? 16 : 10} y={15}>{cut(s.name, 24)}</text>
                <text class="kind" x={s.kind === "exchange" ? 16 : 10} y={28}>{s.note}{s.messages !== undefined && ` · ${short(s.messages)}`}</text>
              </a></g>
            );
          })}
        </g>
      </svg>
    </div>
  );
}

function cut(text: string, at: number): string { return text.length > at ? `${text.slice(0, at - 1)}…` : text; }
