package sim

import (
	"sync"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/policy"
)

// nemesis does harm for a while.
func (w *World) nemesis(d time.Duration) {
	end := time.Now().Add(d)
	var faults sync.WaitGroup
	rest := 120 * time.Millisecond
	if w.cfg.Storm {
		rest = 25 * time.Millisecond
	}
	faults.Go(func() { w.flap(end) })
	for time.Now().Before(end) && w.sleep(w.between(5*time.Millisecond, rest)) {
		switch w.rand(12) {
		case 0, 1, 2:
			w.moveLeader()
		case 3, 4:
			faults.Go(w.breakLink)
		case 5:
			faults.Go(w.isolate)
		case 6:
			if w.allUp() && w.oneIn(8) {
				for _, n := range w.nodes {
					faults.Go(func() { w.crashNode(n) })
				}
				w.sleep(time.Millisecond)
			} else if w.allUp() {
				faults.Go(w.crashOne)
				w.sleep(time.Millisecond)
			}
		case 7:
			w.lapseLease()
		case 8, 9:
			faults.Go(w.churn)
		case 10:
			faults.Go(w.rebind)
			faults.Go(w.rebind)
		case 11:
			faults.Go(w.purge)
		}
	}
	faults.Wait()
}

func (w *World) allUp() bool {
	for _, n := range w.nodes {
		if !n.isUp() {
			return false
		}
	}
	return true
}

// flap gives the at-least-once queue a second route and takes it away, again and again, seldom the first
// one, and moves its leader in between: to nodes whose copies of the catalog are behind, too. (Letters
// that wait for a way, as those without one do, keep others from going by a plan.)
func (w *World) flap(end time.Time) {
	if w.spec("alo") == nil {
		return
	}
	for time.Now().Before(end) && w.sleep(w.between(5*time.Millisecond, 80*time.Millisecond)) {
		route := catalog.Binding{Vhost: "/", Source: "alo", Destination: "fan"}
		if w.oneIn(16) {
			route.Destination = "d"
		}
		if w.oneIn(2) {
			w.cat.append(&catalog.Unbind{Binding: route})
		} else {
			w.cat.append(&catalog.Bind{Binding: route})
		}
		if w.oneIn(3) {
			w.moveLeaderOf("alo")
		}
	}
}

func (w *World) moveLeaderOf(name string) {
	view := w.nodes[0].copy.View()
	w.mu.Lock()
	defer w.mu.Unlock()
	q := view.Queue("/", name)
	if q == nil || w.groups[q.ID] == nil {
		return
	}
	g := w.groups[q.ID]
	id := g.members[w.rand(len(g.members))]
	if g.replicas[id] != nil && g.quorum(id) {
		g.elect(id)
	}
}

func (w *World) moveLeader() {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.sortedGroups()
	if len(list) == 0 {
		return
	}
	g := list[w.rand(len(list))]
	id := g.members[w.rand(len(g.members))]
	if g.replicas[id] != nil && g.quorum(id) {
		g.elect(id)
	}
}

// lapseLease takes a leader's lease away for a moment.
func (w *World) lapseLease() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.sortedGroups() {
		m := g.replicas[g.leader]
		if m == nil || !w.oneIn(3) {
			continue
		}
		m.lapsed = true
		w.work.Go(func() {
			w.sleep(w.between(0, 200*time.Millisecond))
			w.mu.Lock()
			m.lapsed = false
			w.mu.Unlock()
		})
	}
}

func (w *World) pair() (from, to *node) {
	i := w.rand(len(w.nodes))
	k := (i + 1 + w.rand(len(w.nodes)-1)) % len(w.nodes)
	return w.nodes[i], w.nodes[k]
}

// breakLink cuts one direction; the sender may take the receiver for dead.
func (w *World) breakLink() {
	from, to := w.pair()
	l := w.net.link(from.id, to.id)
	l.cutOff()
	if w.oneIn(2) {
		w.sleep(w.between(0, 10*time.Millisecond))
	} else {
		w.sleep(w.between(100*time.Millisecond, 300*time.Millisecond))
		if w.oneIn(2) {
			from.judge(to.id, true)
			w.sleep(w.between(0, 500*time.Millisecond))
		}
	}
	l.mend()
}

// isolate cuts a node off from all others, both ways.
func (w *World) isolate() {
	n := w.nodes[w.rand(len(w.nodes))]
	w.net.nodeDown(n.id)
	w.sleep(w.between(10*time.Millisecond, 400*time.Millisecond))
	if w.oneIn(2) {
		for _, o := range w.nodes {
			if o != n {
				o.judge(n.id, true)
				n.judge(o.id, true)
			}
		}
		w.sleep(w.between(0, 800*time.Millisecond))
	}
	w.net.nodeUp(n.id)
}

func (w *World) crashOne() {
	w.crashNode(w.nodes[w.rand(len(w.nodes))])
}

func (w *World) crashNode(n *node) {
	if !n.crash() {
		return
	}
	w.sleep(w.between(10*time.Millisecond, 200*time.Millisecond))
	told := w.oneIn(5) // so quick that nobody notices
	if !told {
		for _, o := range w.nodes {
			if o != n {
				o.judge(n.id, true)
			}
		}
		w.sleep(w.between(0, 800*time.Millisecond))
	}
	n.restart()
}

// admin runs f with a client on some node.
func (w *World) asClient(f func(c *client)) {
	n := w.nodes[w.rand(len(w.nodes))]
	c := w.dial(n)
	if c == nil {
		return
	}
	n.mu.Lock()
	work := n.work
	work.Add(1)
	n.mu.Unlock()
	defer work.Done()
	f(c)
	if c.life.Err() == nil {
		c.close()
	}
}

func (w *World) spec(name string) *queueSpec {
	for _, q := range w.state.specs {
		if q.name == name {
			return q
		}
	}
	return nil
}

// churn deletes a queue and declares it again.
func (w *World) churn() {
	q := w.spec([]string{"churn", "churnd"}[w.rand(2)])
	if q == nil {
		return
	}
	w.asClient(func(c *client) {
		if _, err := c.conn.DeleteQueue(c.life, q.name, false, false); err != nil {
			w.expected(c, err, "delete "+q.name)
		}
		pause(c.life, w.between(0, 100*time.Millisecond))
	})
	w.redeclare(q)
}

func (w *World) redeclare(q *queueSpec) {
	w.asClient(func(c *client) {
		if err := c.declare(q); err != nil {
			w.expected(c, err, "declare "+q.name)
		}
	})
}

// rebind takes a route of an at-least-once queue away or gives it back.
func (w *World) rebind() {
	var routes []broker.Binding
	if w.spec("alo") != nil {
		routes = append(routes, broker.Binding{Source: "alo", Destination: "d"})
	}
	if w.spec("turn") != nil {
		routes = append(routes, broker.Binding{Source: "turn", Destination: "turna"}, broker.Binding{Source: "turn", Destination: "turnb"})
	}
	if len(routes) == 0 {
		return
	}
	if w.spec("turn") != nil && w.oneIn(2) {
		w.turn()
		return
	}
	b := routes[w.rand(len(routes))]
	w.asClient(func(c *client) {
		f := c.conn.Bind
		if w.oneIn(2) {
			f = c.conn.Unbind
		}
		if err := f(c.life, b); err != nil {
			w.expected(c, err, "rebind")
		}
	})
}

// turn sends the dead letters of the queue turn another way, by a policy.
func (w *World) turn() {
	way := amqp.Table{{Name: "dead-letter-exchange", Value: "turn"}}
	if i := w.rand(4); i < 3 {
		way = table("dead-letter-exchange", "", "dead-letter-routing-key", []string{"turna", "turnb", "d"}[i])
	}
	w.cat.append(&catalog.PutPolicy{Policy: policy.Spec{VHost: "/", Name: "turn", Pattern: "^turn$", ApplyTo: policy.Queues, Definition: way}})
}

func (w *World) purge() {
	q := w.state.specs[w.rand(len(w.state.specs))]
	w.asClient(func(c *client) {
		if _, err := c.conn.PurgeQueue(c.life, q.name); err != nil {
			w.expected(c, err, "purge "+q.name)
		}
	})
}

// heal brings back everything the scenarios need.
func (w *World) heal() {
	w.sleep(500 * time.Millisecond)
	for _, q := range w.state.specs {
		for w.ctx.Err() == nil {
			var err error
			w.asClient(func(c *client) { err = c.declare(q) })
			if err == nil {
				break
			}
			if !w.sleep(100 * time.Millisecond) {
				return
			}
		}
	}
	for source, destination := range map[string]string{"alo": "d", "turn": "turna"} {
		if w.spec(source) == nil {
			continue
		}
		w.asClient(func(c *client) {
			if err := c.conn.Bind(c.life, broker.Binding{Source: source, Destination: destination}); err != nil {
				w.problem("bind: %v", err)
			}
		})
	}
}
