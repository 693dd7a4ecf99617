// Which page an address is.
import type { VNode } from "preact";
import { Channels, ConnectionPage, Connections, Consumers } from "./pages/connections";
import { DeadLetterList, Desk } from "./pages/deadletters";
import { Definitions } from "./pages/definitions";
import { ExchangePage, Exchanges } from "./pages/exchanges";
import { Overview } from "./pages/overview";
import { Policies } from "./pages/policies";
import { QueuePage } from "./pages/queue";
import { Queues } from "./pages/queues";
import { Raft } from "./pages/raft";
import { Shovels } from "./pages/shovels";
import { Topology } from "./pages/topology";
import { UserPage, Users } from "./pages/users";
import { FeatureFlags, VhostPage, Vhosts } from "./pages/vhosts";
import type { Route } from "./route";

export function routes({ parts }: Route): VNode | undefined {
  const [at = "", a, b] = parts;
  switch (at) {
    case "": return <Overview />;
    case "queues": return a !== undefined && b !== undefined ? <QueuePage vhost={a} name={b} /> : <Queues />;
    case "dead-letters": return a !== undefined && b !== undefined ? <Desk vhost={a} name={b} /> : <DeadLetterList />;
    case "exchanges": return a !== undefined && b !== undefined ? <ExchangePage vhost={a} name={b} /> : <Exchanges />;
    case "topology": return <Topology />;
    case "connections": return a !== undefined ? <ConnectionPage name={a} /> : <Connections />;
    case "channels": return <Channels />;
    case "consumers": return <Consumers />;
    case "raft": return <Raft />;
    case "admin": return admin(a, b);
  }
  return undefined;
}

function admin(what: string | undefined, name: string | undefined): VNode | undefined {
  switch (what) {
    case "users": return name !== undefined ? <UserPage name={name} /> : <Users />;
    case "vhosts": return name !== undefined ? <VhostPage name={name} /> : <Vhosts />;
    case "policies": return <Policies />;
    case "shovels": return <Shovels />;
    case "definitions": return <Definitions />;
    case "feature-flags": return <FeatureFlags />;
  }
  return undefined;
}
