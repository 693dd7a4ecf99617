package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

// queueSpec is a queue with its load.
type queueSpec struct {
	name string
	args amqp.Table
	// publishers and consumers on it.
	publishers, consumers int
	pace, work            time.Duration // longest pause of a publisher, and between settlements
	reject, requeue       int           // percent of deliveries
	ttl, prio             bool          // messages have an expiration, a priority
	transient             bool          // lives in one node's memory, and not in the oracle
	autoDelete            bool
	noAck, exclusive      bool // of its consumers
	immediate             bool // some publishes want a consumer at once
	once                  bool // publishers send again what they are not sure of
	holding               atomic.Int64
}

// phase says what clients do.
type phase int32

const (
	loading  phase = iota
	freezing       // nobody publishes or settles
	drain          // everybody acks
)

func table(kv ...any) (t amqp.Table) {
	for i := 0; i < len(kv); i += 2 {
		t.Set(kv[i].(string), kv[i+1])
	}
	return t
}

// scenarios are groups of queues that belong together. d and fan are always there.
func scenarios() [][]*queueSpec {
	const ms = time.Millisecond
	return [][]*queueSpec{
		{ // rejected messages fan out to two queues
			{name: "main", args: table("x-dead-letter-exchange", "dlx"), publishers: 2, consumers: 3, pace: 8 * ms, work: 10 * ms, reject: 30, requeue: 20},
		},
		{ // the retry loop
			{name: "work", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "wait"), publishers: 1, consumers: 2, pace: 10 * ms, work: 10 * ms, reject: 50, requeue: 5},
			{name: "wait", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "work", "x-message-ttl", int32(40))},
		},
		{ // a queue that is its own target
			{name: "self", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "self"), publishers: 1, consumers: 2, pace: 10 * ms, work: 10 * ms, reject: 50},
		},
		{ // expiry, with a slow consumer
			{name: "ttl", args: table("x-dead-letter-exchange", "dlx", "x-message-ttl", int32(50)), publishers: 2, consumers: 1, pace: 8 * ms, work: 40 * ms, requeue: 20, ttl: true},
		},
		{ // nothing expires while the run lasts, whatever a clock says
			{name: "patient", args: table("x-dead-letter-exchange", "dlx", "x-message-ttl", int32(600_000)), publishers: 1, consumers: 1, pace: 10 * ms, work: 60 * ms, requeue: 10},
		},
		{ // length limits
			{name: "head", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "d", "x-max-length", int32(10)), publishers: 1, consumers: 1, pace: 8 * ms, work: 60 * ms, requeue: 30},
			{name: "rej", args: table("x-max-length", int32(15), "x-overflow", "reject-publish"), publishers: 1, consumers: 1, pace: 8 * ms, work: 40 * ms, requeue: 10},
			{name: "rejdlx", args: table("x-max-length", int32(5), "x-overflow", "reject-publish-dlx", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "d"), publishers: 1, consumers: 1, pace: 8 * ms, work: 40 * ms},
		},
		{ // a target that is full most of the time
			{name: "feeder", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "full"), publishers: 1, consumers: 2, pace: 10 * ms, work: 10 * ms, reject: 70},
			{name: "full", args: table("x-max-length", int32(5), "x-overflow", "reject-publish"), consumers: 1, work: 40 * ms},
		},
		{ // the delivery limit
			{name: "lim", args: table("x-queue-type", "quorum", "x-delivery-limit", int32(2), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "d"), publishers: 1, consumers: 2, pace: 10 * ms, work: 10 * ms, requeue: 60},
		},
		{ // source and target come and go
			{name: "churn", args: table("x-dead-letter-on-removal", true, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "churnd"), publishers: 2, consumers: 2, pace: 8 * ms, work: 10 * ms, reject: 60},
			{name: "churnd", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "d"), consumers: 1, work: 20 * ms, reject: 50},
		},
		{ // dead letters whose way changes while they wait for room
			{name: "turn", args: table("x-dead-letter-strategy", "at-least-once"), publishers: 1, consumers: 2, pace: 8 * ms, work: 10 * ms, reject: 70},
			{name: "turna", args: table("x-max-length", int32(3), "x-overflow", "reject-publish"), consumers: 1, work: 60 * ms},
			{name: "turnb", args: table("x-max-length", int32(3), "x-overflow", "reject-publish"), consumers: 1, work: 60 * ms},
		},
		{ // a route that comes and goes, and nothing may be dropped
			{name: "alo", args: table("x-dead-letter-exchange", "alo", "x-dead-letter-strategy", "at-least-once"), publishers: 1, consumers: 2, pace: 10 * ms, work: 10 * ms, reject: 60},
		},
		{ // a queue in one node's memory, with dead letters into a replicated one
			{name: "temp", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "d"), transient: true, publishers: 2, consumers: 2, pace: 8 * ms, work: 10 * ms, reject: 30, requeue: 10},
		},
		{ // deleted when its last consumer goes, and by its own time to live
			{name: "auto", args: table("x-dead-letter-exchange", "dlx", "x-dead-letter-on-removal", true), autoDelete: true, publishers: 1, consumers: 2, pace: 10 * ms, work: 20 * ms, reject: 30},
			{name: "brief", args: table("x-expires", int32(300), "x-dead-letter-exchange", "dlx"), publishers: 1, consumers: 1, pace: 10 * ms, work: 20 * ms, reject: 30},
		},
		{ // consumers that ack nothing, and such that want to be alone
			{name: "noack", publishers: 2, consumers: 2, pace: 8 * ms, work: 10 * ms, noAck: true},
			{name: "alone", publishers: 1, consumers: 3, pace: 10 * ms, work: 10 * ms, requeue: 20, exclusive: true},
		},
		{ // returned messages that wait
			{name: "later", args: table("x-delayed-retry-type", "all", "x-delayed-retry-min", int32(40), "x-delayed-retry-max", int32(200), "x-delayed-retry-multiplier", int32(2), "x-delivery-limit", int32(3), "x-dead-letter-exchange", "dlx"), publishers: 2, consumers: 2, pace: 10 * ms, work: 10 * ms, requeue: 50},
		},
		{ // one consumer at a time, and messages that want one at once
			{name: "single", args: table("x-single-active-consumer", true), publishers: 2, consumers: 3, pace: 8 * ms, work: 10 * ms, requeue: 10},
			{name: "now", publishers: 2, consumers: 2, pace: 8 * ms, work: 10 * ms, requeue: 10, immediate: true},
		},
		{ // dead letters that are sent back
			{name: "sick", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", morgue), publishers: 2, consumers: 2, pace: 8 * ms, work: 10 * ms, reject: 60, requeue: 10},
			{name: "old", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", morgue, "x-message-ttl", int32(60)), publishers: 1, consumers: 1, pace: 10 * ms, work: 60 * ms},
			{name: morgue, consumers: 1, work: 60 * ms, requeue: 50},
		},
		{ // expired messages that stay rather than go round, or have gone too far
			{name: "clock", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "clockw", "x-message-ttl", int32(40), "x-dead-letter-cycle", "stop-ttl"), publishers: 2, consumers: 1, pace: 8 * ms, work: 40 * ms, reject: 40, requeue: 20},
			{name: "clockw", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "clock", "x-message-ttl", int32(30), "x-dead-letter-cycle", "stop-ttl", "x-dead-letter-max-hops", int32(3)), consumers: 1, work: 60 * ms, reject: 30, requeue: 20},
		},
		{ // a queue whose time to live is not for dead letters
			{name: "spare", args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", keeper), publishers: 1, consumers: 2, pace: 8 * ms, work: 10 * ms, reject: 60},
			{name: keeper, args: table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "d", "x-message-ttl", int32(30), "x-message-ttl-dead-letters", false), publishers: 1, consumers: 1, pace: 8 * ms, work: 60 * ms, requeue: 20},
		},
		{ // publishers that send again, and queues that drop what they have
			{name: "once", args: table("x-deduplication-window", int32(600_000)), once: true, publishers: 3, consumers: 1, pace: 8 * ms, work: 20 * ms, requeue: 20},
			{name: "oncedl", args: table("x-deduplication-window", int32(600_000), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "once", "x-message-ttl", int32(60)), once: true, publishers: 2, consumers: 1, pace: 8 * ms, work: 40 * ms, reject: 40},
		},
		{ // priorities
			{name: "prio", args: table("x-max-priority", int32(5)), publishers: 2, consumers: 1, pace: 8 * ms, work: 20 * ms, requeue: 20, prio: true},
		},
	}
}

// state of a run beside the world's parts.
type runState struct {
	phase   atomic.Int32
	holding atomic.Int64
	done    atomic.Bool
	specs   []*queueSpec
}

func (w *World) loading() bool  { return phase(w.state.phase.Load()) == loading }
func (w *World) frozen() bool   { return phase(w.state.phase.Load()) == freezing }
func (w *World) draining() bool { return phase(w.state.phase.Load()) == drain }

// Run runs one world to its end and reports every broken promise. It must be called in
// a synctest bubble.
func Run(cfg Config) error {
	w := newWorld(cfg)
	defer w.close()
	w.choose()
	if err := w.declare(); err != nil {
		return err
	}
	for i, q := range w.state.specs {
		for k := range q.publishers {
			w.work.Go(func() { w.publisher(10*i+k, q) })
		}
		for range q.consumers {
			w.work.Go(func() { w.consumer(q, &w.state.done) })
		}
	}
	for i := range 2 {
		w.work.Go(func() { w.transactor(i) })
	}
	if w.spec(morgue) != nil {
		w.work.Go(w.undertaker)
	}
	if cfg.Calm {
		w.sleep(cfg.Load)
	} else {
		w.nemesis(cfg.Load)
	}
	w.state.phase.Store(int32(freezing))
	w.heal()
	w.await("publishes to be answered", 60*time.Second, func() string {
		if n, p := w.led.waiting(); n > 0 {
			return fmt.Sprintf("%d, such as %s to %s on %s since %v", n, p.body, p.queue, p.node, time.Since(p.at))
		}
		return ""
	})
	w.await("counts to agree", 40*time.Second, w.countsDiffer)
	w.state.phase.Store(int32(drain))
	w.await("queues to drain", 180*time.Second, w.notDrained)
	w.state.done.Store(true)
	w.check()
	w.summary()
	return w.failed()
}

// summary logs what the run has done.
func (w *World) summary() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var entries, terms uint64
	for _, g := range w.groups {
		entries += uint64(len(g.log))
		terms += g.term
	}
	w.led.mu.Lock()
	defer w.led.mu.Unlock()
	var states [unrouted + 1]int
	for _, p := range w.led.publishes {
		states[p.state]++
	}
	var duplicates uint64
	for _, q := range w.oracle.queues {
		duplicates += q.m.Counters().Duplicates
	}
	again := 0
	for _, s := range w.led.delivered {
		again += s.n - 1
	}
	w.log.Info("run ended", "seed", w.cfg.Seed, "entries", entries, "terms", terms, "confirmed", states[confirmed], "refused", states[refused],
		"unknown", states[unknown], "delivered", len(w.led.delivered), "again", again, "dead", len(w.oracle.legs), "planned", w.oracle.plans, "withdrawn", w.oracle.withdrawals(), "catalog", w.cat.committed(), "duplicates", duplicates)
}

// choose picks the scenarios of this seed.
func (w *World) choose() {
	all := scenarios()
	n := 3
	for range n {
		i := w.rand(len(all))
		w.state.specs = append(w.state.specs, all[i]...)
		all = append(all[:i], all[i+1:]...)
	}
	w.state.specs = append(w.state.specs,
		&queueSpec{name: "d", consumers: 1, work: 20 * time.Millisecond, requeue: 10},
		&queueSpec{name: "fan", consumers: 1, work: 20 * time.Millisecond, requeue: 10},
	)
}

func (w *World) declare() error {
	c := w.dial(w.nodes[0])
	defer c.close()
	for _, x := range []string{"dlx", "alo", "turn"} {
		if err := c.conn.DeclareExchange(c.life, broker.ExchangeDeclare{Name: x, Type: "fanout", Durable: true}); err != nil {
			return err
		}
	}
	for _, q := range w.state.specs {
		err := c.declare(q)
		for range 20 {
			var e *broker.Error
			if q.name != "brief" || !errors.As(err, &e) || e.Kind != broker.NotFound {
				break
			}
			err = c.declare(q) // it expired before the catalog copy showed it
		}
		if err != nil {
			return fmt.Errorf("declare %s: %w", q.name, err)
		}
	}
	if w.spec("turn") != nil {
		w.turn()
	}
	// What asks for a delay waits on its way to fan.
	late := broker.ExchangeDeclare{Name: "late", Type: "x-delayed-message", Durable: true, Arguments: amqp.Table{{Name: "x-delayed-type", Value: "fanout"}}}
	if err := c.conn.DeclareExchange(c.life, late); err != nil {
		return err
	}
	for _, bd := range []broker.Binding{{Source: "dlx", Destination: "d"}, {Source: "dlx", Destination: "late", ToExchange: true}, {Source: "late", Destination: "fan"}} {
		if err := c.conn.Bind(c.life, bd); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) declare(q *queueSpec) error {
	_, err := c.conn.DeclareQueue(c.life, broker.QueueDeclare{
		Name: q.name, Durable: !q.transient, AutoDelete: q.autoDelete, Arguments: q.args,
	})
	return err
}

// await polls until what is missing is "".
func (w *World) await(what string, limit time.Duration, missing func() string) {
	deadline := time.Now().Add(limit)
	for {
		m := missing()
		if m == "" {
			return
		}
		if time.Now().After(deadline) {
			w.problem("waited in vain for %s: %s%s", what, m, w.describe(m))
			return
		}
		w.sleep(50 * time.Millisecond)
	}
}

// describe adds what the nodes say about the queues named in a complaint.
func (w *World) describe(complaint string) string {
	w.mu.Lock()
	var ids []uint64
	for _, g := range w.sortedGroups() {
		if name := w.oracle.queues[g.id].m.Name(); name != "" && strings.Contains(complaint, name) {
			ids = append(ids, g.id)
		}
	}
	w.mu.Unlock()
	var b strings.Builder
	for _, id := range ids {
		for _, n := range w.nodes {
			if br := n.broker(); br != nil {
				fmt.Fprintf(&b, "\n  %d on %s (%d): %s", id, n.id, n.number, strings.ReplaceAll(br.Describe(id), "\n", "\n    "))
			}
		}
	}
	return b.String()
}

// countsDiffer compares what each queue's leader says with the oracle and the clients.
func (w *World) countsDiffer() string {
	n := w.nodes[w.rand(len(w.nodes))]
	b := n.broker()
	if b == nil {
		return "node is down"
	}
	if n.copy.View().Revision() < w.cat.committed() {
		return "the catalog copy of " + n.id + " is behind"
	}
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
	infos := b.Queues(ctx)
	cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range infos {
		if i.State != "running" {
			continue
		}
		if i.Error != "" {
			return fmt.Sprintf("queue %s: %s", i.Name, i.Error)
		}
		var spec *queueSpec
		for _, q := range w.state.specs {
			if q.name == i.Name {
				spec = q
			}
		}
		if spec != nil && spec.transient {
			continue
		}
		o := w.oracle.queues[i.ID]
		if o == nil {
			return fmt.Sprintf("queue %s has no log", i.Name)
		}
		if int(i.Ready+i.Delayed+i.Unacked) != o.m.Queue().Len()-len(o.m.Leaving()) || int(i.Outbox) != o.m.Outbox().Len() {
			return fmt.Sprintf("queue %s: %d ready, %d unacked, %d in the outbox; the log has %d and %d",
				i.Name, i.Ready, i.Unacked, i.Outbox, o.m.Queue().Len(), o.m.Outbox().Len())
		}
		// Clients may hold more: what a leader took back because it thought their node dead.
		if spec == nil {
			continue // a delayed exchange's
		}
		if held := spec.holding.Load(); int64(i.Unacked) > held {
			return fmt.Sprintf("queue %s: %d unacked, clients hold %d", i.Name, i.Unacked, held)
		}
	}
	return ""
}

// notDrained names what is left in the queues and outboxes.
func (w *World) notDrained() string {
	if w.nodes[0].copy.View().Revision() < w.cat.committed() {
		return "the catalog copy of the first node is behind"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []string
	for _, g := range w.sortedGroups() {
		q := w.oracle.queues[g.id]
		if w.nodes[0].copy.View().QueueByID(g.id) == nil {
			continue // gone; a node that was down does not wipe its replica here
		}
		if q.m.Closed() {
			left = append(left, fmt.Sprintf("%d (%s) is closing, outbox %d, leader %s", g.id, q.m.Name(), q.m.Outbox().Len(), g.leader))
			continue
		}
		if r := q.m.Redriving(); r.Searching() {
			left = append(left, fmt.Sprintf("%d (%s) redrives %d of %d", g.id, q.m.Name(), r.Cursor, r.Tail))
		}
		if q.m.Queue().Len()+q.m.Outbox().Len() == 0 {
			continue
		}
		o := q.m.Outbox()
		left = append(left, fmt.Sprintf("%d (%s): %d live, outbox %d unrouted %d routed %d parked, leader %s", g.id, q.m.Name(), q.m.Queue().Len(),
			o.Count(dlx.Unrouted), o.Count(dlx.Routed), o.Count(dlx.ParkedUnrouted)+o.Count(dlx.ParkedCycle), g.leader))
	}
	return strings.Join(left, "; ")
}

// notClosed names the queues that are being deleted and whose log does not say so.
func (w *World) notClosed() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []string
	for _, g := range w.sortedGroups() {
		q := w.oracle.queues[g.id]
		if e := w.nodes[0].copy.View().QueueByID(g.id); e != nil && e.State == catalog.Closing && !q.m.Closed() {
			left = append(left, fmt.Sprintf("%d (%s)", g.id, q.m.Name()))
		}
	}
	return strings.Join(left, "; ")
}

// check looks at the end: everything is delivered, all replicas agree.
func (w *World) check() {
	w.await("deleted queues to close", 10*time.Second, w.notClosed)
	w.await("redrives to end", 10*time.Second, w.notRedriven)
	w.await("replicas to catch up", 10*time.Second, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, g := range w.sortedGroups() {
			for id, m := range g.replicas {
				if m.applied != uint64(len(g.log)) {
					return fmt.Sprintf("queue %d on %s: %d of %d", g.id, id, m.applied, len(g.log))
				}
			}
		}
		return ""
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.sortedGroups() {
		want := w.oracle.queues[g.id].m.Hash()
		for id, m := range g.replicas {
			m.r.View(func(f *fsm.Machine) {
				if f.Index() == uint64(len(g.log)) && f.Hash() != want {
					w.problem("queue %d: replica on %s differs from the log", g.id, id)
				}
			})
		}
	}
	w.checkPublishes()
	w.checkTxs()
	w.checkLegs()
	w.checkRemoved()
	for _, q := range w.oracle.queues {
		if c := q.m.Counters(); q.m.Settings().Delayed && c.Moved != c.Published+c.Transferred {
			w.problem("queue %d of a delayed exchange took %d and passed %d on", q.id, c.Published+c.Transferred, c.Moved)
		}
	}
}

// checkPublishes compares the fates clients were told with the logs.
func (w *World) checkPublishes() {
	byName := map[string][]*oracleQueue{}
	for _, q := range w.oracle.queues {
		byName[q.m.Name()] = append(byName[q.m.Name()], q)
	}
	for _, p := range w.led.publishes {
		if q := w.spec(p.queue); q != nil && q.transient {
			continue
		}
		n, open, closed := 0, 0, false
		for _, q := range byName[p.queue] {
			here := w.oracle.published[placed{p.body, q.id}]
			if n += here; q.m.Closed() {
				closed = true
			} else {
				open += here
			}
		}
		switch {
		case n > 1:
			w.problem("message %s is %d times in %s", p.body, n, p.queue)
		case p.state == confirmed && n != 1 && !closed:
			w.problem("message %s was confirmed on %s and is not in %s%s", p.body, p.node, p.queue, w.logsNamed(p.queue))
		// What a queue took before it was deleted is refused, too, if it had no answer when another one had the name.
		case p.state == refused && open != 0 || p.state == unrouted && n != 0:
			w.problem("message %s was refused and is in %s", p.body, p.queue)
		}
	}
}

// logsNamed tells which queues there were of a name, and how many that took no entry.
func (w *World) logsNamed(name string) string {
	var b strings.Builder
	nameless := 0
	for id, q := range w.oracle.queues {
		switch q.m.Name() {
		case name:
			c := q.m.Counters()
			fmt.Fprintf(&b, "; queue %d has %d entries, %d published, closed %v", id, q.m.Index(), c.Published, q.m.Closed())
			if e := w.nodes[0].copy.View().QueueByID(id); e != nil {
				fmt.Fprintf(&b, ", state %v in the catalog", e.State)
			}
		case "":
			nameless++
		}
	}
	fmt.Fprintf(&b, "; %d without a name", nameless)
	return b.String()
}

// checkLegs looks at each dead letter's way into each target.
func (w *World) checkLegs() {
	for key, body := range w.oracle.legs {
		t := w.oracle.queues[key.target]
		if t == nil {
			continue
		}
		wm := w.oracle.watermark(key.source, t)
		if wm < key.seq && !t.m.Closed() {
			w.problem("dead letter %s from %d never came into %d (%s): sequence %d, watermark %d", body, key.source, key.target, t.m.Name(), key.seq, wm)
		}
	}
}
