import { useState } from "preact/hooks";
import { del, get, mustBeNew, path, put, withQuery } from "../api";
import { changed, useAction, useApi } from "../data";
import { useMe } from "../me";
import { href } from "../route";
import type { Limits, Permission, TopicPermission, User, Vhost } from "../types";
import { Badge, Button, ConfirmDialog, DataTable, Empty, Failure, FormDialog, Notice, Page, Section, SelectField, SortedTable, TextField } from "../ui";

const tagWords: [string, string][] = [["management", "may log in here, sees own virtual hosts"], ["policymaker", "and makes policies there"], ["monitoring", "and sees all connections and nodes"], ["administrator", "may do everything"]];

export function Users() {
  const users = useApi<User[]>("users", 30_000);
  const permissions = useApi<Permission[]>("permissions", 30_000);
  const [adding, setAdding] = useState(false);
  return (
    <Page title="Users" actions={<Button tone="main" onClick={() => setAdding(true)}>Add a user</Button>}>
      <Failure error={users.error} />
      {users.data && <SortedTable name="Users" start="name" rows={users.data} id={(u) => u.name} columns={[
        { id: "name", title: "User", by: (u) => u.name, cell: (u) => <a class="mono" href={href(["admin", "users", u.name])}>{u.name}</a> },
        { id: "tags", title: "Tags", by: (u) => u.tags.join(), cell: (u) => u.tags.length > 0 ? u.tags.map((t) => <><Badge tone={t === "administrator" ? "warn" : "plain"}>{t}</Badge> </>) : "–" },
        { id: "vhosts", title: "May enter", cell: (u) => { const list = (permissions.data ?? []).filter((p) => p.user === u.name).map((p) => p.vhost); return list.length > 0 ? <span class="mono">{list.join(", ")}</span> : <span class="muted">no virtual host</span>; } },
        { id: "password", title: "Password", cell: (u) => (u.password_hash ? "yes" : <span class="muted">none: by certificate only</span>) },
      ]} />}
      {adding && <EditUser close={() => setAdding(false)} />}
    </Page>
  );
}

function EditUser({ user, close }: { user?: User; close: () => void }) {
  const [name, setName] = useState(user?.name ?? "");
  const [password, setPassword] = useState("");
  const [tags, setTags] = useState(user?.tags.join(", ") ?? "management");
  return (
    <FormDialog title={user ? `Tags and password of ${user.name}` : "Add a user"} submit={user ? "Save" : "Add"} close={close} done={user ? `User ${name} is changed.` : `User ${name} is added.`} act={async () => {
      const list = tags.split(",").map((t) => t.trim()).filter(Boolean);
      if (!user) {
        await mustBeNew(`users/${path(name)}`, `a user ${name}`);
        await put(`users/${path(name)}`, { password, tags: list });
      } else {
        await put(`warren/users/${path(name)}/tags`, { tags: list });
        if (password) await put(`warren/users/${path(name)}/password`, { password });
      }
    }}>
      {!user && <TextField label="Name" value={name} set={setName} required autoFocus mono />}
      <TextField label="Password" type="password" value={password} set={setPassword} autoComplete="new-password" required={!user} hint={user ? "Empty: stays as it is" : undefined} />
      <TextField label="Tags" value={tags} set={setTags} hint="with commas between them" mono />
      <dl class="facts">{tagWords.map(([t, w]) => <div key={t}><dt class="mono">{t}</dt><dd>{w}</dd></div>)}</dl>
    </FormDialog>
  );
}

export function UserPage({ name }: { name: string }) {
  const me = useMe();
  const at = path(name);
  const user = useApi<User>(`users/${at}`, 30_000);
  const permissions = useApi<Permission[]>(`users/${at}/permissions`, 30_000);
  const topics = useApi<TopicPermission[]>(`users/${at}/topic-permissions`, 30_000);
  const vhosts = useApi<Vhost[]>("vhosts", 60_000);
  const [open, setOpen] = useState<"edit" | "delete" | "permission" | "topic">();
  const clear = useAction();
  const u = user.data;
  const close = () => setOpen(undefined);
  const names = (vhosts.data ?? []).map((v) => v.name);
  return (
    <Page title={<span class="mono">{name}</span>} sub={u && (u.tags.length > 0 ? u.tags.join(", ") : "no tags: may not use this page")}
      actions={u && <><Button onClick={() => setOpen("edit")}>Tags, password…</Button><Button disabled={name === me.name} onClick={() => setOpen("delete")}>Delete</Button></>}>
      {user.error?.absent ? <Empty>There is no such user. <a href="#/admin/users">All users</a></Empty> : <Failure error={user.error} />}
      {clear.error && <Notice tone="bad">{clear.error}</Notice>}
      {u && <>
        <Section title="Permissions" note="regular expressions for names; empty allows nothing" actions={<Button onClick={() => setOpen("permission")}>Set…</Button>}>
          {permissions.data && (permissions.data.length === 0 ? <Empty>May not enter any virtual host.</Empty> : <DataTable name="Permissions" rows={permissions.data} id={(p) => p.vhost} columns={[
            { id: "vhost", title: "Virtual host", cell: (p) => <span class="mono">{p.vhost}</span> }, { id: "configure", title: "Configure", cell: (p) => <span class="mono">{p.configure || "nothing"}</span> },
            { id: "write", title: "Write", cell: (p) => <span class="mono">{p.write || "nothing"}</span> }, { id: "read", title: "Read", cell: (p) => <span class="mono">{p.read || "nothing"}</span> },
            { id: "actions", title: "Change", cell: (p) => <Button tone="quiet" busy={clear.busy} onClick={() => void clear.run(() => del(`permissions/${path(p.vhost, name)}`), `${name} may no longer enter ${p.vhost}.`)}>Clear</Button> },
          ]} />)}
        </Section>
        <Tester user={name} vhosts={names} />
        <Section title="Topic permissions" note="for keys of topic exchanges; none: all keys are allowed" actions={<Button onClick={() => setOpen("topic")}>Set…</Button>}>
          {topics.data && topics.data.length > 0 && <DataTable name="Topic permissions" rows={topics.data} id={(p) => path(p.vhost, p.exchange)} columns={[
            { id: "exchange", title: "Exchange", cell: (p) => <span class="mono">{p.exchange || "(default)"}</span> }, { id: "vhost", title: "Virtual host", cell: (p) => <span class="mono">{p.vhost}</span> },
            { id: "write", title: "Publish keys", cell: (p) => <span class="mono">{p.write || "nothing"}</span> }, { id: "read", title: "Binding keys", cell: (p) => <span class="mono">{p.read || "nothing"}</span> },
            { id: "actions", title: "Change", cell: (p) => <Button tone="quiet" busy={clear.busy} onClick={() => void clear.run(() => del(`topic-permissions/${path(p.vhost, name)}${p.exchange ? `/${path(p.exchange)}` : ""}`), "The topic permission is cleared.")}>Clear</Button> },
          ]} />}
        </Section>
        <LimitsTable what="user" name={name} known={["max-connections", "max-channels"]} />
      </>}
      {open === "edit" && u && <EditUser user={u} close={close} />}
      {open === "delete" && <ConfirmDialog title={`Delete ${name}?`} name={name} submit="Delete" close={close} act={async () => { await del(`users/${at}`); location.hash = "#/admin/users"; }} done={`User ${name} is deleted.`}><p>The user's permissions go with it. Open connections are closed.</p></ConfirmDialog>}
      {open === "permission" && <SetPermission user={name} vhosts={names} known={permissions.data ?? []} close={close} />}
      {open === "topic" && <SetTopic user={name} vhosts={names} close={close} />}
    </Page>
  );
}

function SetPermission({ user, vhosts, known, close }: { user: string; vhosts: string[]; known: Permission[]; close: () => void }) {
  const of = (v: string) => known.find((p) => p.vhost === v);
  const [vhost, setVhost] = useState(vhosts[0] ?? "/");
  const [configure, setConfigure] = useState(of(vhost)?.configure ?? ".*");
  const [write, setWrite] = useState(of(vhost)?.write ?? ".*");
  const [read, setRead] = useState(of(vhost)?.read ?? ".*");
  return (
    <FormDialog title={`What ${user} may do`} submit="Set" close={close} done={`The permissions of ${user} in ${vhost} are set.`} act={() => put(`permissions/${path(vhost, user)}`, { configure, write, read })}>
      <SelectField label="Virtual host" value={vhost} options={vhosts} set={(v) => { setVhost(v); const p = of(v); if (p) { setConfigure(p.configure); setWrite(p.write); setRead(p.read); } }} />
      <TextField label="Configure" value={configure} set={setConfigure} mono hint="declare and delete" />
      <TextField label="Write" value={write} set={setWrite} mono hint="publish to an exchange, bind to it as a target" />
      <TextField label="Read" value={read} set={setRead} mono hint="consume, get, purge, bind from an exchange" />
    </FormDialog>
  );
}

function SetTopic({ user, vhosts, close }: { user: string; vhosts: string[]; close: () => void }) {
  const [vhost, setVhost] = useState(vhosts[0] ?? "/");
  const [exchange, setExchange] = useState("amq.topic");
  const [write, setWrite] = useState(".*");
  const [read, setRead] = useState(".*");
  return (
    <FormDialog title={`Keys that ${user} may use`} submit="Set" close={close} done="The topic permission is set." act={() => put(`topic-permissions/${path(vhost, user)}`, { exchange, write, read })}>
      <SelectField label="Virtual host" value={vhost} set={setVhost} options={vhosts} />
      <TextField label="Exchange" value={exchange} set={setExchange} required mono />
      <TextField label="Keys to publish with" value={write} set={setWrite} mono hint="{username} and {vhost} stand for those of the connection" />
      <TextField label="Keys to bind with" value={read} set={setRead} mono />
    </FormDialog>
  );
}

/** May this user do that? The API says, as it would say to a client. */
function Tester({ user, vhosts }: { user: string; vhosts: string[] }) {
  const [vhost, setVhost] = useState("");
  const [action, setAction] = useState("read");
  const [kind, setKind] = useState("queue");
  const [name, setName] = useState("");
  const [answer, setAnswer] = useState<{ allowed: boolean; reason?: string; what: string }>();
  const ask = useAction();
  const at = vhost || (vhosts.includes("/") ? "/" : vhosts[0] ?? "/");
  return (
    <Section title="May this user …?">
      <form class="filters" onSubmit={(e) => {
        e.preventDefault();
        void ask.run(async () => setAnswer({ ...await get<{ allowed: boolean; reason?: string }>(withQuery(`warren/permissions/${path(at, user)}/check`, { action, kind, name })), what: `${action} ${kind} ${name || "(default)"} in ${at}` }));
      }}>
        <select aria-label="What to try" value={action} onChange={(e) => setAction(e.currentTarget.value)}>{["configure", "write", "read"].map((a) => <option key={a} selected={a === action}>{a}</option>)}</select>
        <select aria-label="A queue or an exchange" value={kind} onChange={(e) => setKind(e.currentTarget.value)}>{["queue", "exchange"].map((a) => <option key={a} selected={a === kind}>{a}</option>)}</select>
        <input class="search mono" aria-label="Name to try" placeholder="name" value={name} onInput={(e) => setName(e.currentTarget.value)} />
        {vhosts.length > 1 && <select aria-label="Virtual host" value={at} onChange={(e) => setVhost(e.currentTarget.value)}>{vhosts.map((v) => <option key={v} selected={v === at}>{v}</option>)}</select>}
        <Button type="submit" busy={ask.busy}>Try</Button>
      </form>
      <div aria-live="polite">
        {ask.error && <Notice tone="bad">{ask.error}</Notice>}
        {answer && <Notice tone={answer.allowed ? "ok" : "warn"}>{answer.allowed ? `Yes: ${user} may ${answer.what}.` : `No: ${answer.reason}`}</Notice>}
      </div>
    </Section>
  );
}

/** Limits of a user or a virtual host. */
export function LimitsTable({ what, name, known }: { what: "user" | "vhost"; name: string; known: string[] }) {
  const list = useApi<Limits[]>(`${what}-limits/${path(name)}`, 30_000);
  const [limit, setLimit] = useState<string>();
  const [value, setValue] = useState("");
  const clear = useAction();
  const has = list.data?.[0]?.value ?? {};
  return (
    <Section title="Limits" note="a negative one is none, 0 allows none">
      {clear.error && <Notice tone="bad">{clear.error}</Notice>}
      <DataTable name="Limits" rows={known} id={(k) => k} columns={[
        { id: "limit", title: "Limit", cell: (k) => <span class="mono">{k}</span> },
        { id: "value", title: "At most", num: true, cell: (k) => has[k] ?? <span class="muted">no limit</span> },
        { id: "actions", title: "Change", cell: (k) => <span class="row-actions"><Button tone="quiet" onClick={() => { setLimit(k); setValue(String(has[k] ?? "")); }}>Set…</Button>
          {has[k] !== undefined && <Button tone="quiet" busy={clear.busy} onClick={() => void clear.run(() => del(`${what}-limits/${path(name, k)}`), "The limit is cleared.")}>Clear</Button>}</span> },
      ]} />
      {limit && <FormDialog title={`${limit} of ${name}`} submit="Set" close={() => setLimit(undefined)} done="The limit is set." act={async () => { await put(`${what}-limits/${path(name, limit)}`, { value: Math.floor(Number(value)) }); changed(); }}>
        <TextField label="At most" type="number" value={value} set={setValue} required autoFocus />
      </FormDialog>}
    </Section>
  );
}
