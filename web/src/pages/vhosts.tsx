import { useState } from "preact/hooks";
import { del, mustBeNew, path, post, put } from "../api";
import { useAction, useApi } from "../data";
import { count } from "../format";
import { href } from "../route";
import type { FeatureFlag, Permission, Vhost } from "../types";
import { Badge, Button, ConfirmDialog, DataTable, Empty, Failure, FormDialog, Notice, Page, Section, SelectField, SortedTable, TextField } from "../ui";
import { LimitsTable } from "./users";

export function Vhosts() {
  const list = useApi<Vhost[]>("vhosts", 15_000);
  const [adding, setAdding] = useState(false);
  return (
    <Page title="Virtual hosts" actions={<Button tone="main" onClick={() => setAdding(true)}>Add a virtual host</Button>}>
      <Failure error={list.error} />
      {list.data && <SortedTable name="Virtual hosts" start="name" rows={list.data} id={(v) => v.name} columns={[
        { id: "name", title: "Name", by: (v) => v.name, cell: (v) => <><a class="mono" href={href(["admin", "vhosts", v.name])}>{v.name}</a>{v.protected_from_deletion && <> <Badge>protected</Badge></>}</> },
        { id: "description", title: "Description", by: (v) => v.description, cell: (v) => v.description || "–" },
        { id: "tags", title: "Tags", cell: (v) => v.tags.join(", ") || "–" },
        { id: "type", title: "Queues are", cell: (v) => v.default_queue_type || "classic" },
        { id: "messages", title: "Messages", num: true, by: (v) => v.messages ?? 0, cell: (v) => count(v.messages) },
        { id: "queues", title: "Look", cell: (v) => <a href={href(["queues"], { vhost: v.name })}>queues</a> },
      ]} />}
      {adding && <Edit close={() => setAdding(false)} />}
    </Page>
  );
}

function Edit({ vhost, close }: { vhost?: Vhost; close: () => void }) {
  const [name, setName] = useState(vhost?.name ?? "");
  const [description, setDescription] = useState(vhost?.description ?? "");
  const [tags, setTags] = useState(vhost?.tags.join(", ") ?? "");
  const [type, setType] = useState(vhost?.default_queue_type || "quorum");
  return (
    <FormDialog title={vhost ? `Change ${vhost.name}` : "Add a virtual host"} submit={vhost ? "Save" : "Add"} close={close} done={vhost ? `${name} is changed.` : `${name} is added; you may do everything in it.`}
      act={async () => {
        if (!vhost) await mustBeNew(`vhosts/${path(name)}`, `a virtual host ${name}`);
        await put(`vhosts/${path(name)}`, { description, tags: tags.split(",").map((t) => t.trim()).filter(Boolean).join(","), default_queue_type: type });
      }}>
      {!vhost && <TextField label="Name" value={name} set={setName} required autoFocus mono />}
      <TextField label="Description" value={description} set={setDescription} />
      <TextField label="Tags" value={tags} set={setTags} hint="with commas between them" />
      <SelectField label="Type of queues that are declared without one" value={type} set={setType} options={["quorum", "classic"]} />
    </FormDialog>
  );
}

export function VhostPage({ name }: { name: string }) {
  const at = path(name);
  const vhost = useApi<Vhost>(`vhosts/${at}`, 15_000);
  const permissions = useApi<Permission[]>(`vhosts/${at}/permissions`, 30_000);
  const [open, setOpen] = useState<"edit" | "delete">();
  const protect = useAction();
  const v = vhost.data;
  return (
    <Page title={<span class="mono">{name}</span>} sub={v?.description} actions={v && <>
      <Button onClick={() => setOpen("edit")}>Change…</Button>
      <Button busy={protect.busy} onClick={() => void protect.run(() => v.protected_from_deletion ? del(`vhosts/${at}/deletion/protection`) : post(`vhosts/${at}/deletion/protection`), v.protected_from_deletion ? `${name} can be deleted now.` : `${name} cannot be deleted now.`)}>{v.protected_from_deletion ? "Allow deletion" : "Protect from deletion"}</Button>
      <Button disabled={v.protected_from_deletion} onClick={() => setOpen("delete")}>Delete</Button></>}>
      {vhost.error?.absent ? <Empty>There is no such virtual host. <a href="#/admin/vhosts">All virtual hosts</a></Empty> : <Failure error={vhost.error} />}
      {protect.error && <Notice tone="bad">{protect.error}</Notice>}
      {v && <>
        <p><a href={href(["queues"], { vhost: name })}>Queues</a> · <a href={href(["exchanges"], { vhost: name })}>Exchanges</a> · <a href={href(["topology"], { vhost: name })}>Topology</a> · <a href={href(["admin", "policies"], { vhost: name })}>Policies</a></p>
        <Section title="Who may enter">
          {permissions.data && (permissions.data.length === 0 ? <Empty>Nobody but administrators.</Empty> : <DataTable name="Permissions" rows={permissions.data} id={(p) => p.user} columns={[
            { id: "user", title: "User", cell: (p) => <a class="mono" href={href(["admin", "users", p.user])}>{p.user}</a> }, { id: "configure", title: "Configure", cell: (p) => <span class="mono">{p.configure || "nothing"}</span> },
            { id: "write", title: "Write", cell: (p) => <span class="mono">{p.write || "nothing"}</span> }, { id: "read", title: "Read", cell: (p) => <span class="mono">{p.read || "nothing"}</span> },
          ]} />)}
        </Section>
        <LimitsTable what="vhost" name={name} known={["max-connections", "max-queues"]} />
      </>}
      {open === "edit" && v && <Edit vhost={v} close={() => setOpen(undefined)} />}
      {open === "delete" && <ConfirmDialog title={`Delete ${name}?`} name={name} submit="Delete" close={() => setOpen(undefined)} act={async () => { await del(`vhosts/${at}`); location.hash = "#/admin/vhosts"; }} done={`${name} is deleted.`}><p>Everything in it goes: queues with their messages, exchanges, bindings, policies, permissions. Its connections are closed.</p></ConfirmDialog>}
    </Page>
  );
}

export function FeatureFlags() {
  const list = useApi<FeatureFlag[]>("feature-flags", 30_000);
  const [raising, setRaising] = useState<FeatureFlag>();
  return (
    <Page title="Feature flags" sub="What the cluster may use: each is a level, and a level is for good.">
      <Failure error={list.error} />
      {list.data && <DataTable name="Feature flags" rows={list.data} id={(f) => f.name} columns={[
        { id: "name", title: "Flag", cell: (f) => <span class="mono">{f.name}</span> }, { id: "level", title: "Level", num: true, cell: (f) => f.level },
        { id: "state", title: "State", cell: (f) => <Badge tone={f.state === "enabled" ? "ok" : "plain"}>{f.state}</Badge> },
        { id: "desc", title: "For", cell: (f) => <span class="wrap">{f.desc}</span> },
        { id: "actions", title: "Change", cell: (f) => f.state === "enabled" ? "–" : <Button tone="quiet" onClick={() => setRaising(f)}>Enable…</Button> },
      ]} />}
      {raising && <FormDialog title={`Enable ${raising.name}?`} submit="Enable" close={() => setRaising(undefined)} act={() => put(`feature-flags/${path(raising.name)}/enable`)} done={`${raising.name} is enabled.`}>
        <p>{raising.desc}</p><p>Programs that do not know it can no longer be nodes of this cluster, and there is no way back.</p>
      </FormDialog>}
    </Page>
  );
}
