// The parts that pages are made of.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "./api";
import { useAction } from "./data";
import { count, value } from "./format";
import { here, setQuery, useRoute } from "./route";
import type { Paged, Table as Fields } from "./types";

type Children = { children?: ComponentChildren };

export function Page({ title, sub, actions, children }: { title: ComponentChildren; sub?: ComponentChildren; actions?: ComponentChildren } & Children) {
  return (
    <>
      <header class="page-head">
        <div><h1>{title}</h1>{sub && <p class="sub">{sub}</p>}</div>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </>
  );
}

export function Section({ title, note, actions, children, id }: { title: string; note?: ComponentChildren; actions?: ComponentChildren; id?: string } & Children) {
  return (
    <section class="section" id={id} aria-label={title}>
      <div class="section-head"><h2>{title}</h2>{note && <span class="note">{note}</span>}{actions && <div class="actions">{actions}</div>}</div>
      {children}
    </section>
  );
}

type Tone = "ok" | "warn" | "bad" | "dead" | "ready" | "unacked" | "plain";

export function Badge({ tone = "plain", title, children }: { tone?: Tone; title?: string } & Children) {
  return <span class={`badge ${tone}`} title={title}>{children}</span>;
}

export function State({ state }: { state: string }) {
  const tone: Tone = state === "running" || state === "active" || state === "done" || state === "flow" ? "ok" : state === "minority" || state === "blocked" || state === "stopping" ? "warn"
    : state === "down" || state === "blocking" || state === "terminated" ? "bad" : "plain";
  return <Badge tone={tone}>{state}</Badge>;
}

/** A standing line of text: trouble, or what one should know. */
export function Notice({ tone = "plain", children }: { tone?: Tone } & Children) {
  return <div class={`notice ${tone}`} role={tone === "bad" ? "alert" : undefined}>{children}</div>;
}

export function Failure({ error }: { error: ApiError | undefined }) {
  useEffect(() => { if (error?.beyond) setQuery({ page: undefined }, true); }, [error]);
  if (!error || error.beyond) return null;
  if (error.forbidden) return <Notice>Your user may not see this: {error.message}. The tags <code>monitoring</code> and <code>administrator</code> may see more.</Notice>;
  return <Notice tone="bad">{error.status === 0 ? `${error.message} What is shown may be old; the page keeps trying.` : error.message}</Notice>;
}

export function Empty({ children }: Children) { return <p class="empty">{children}</p>; }

/** A number with its name, large. */
export function Figure({ name, children, tone, title }: { name: string; tone?: Tone; title?: string } & Children) {
  return <div class={`figure ${tone ?? ""}`} title={title}><dt>{name}</dt><dd>{children}</dd></div>;
}
export function Figures({ children }: Children) { return <dl class="figures">{children}</dl>; }

/** Names and values. */
export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return <dl class="facts">{rows.map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}</dl>;
}

/** Arguments or headers. */
export function FieldsView({ of, none = "none" }: { of: Fields | null | undefined; none?: string }) {
  const names = Object.keys(of ?? {}).sort();
  if (names.length === 0) return <span class="muted">{none}</span>;
  return <dl class="facts mono">{names.map((k) => <div key={k}><dt>{k}</dt><dd>{value(of![k])}</dd></div>)}</dl>;
}

export function Button({ tone, busy, children, type = "button", disabled, onClick }: {
  tone?: "main" | "danger" | "quiet"; busy?: boolean; type?: "button" | "submit"; disabled?: boolean; onClick?: () => void;
} & Children) {
  return <button type={type} class={`button ${tone ?? ""}`} disabled={disabled || busy} aria-busy={busy || undefined} onClick={onClick && (() => onClick())}>{children}</button>;
}

export function Field({ label, hint, children }: { label: string; hint?: string; children: (id: string, hintID: string | undefined) => ComponentChildren }) {
  const id = useId();
  const hintID = hint ? `${id}-hint` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, hintID)}
      {hint && <p class="hint" id={hintID}>{hint}</p>}
    </div>
  );
}

export function TextField({ label, hint, value, set, type = "text", required, placeholder, autoFocus, list, autoComplete, mono }: {
  label: string; hint?: string; value: string; set: (v: string) => void; type?: "text" | "password" | "number"; required?: boolean; placeholder?: string; autoFocus?: boolean;
  list?: string[]; autoComplete?: string; mono?: boolean;
}) {
  const listID = useId();
  return (
    <Field label={label} hint={hint}>{(id, hintID) => <>
      <input id={id} type={type as "text"} value={value} required={required} placeholder={placeholder} autofocus={autoFocus} aria-describedby={hintID} class={mono ? "mono" : undefined}
        autocomplete={autoComplete ?? "off"} spellcheck={false} autocapitalize="none" list={list ? listID : undefined} onInput={(e) => set(e.currentTarget.value)} />
      {list && <datalist id={listID}>{list.map((v) => <option key={v} value={v} />)}</datalist>}
    </>}</Field>
  );
}

export function AreaField({ label, hint, value, set, rows = 4 }: { label: string; hint?: string; value: string; set: (v: string) => void; rows?: number }) {
  return (
    <Field label={label} hint={hint}>{(id, hintID) =>
      <textarea id={id} rows={rows} class="mono" spellcheck={false} aria-describedby={hintID} value={value} onInput={(e) => set(e.currentTarget.value)} />}
    </Field>
  );
}

export function SelectField({ label, hint, value, set, options }: { label: string; hint?: string; value: string; set: (v: string) => void; options: (string | [string, string])[] }) {
  return (
    <Field label={label} hint={hint}>{(id, hintID) =>
      <select id={id} value={value} aria-describedby={hintID} onChange={(e) => set(e.currentTarget.value)}>
        {options.map((o) => { const [v, text] = typeof o === "string" ? [o, o] : o; return <option key={v} value={v} selected={v === value}>{text}</option>; })}
      </select>}
    </Field>
  );
}

export function Check({ label, value, set }: { label: ComponentChildren; value: boolean; set: (v: boolean) => void }) {
  return <label class="check"><input type="checkbox" checked={value} onChange={(e) => set(e.currentTarget.checked)} /> <span>{label}</span></label>;
}

/** A dialog over the page: the browser keeps the focus in it and closes it with Esc. */
export function Dialog({ title, close, wide, children }: { title: string; close: () => void; wide?: boolean } & Children) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => { // with what is drawn next: nothing of it is there and not open
    const d = ref.current!;
    d.showModal();
    (d.querySelector<HTMLElement>("[autofocus]") ?? d.querySelector<HTMLElement>(".dialog-body :is(input, select, textarea)"))?.focus();
    return () => d.close();
  }, []);
  return (
    <dialog ref={ref} class={wide ? "wide" : undefined} aria-labelledby={id} onClose={close} onCancel={(e) => { e.preventDefault(); close(); }}
      onMouseDown={(e) => { if (e.target === ref.current) close(); }}>
      <div class="dialog-box">
        <div class="dialog-head"><h2 id={id}>{title}</h2><button type="button" class="icon-button" aria-label="Close" onClick={close}>✕</button></div>
        {children}
      </div>
    </dialog>
  );
}

/** A dialog with a form that does one thing, and stays open with the reason if that fails. */
export function FormDialog({ title, close, act, done, submit, tone = "main", wide, disabled, keep, children }: {
  title: string; close: () => void; act: () => Promise<unknown>; done?: string; submit: string; tone?: "main" | "danger"; wide?: boolean; disabled?: boolean; keep?: boolean;
} & Children) {
  const { busy, error, run } = useAction();
  return (
    <Dialog title={title} close={close} wide={wide}>
      <form onSubmit={async (e) => { e.preventDefault(); if (await run(act, done) && !keep) close(); }}>
        <div class="dialog-body">{children}{error && <Notice tone="bad">{error}</Notice>}</div>
        <div class="dialog-foot"><Button onClick={close}>Cancel</Button><Button type="submit" tone={tone} busy={busy} disabled={disabled}>{submit}</Button></div>
      </form>
    </Dialog>
  );
}

/** What cannot be undone asks for the name of what goes. */
export function ConfirmDialog({ title, name, submit, close, act, done, children }: {
  title: string; name: string; submit: string; close: () => void; act: () => Promise<unknown>; done?: string;
} & Children) {
  const [typed, set] = useState("");
  return (
    <FormDialog title={title} close={close} act={act} done={done} submit={submit} tone="danger" disabled={typed !== name}>
      {children}
      <TextField label={`Type the name to confirm: ${name}`} value={typed} set={set} autoFocus mono />
    </FormDialog>
  );
}

export function Tabs({ tabs, at }: { tabs: [string, string][]; at: string }) {
  const route = useRoute();
  return (
    <nav class="tabs" aria-label="Parts of this page">
      {tabs.map(([id, text], i) => <a key={id} href={here(route, { tab: i === 0 ? undefined : id })} aria-current={at === id ? "page" : undefined}>{text}</a>)}
    </nav>
  );
}

export interface Column<T> {
  id: string;
  title: string;
  /** The field that the server sorts by; without it the column cannot be sorted. */
  sort?: string;
  /** For lists that are here as a whole. */
  by?: (row: T) => string | number;
  num?: boolean;
  /** Shown only if somebody asks for it. */
  extra?: boolean;
  cell: (row: T) => ComponentChildren;
}

function columnsKey(name: string): string { return `warren.columns.${name}`; }

function useColumns<T>(name: string, all: Column<T>[]): [Column<T>[], Set<string>, (id: string, on: boolean) => void] {
  const [shown, set] = useState<Set<string>>(() => {
    const stored = localStorage.getItem(columnsKey(name));
    return new Set(stored ? stored.split(",") : all.filter((c) => !c.extra).map((c) => c.id));
  });
  const toggle = (id: string, on: boolean) => {
    const next = new Set(shown);
    if (on) next.add(id);
    else next.delete(id);
    localStorage.setItem(columnsKey(name), [...next].join(","));
    set(next);
  };
  return [all.filter((c, i) => i === 0 || shown.has(c.id)), shown, toggle];
}

/**
 * A table. Its order is in the address (sort, desc); rows come in that order from the server, or from SortedTable. name is for screen
 * readers and for the memory of which columns are wanted.
 */
export function DataTable<T>({ name, columns, rows, id, sorted, picker, selected, select, rowTone }: {
  name: string; columns: Column<T>[]; rows: T[]; id: (row: T) => string; sorted?: { sort: string; desc: boolean; set: (sort: string, desc: boolean) => void };
  picker?: boolean; selected?: Set<string>; select?: (ids: string[], on: boolean) => void; rowTone?: (row: T) => string | undefined;
}) {
  const [shown, on, toggle] = useColumns(name, columns);
  const list = picker ? shown : columns;
  const allSelected = selected !== undefined && rows.length > 0 && rows.every((r) => selected.has(id(r)));
  return (
    <div class="table-box">
      {picker && (
        <details class="columns">
          <summary>Columns</summary>
          <div class="columns-list" role="group" aria-label="Columns">
            {columns.slice(1).map((c) => <Check key={c.id} label={c.title} value={on.has(c.id)} set={(v) => toggle(c.id, v)} />)}
          </div>
        </details>
      )}
      <div class="table-scroll" role="region" aria-label={name} tabIndex={0}>
        <table>
          <thead>
            <tr>
              {select && <th class="tick"><input type="checkbox" aria-label="Select all that are shown" checked={allSelected} onChange={(e) => select(rows.map(id), e.currentTarget.checked)} /></th>}
              {list.map((c) => {
                const key = c.sort ?? (c.by ? c.id : undefined);
                const at = sorted !== undefined && key !== undefined && sorted.sort === key;
                return (
                  <th key={c.id} scope="col" class={c.num ? "num" : undefined} aria-sort={at ? (sorted.desc ? "descending" : "ascending") : undefined}>
                    {sorted && key ? (
                      <button type="button" class="sort" onClick={() => sorted.set(key, at ? !sorted.desc : c.num === true)}>
                        {c.title}<span aria-hidden="true" class="arrow">{at ? (sorted.desc ? "▾" : "▴") : ""}</span>
                      </button>
                    ) : c.title}
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>
            {rows.map((r) => {
              const k = id(r);
              return (
                <tr key={k} class={rowTone?.(r)}>
                  {select && <td class="tick"><input type="checkbox" aria-label={`Select ${k}`} checked={selected!.has(k)} onChange={(e) => select([k], e.currentTarget.checked)} /></td>}
                  {list.map((c, i) => i === 0 ? <th key={c.id} scope="row">{c.cell(r)}</th> : <td key={c.id} class={c.num ? "num" : undefined}>{c.cell(r)}</td>)}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </div>
  );
}

/** A table of a list that is here as a whole: sorted here. */
export function SortedTable<T>({ columns, rows, start, ...rest }: { name: string; columns: Column<T>[]; rows: T[]; id: (row: T) => string; start?: string; picker?: boolean; rowTone?: (row: T) => string | undefined }) {
  const [order, set] = useState({ sort: start ?? columns[0]!.id, desc: false });
  const by = columns.find((c) => c.id === order.sort)?.by;
  const list = by ? [...rows].sort((x, y) => {
    const a = by(x), b = by(y);
    return (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))) * (order.desc ? -1 : 1);
  }) : rows;
  return <DataTable columns={columns} rows={list} sorted={{ ...order, set: (sort, desc) => set({ sort, desc }) }} {...rest} />;
}

/** What the address says of a list that the server pages, sorts and filters. */
export function useListing(sort: string, desc = false, size = 50) {
  const { query } = useRoute();
  const l = {
    page: Math.max(1, Number(query.get("page")) || 1), size: Number(query.get("size")) || size, name: query.get("name") ?? "", regex: query.get("regex") === "1",
    sort: query.get("sort") ?? sort, desc: query.has("sort") ? query.get("desc") === "1" : desc, vhost: query.get("vhost") ?? "",
  };
  return {
    ...l,
    params: { page: l.page, page_size: l.size, name: l.name, use_regex: l.name !== "" && l.regex, sort: l.sort, sort_reverse: l.desc, pagination: true },
    order: { sort: l.sort, desc: l.desc, set: (s: string, d: boolean) => setQuery({ sort: s, desc: d, page: undefined }) },
  };
}

export type Listing = ReturnType<typeof useListing>;

/** The row over a list: search, regular expression, virtual host. */
export function FilterBar({ listing, vhosts, what, children }: { listing: Listing; vhosts?: string[]; what: string } & Children) {
  const [text, set] = useState(listing.name);
  const timer = useRef(0);
  useEffect(() => set(listing.name), [listing.name]);
  useEffect(() => () => clearTimeout(timer.current), []); // what was typed is not for another page
  const type = (v: string) => {
    set(v);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ name: v, page: undefined }, true), 250);
  };
  return (
    <div class="filters" role="search">
      <input type="search" class="search" value={text} placeholder={`Filter ${what}`} aria-label={`Filter ${what} by name`} data-search spellcheck={false} onInput={(e) => type(e.currentTarget.value)} />
      <Check label="regex" value={listing.regex} set={(v) => setQuery({ regex: v, page: undefined }, true)} />
      {vhosts && vhosts.length > 1 && (
        <select aria-label="Virtual host" value={listing.vhost} onChange={(e) => setQuery({ vhost: e.currentTarget.value, page: undefined })}>
          <option value="">all virtual hosts</option>
          {vhosts.map((v) => <option key={v} value={v} selected={v === listing.vhost}>{v}</option>)}
        </select>
      )}
      {children}
    </div>
  );
}

export function Pager({ of, what }: { of: Paged<unknown>; what: string }) {
  const route = useRoute();
  useEffect(() => { // the list has become shorter than what comes before this page
    if (of.item_count === 0 && of.page > 1) setQuery({ page: of.page_count > 1 ? of.page_count : undefined }, true);
  }, [of]);
  const first = (of.page - 1) * of.page_size + 1;
  return (
    <nav class="pager" aria-label={`Pages of ${what}`}>
      <span>{of.item_count === 0 ? `no ${what}` : `${count(first)}–${count(first + of.item_count - 1)} of ${count(of.filtered_count)} ${what}`}
        {of.filtered_count !== of.total_count && <span class="muted"> ({count(of.total_count)} in all)</span>}</span>
      {of.page_count > 1 && <span class="pages">
        {of.page > 1 ? <a href={here(route, { page: of.page - 1 })} rel="prev">← Previous</a> : <span class="muted">← Previous</span>}
        <span>page {count(of.page)} of {count(of.page_count)}</span>
        {of.page < of.page_count ? <a href={here(route, { page: of.page + 1 })} rel="next">Next →</a> : <span class="muted">Next →</span>}
      </span>}
    </nav>
  );
}

/** A share of a whole. */
export function Meter({ value, max, name, bad }: { value: number; max: number; name: string; bad?: boolean }) {
  const part = max > 0 ? Math.min(1, value / max) : 0;
  return <meter class={bad ? "bad" : part > 0.85 ? "warn" : undefined} min={0} max={1} value={part} aria-label={name}>{Math.round(part * 100)} %</meter>;
}
