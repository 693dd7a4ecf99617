// Where the nodes of a directed picture go: layers from left to right, few crossings.

export interface Node { id: string }
export interface Edge { from: string; to: string }
export interface Place { x: number; y: number }

/** The layer of each node: longest way from a node that nothing leads to. Edges that close a circle do not count. */
function layers(ids: string[], edges: Edge[]): Map<string, number> {
  const next = new Map<string, string[]>(ids.map((id) => [id, []]));
  const into = new Map<string, number>(ids.map((id) => [id, 0]));
  for (const e of edges) {
    next.get(e.from)?.push(e.to);
    into.set(e.to, (into.get(e.to) ?? 0) + 1);
  }
  // An order in which all edges but those that close circles lead forward: by depth, without recursion, since ways can be long.
  const state = new Map<string, 1 | 2>();
  const order: string[] = [];
  const back = new Set<string>();
  const roots = [...ids].sort((a, b) => (into.get(a) ?? 0) - (into.get(b) ?? 0));
  for (const root of roots) {
    if (state.has(root)) continue;
    const stack: { id: string; at: number }[] = [{ id: root, at: 0 }];
    state.set(root, 1);
    while (stack.length > 0) {
      const top = stack.at(-1)!;
      const to = next.get(top.id)![top.at++];
      if (to === undefined) {
        state.set(top.id, 2);
        order.push(top.id);
        stack.pop();
      } else if (state.get(to) === 1) back.add(`${top.id}\n${to}`);
      else if (!state.has(to)) {
        state.set(to, 1);
        stack.push({ id: to, at: 0 });
      }
    }
  }
  const layer = new Map<string, number>(ids.map((id) => [id, 0]));
  for (const id of order.reverse()) {
    for (const to of next.get(id)!) {
      if (!back.has(`${id}\n${to}`)) layer.set(to, Math.max(layer.get(to)!, layer.get(id)! + 1));
    }
  }
  return layer;
}

const sweeps = 6;

/** Places for nodes, dx between layers and dy between neighbours. Edges to nodes that are not there do not count. */
export function layout(ids: string[], all: Edge[], dx: number, dy: number): { places: Map<string, Place>; width: number; height: number } {
  const known = new Set(ids);
  const edges = all.filter((e) => known.has(e.from) && known.has(e.to) && e.from !== e.to);
  const layer = layers(ids, edges);
  const rows: string[][] = [];
  for (const id of [...ids].sort()) (rows[layer.get(id)!] ??= []).push(id);
  const near = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const e of edges) {
    near.get(e.from)!.push(e.to);
    near.get(e.to)!.push(e.from);
  }
  const tallest = Math.max(1, ...rows.map((r) => r.length));
  const y = new Map<string, number>();
  const spread = (row: string[]) => row.forEach((id, i) => y.set(id, i + (tallest - row.length) / 2));
  rows.forEach(spread);
  for (let s = 0; s < sweeps; s++) {
    for (const row of s % 2 === 0 ? rows : [...rows].reverse()) {
      const wish = new Map(row.map((id) => {
        const others = near.get(id)!.filter((o) => layer.get(o) !== layer.get(id));
        return [id, others.length > 0 ? others.reduce((n, o) => n + y.get(o)!, 0) / others.length : y.get(id)!];
      }));
      row.sort((a, b) => wish.get(a)! - wish.get(b)! || (a < b ? -1 : 1));
      spread(row);
    }
  }
  return { places: new Map(ids.map((id) => [id, { x: layer.get(id)! * dx, y: y.get(id)! * dy }])), width: rows.length * dx, height: tallest * dy };
}
