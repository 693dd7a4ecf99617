// Plots: uPlot for those that one reads, a line of SVG for those in tables.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Series } from "./data";
import { short } from "./format";

export interface Line { name: string; color: string }

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

function token(name: string): string { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

/** Lines over time. The names of colors are those of the style's tokens. */
export function Plot({ title, series, lines, unit = "" }: { title: string; series: Series | undefined; lines: Line[]; unit?: string }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const theme = document.documentElement.dataset.theme ?? "";
  const names = lines.map((l) => l.name).join();
  useEffect(() => {
    const el = box.current!;
    const axis = { stroke: token("--muted"), grid: { stroke: token("--line"), width: 1 }, ticks: { stroke: token("--line"), width: 1 }, font: "11px system-ui" };
    const u = plot.current = new uPlot({
      width: Math.max(200, el.clientWidth), height: 190, cursor: { drag: { x: false, y: false }, points: { size: 6 } },
      tzDate: (t) => uPlot.tzDate(new Date(t * 1000), zone),
      // A minute at least, so that the first points are not spread over the whole width.
      scales: { x: { range: (_u, min, max) => (Number.isFinite(max ?? NaN) ? [Math.min(min, max - 60), max] : [Date.now() / 1000 - 60, Date.now() / 1000]) }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [{ ...axis, values: (_u, at) => at.map((t) => new Date(t * 1000).toTimeString().slice(0, 8)), space: 80 }, { ...axis, size: 52, values: (_u, at) => at.map((v) => short(v)) }],
      legend: { live: true },
      series: [{ value: (_u, t) => (t ? new Date(t * 1000).toTimeString().slice(0, 8) : "–") }, ...lines.map((l) => ({
        label: l.name, stroke: token(l.color), width: 1.75, points: { show: (u: uPlot) => (u.data[0]?.length ?? 0) < 3 }, spanGaps: false,
        value: (_u: uPlot, v: number | null) => (v === null || v === undefined ? "–" : short(v) + unit),
      }))],
    }, [[], ...lines.map(() => [])] as uPlot.AlignedData, el);
    const sized = new ResizeObserver(() => u.setSize({ width: Math.max(200, el.clientWidth), height: 190 }));
    sized.observe(el);
    return () => { sized.disconnect(); u.destroy(); };
  }, [theme, names, unit]);
  useEffect(() => {
    if (series) plot.current?.setData([series.times, ...series.values] as uPlot.AlignedData);
  }, [series, series?.times.length, series?.times.at(-1), theme]);
  return (
    <figure class="plot">
      <figcaption>{title}</figcaption>
      <div ref={box} />
    </figure>
  );
}

/** The last values, small. */
export function Spark({ series, line = 0, name, color = "--accent" }: { series: Series | undefined; line?: number; name: string; color?: string }) {
  const values = (series?.values[line] ?? []).slice(-60);
  const width = 72, height = 18;
  if (values.length < 2) return <svg class="spark" width={width} height={height} role="img" aria-label={`${name}: no history yet`} />;
  const max = Math.max(1, ...values.map((v) => v ?? 0));
  const at = values.map((v, i) => `${((i / (values.length - 1)) * (width - 2) + 1).toFixed(1)},${(height - 2 - ((v ?? 0) / max) * (height - 4)).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`${name}: now ${short(values.at(-1) ?? 0)}, at most ${short(max)}`}>
      <polyline points={at} fill="none" stroke={`var(${color})`} stroke-width="1.5" stroke-linejoin="round" />
    </svg>
  );
}
