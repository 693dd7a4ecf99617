// Which page an address is.
import type { VNode } from "preact";
import { DeadLetterList, Desk } from "./pages/deadletters";
import { ExchangePage, Exchanges } from "./pages/exchanges";
import { Overview } from "./pages/overview";
import { QueuePage } from "./pages/queue";
import { Queues } from "./pages/queues";
import { Topology } from "./pages/topology";
import type { Route } from "./route";

export function routes({ parts }: Route): VNode | undefined {
  const [at = "", a, b] = parts;
  switch (at) {
    case "": return <Overview />;
    case "queues": return a !== undefined && b !== undefined ? <QueuePage vhost={a} name={b} /> : <Queues />;
    case "dead-letters": return a !== undefined && b !== undefined ? <Desk vhost={a} name={b} /> : <DeadLetterList />;
    case "exchanges": return a !== undefined && b !== undefined ? <ExchangePage vhost={a} name={b} /> : <Exchanges />;
    case "topology": return <Topology />;
  }
  return undefined;
}
