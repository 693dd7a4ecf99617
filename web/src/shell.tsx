// The frame around the pages: navigation, search, theme, keyboard, who is logged in.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { logout } from "./api";
import { onNote, useApi, type Note } from "./data";
import { useLive, useStream } from "./live";
import { go, useRoute } from "./route";
import type { ClusterInfo, Whoami } from "./types";
import { Dialog } from "./ui";

export interface Place { path: string; title: string; key?: string; group: string; needs?: string[] }

/** The pages of the navigation, with the key that goes there after g. */
export const places: Place[] = [
  { path: "", title: "Overview", key: "o", group: "" },
  { path: "queues", title: "Queues", key: "q", group: "" },
  { path: "dead-letters", title: "Dead letters", key: "d", group: "" },
  { path: "exchanges", title: "Exchanges", key: "e", group: "" },
  { path: "topology", title: "Topology", key: "t", group: "" },
  { path: "connections", title: "Connections", key: "c", group: "Clients" },
  { path: "channels", title: "Channels", key: "h", group: "Clients" },
  { path: "consumers", title: "Consumers", key: "s", group: "Clients" },
  { path: "raft", title: "Raft", key: "r", group: "Administration" },
  { path: "admin/policies", title: "Policies", key: "p", group: "Administration", needs: ["policymaker", "administrator"] },
  { path: "admin/shovels", title: "Shovels", key: "l", group: "Administration", needs: ["policymaker", "monitoring", "administrator"] },
  { path: "admin/users", title: "Users", key: "u", group: "Administration", needs: ["administrator"] },
  { path: "admin/vhosts", title: "Virtual hosts", key: "v", group: "Administration", needs: ["administrator"] },
  { path: "admin/definitions", title: "Definitions", group: "Administration", needs: ["administrator"] },
  { path: "admin/feature-flags", title: "Feature flags", group: "Administration", needs: ["administrator"] },
];

export type Theme = "" | "light" | "dark";
const themeKey = "warren.theme";

export function applyTheme(theme = (localStorage.getItem(themeKey) ?? "") as Theme): Theme {
  const dark = theme === "dark" || (theme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  return theme;
}

function ThemeSwitch() {
  const [theme, set] = useState<Theme>(() => applyTheme());
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const on = () => applyTheme();
    media.addEventListener("change", on);
    return () => media.removeEventListener("change", on);
  }, []);
  const next: Record<Theme, Theme> = { "": "dark", dark: "light", light: "" };
  const names: Record<Theme, string> = { "": "as the system", dark: "dark", light: "light" };
  return (
    <button type="button" class="icon-button" title={`Colours: ${names[theme]}`} aria-label={`Colours: ${names[theme]}. Change`} onClick={() => {
      const t = next[theme];
      if (t) localStorage.setItem(themeKey, t);
      else localStorage.removeItem(themeKey);
      set(applyTheme(t));
      dispatchEvent(new Event("themechange"));
    }}>{theme === "" ? "◐" : theme === "dark" ? "●" : "○"}</button>
  );
}

/** Notes at the edge, each for some seconds. */
function Notes() {
  const [list, set] = useState<Note[]>([]);
  useEffect(() => onNote((n) => {
    set((l) => [...l.slice(-3), n]);
    setTimeout(() => set((l) => l.filter((x) => x.id !== n.id)), 6000);
  }), []);
  return <div class="notes" role="status" aria-live="polite">{list.map((n) => <div key={n.id} class={n.bad ? "note-box bad" : "note-box"}>{n.text}</div>)}</div>;
}

function typing(e: KeyboardEvent): boolean {
  const t = e.target;
  return t instanceof HTMLElement && (t.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(t.tagName));
}

/** "/" searches, g and a letter goes to a page, ? helps, Esc leaves a field. */
function useKeys(help: () => void): void {
  const gone = useRef(0); // when g was typed: the frame may be drawn anew before the letter is
  useEffect(() => {
    const on = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
      if (typing(e)) {
        if (e.key === "Escape") (e.target as HTMLElement).blur();
        return;
      }
      if (e.key === "/") {
        const field = document.querySelector<HTMLInputElement>("[data-search]");
        if (field) field.focus();
        else go(["queues"]);
        e.preventDefault();
      } else if (e.key === "?") help();
      else if (e.key === "g") gone.current = Date.now();
      else if (Date.now() - gone.current < 1500) {
        const to = places.find((p) => p.key === e.key);
        if (to) go(to.path === "" ? [] : to.path.split("/"));
        gone.current = 0;
      }
    };
    addEventListener("keydown", on);
    return () => removeEventListener("keydown", on);
  }, [help]);
}

function Help({ close }: { close: () => void }) {
  const keys: [string, string][] = [["/", "filter the list"], ["Esc", "leave a field, close a dialog"], ...places.filter((p) => p.key).map((p): [string, string] => [`g ${p.key}`, p.title]), ["?", "this list"]];
  return (
    <Dialog title="Keyboard" close={close}>
      <div class="dialog-body"><dl class="keys">{keys.map(([k, what]) => <div key={k}><dt>{k.split(" ").map((x) => <kbd key={x}>{x}</kbd>)}</dt><dd>{what}</dd></div>)}</dl></div>
    </Dialog>
  );
}

export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
      <g fill="none" stroke="currentColor" stroke-width="2.8" stroke-linecap="round"><path d="M5 26V16a11 11 0 0 1 22 0v10" /><path d="M10.500 26v-9.500a5.500 5.500 0 0 1 11 0V26" opacity=".65" /><path d="M16 26v-7" /></g>
    </svg>
  );
}

export function Shell({ me, children }: { me: Whoami | undefined; children: ComponentChildren }) {
  const route = useRoute();
  const [help, setHelp] = useState(false);
  const sees = (p: Place) => !p.needs || (me?.tags ?? []).some((t) => p.needs!.includes(t));
  useKeys(() => setHelp(true));
  useStream();
  const live = useLive();
  const at = route.parts[0] ?? "";
  const cluster = useApi<{ name: string }>("cluster-name", 0);
  const monitors = (me?.tags ?? []).some((t) => t === "monitoring" || t === "administrator");
  const info = useApi<ClusterInfo>(monitors ? "warren/cluster" : null, 30_000);
  const groups = [...new Set(places.map((p) => p.group))];
  useEffect(() => {
    const title = places.find((p) => p.path === route.parts.join("/") || p.path === at)?.title ?? "Warren";
    document.title = `${route.parts.slice(1).join(" · ") || title} – Warren`;
  }, [location.hash]);
  return (
    <div class="frame">
      <a class="skip" href={`${location.hash || "#/"}`} onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <header class="top">
        <a class="brand" href="#/"><Mark /><span>Warren</span></a>
        <span class="cluster" title="The cluster, and the node that answers">{cluster.data?.name}{info.data && <span class="muted"> via {info.data.node}</span>}</span>
        <span class="spacer" />
        {live.connected && <span class="live" title="Changes are shown as they come">live</span>}
        <button type="button" class="icon-button" title="Keyboard" aria-label="Keyboard help" onClick={() => setHelp(true)}>?</button>
        <ThemeSwitch />
        <span class="who" title={me ? `tags: ${me.tags.join(", ") || "none"}` : undefined}>{me?.name}</span>
        <button type="button" class="button quiet" onClick={logout}>Log out</button>
      </header>
      <nav class="rail" aria-label="Pages">
        {groups.map((g) => {
          const list = places.filter((p) => p.group === g && sees(p));
          return list.length > 0 && (
            <div key={g} class="rail-group">
              {g && <span class="rail-title">{g}</span>}
              {list.map((p) => <a key={p.path} href={`#/${p.path}`} class={p.path === "dead-letters" ? "dead" : undefined} aria-current={p.path === at || (p.group === "Administration" && p.path === route.parts.slice(0, 2).join("/")) ? "page" : undefined}>{p.title}</a>)}
            </div>
          );
        })}
        <a class="rail-foot" href="licences.txt">Licences</a>
      </nav>
      <main id="main" tabIndex={-1}>{children}</main>
      <Notes />
      {help && <Help close={() => setHelp(false)} />}
    </div>
  );
}
