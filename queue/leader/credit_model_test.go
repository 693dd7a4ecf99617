package leader

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// world is a leader without its goroutine, a log that applies when it is told to, and nodes that do what the broker's do: they
// count, say everything again, lose messages, die or are thought dead.
type world struct {
	rapid.TB
	t     *rapid.T // who draws
	l     *Leader
	log   *MemLog
	kept  [][]byte // proposed, not yet applied
	now   int64
	nodes []*modelNode
	spare []any
	// set are the queue's settings, of the catalog revision rev.
	set queue.Settings
	rev uint64
	// leaseless: the leader may not deliver. crowded is a node whose link has no room.
	leaseless bool
	crowded   string
	// calm: nothing was lost and nobody thought dead, so that clients have no more than their prefetch.
	calm bool
}

type modelNode struct {
	Node
	ops       []fsm.Op // from the process's first
	answered  uint64
	resyncs   uint64
	session   uint64 // the newest that is known
	consumers map[wire.ConsumerNo]*wire.Consumer
	numbers   wire.ConsumerNo
	held      map[queue.MessageID]*modelHold
	had       map[wire.ConsumerNo]map[queue.MessageID]bool // what a consumer's client has seen, and whether it is urgent
	inbox     []wire.Message
}

type modelHold struct {
	no      wire.ConsumerNo
	attempt uint32
	settled uint64
}

func (w *world) Propose(data []byte, _ func(error))   { w.kept = append(w.kept, data) }
func (w *world) Read(index uint64) ([]byte, error)    { return w.log.Read(index) }
func (w *world) HasLease() bool                       { return !w.leaseless }
func (w *world) receive(n *modelNode, m wire.Message) { w.l.Receive(n.ID, m) }

// drawWorld makes a world with settings at random.
func drawWorld(t *rapid.T) *world {
	w := newWorld(t, drawSettings(t), func(c *Config) {
		c.Single = rapid.Bool().Draw(t, "single")
		c.acksLinger = rapid.SampledFrom([]time.Duration{1, time.Hour}).Draw(t, "linger")
	})
	w.t = t
	return w
}

func drawSettings(t *rapid.T) queue.Settings {
	set := plain()
	set.MaxPriority = 1
	set.DeliveryLimit = rapid.SampledFrom([]int64{-1, 1}).Draw(t, "delivery limit")
	if rapid.Bool().Draw(t, "delays") {
		set.Retry = queue.RetryDelay{On: rapid.SampledFrom([]queue.RetryOn{queue.RetryAll, queue.RetryFailed, queue.RetryReturned}).Draw(t, "of"), MinMillis: 20, MaxMillis: 20}
	}
	switch rapid.IntRange(0, 5).Draw(t, "limits") {
	case 0, 1:
		set.MaxLength, set.Overflow = 3, queue.RejectPublish
	case 2:
		set.MaxLength, set.Overflow = 3, queue.DropHead
	case 3:
		set.MaxLengthBytes, set.Overflow = 8, queue.DropHead
	case 4:
		set.MaxLengthBytes, set.Overflow = 8, queue.RejectPublishDLX
	}
	if rapid.IntRange(0, 3).Draw(t, "all expire") == 0 {
		set.MessageTTLMillis = 40
	}
	if rapid.Bool().Draw(t, "deduplication") {
		set.Dedup = queue.Dedup{WindowMillis: 60, Size: 2}
	}
	set.DeadLetter = rapid.Bool().Draw(t, "dead letters")
	set.StopTTL = rapid.Bool().Draw(t, "expired ones may stay")
	return set
}

func newWorld(t rapid.TB, set queue.Settings, change func(*Config)) *world {
	w := &world{TB: t, now: 1000, calm: true, set: set, rev: 1}
	for i := range uint32(2) {
		w.nodes = append(w.nodes, newModelNode(node(i+1)))
	}
	r := NewReplica()
	w.log = NewMemLog(r)
	cfg := Config{
		Queue: 7, Log: w, Session: 1, Logger: slog.New(slog.DiscardHandler),
		Send: func(to string, m wire.Message) {
			for _, n := range w.nodes {
				if n.ID == to {
					n.inbox = append(n.inbox, m)
				}
			}
		},
		LiveNodes: func() (list []Node) {
			for _, n := range w.nodes {
				list = append(list, n.Node)
			}
			return list
		},
		Now:             func() int64 { return w.now },
		Settings:        func() (queue.Settings, uint64, string, string) { return w.set, w.rev, "/", "q" },
		CatalogRevision: func() uint64 { return w.rev },
		SourceExists:    func(uint64) bool { return true },
		Room:            func(node string) bool { return node != w.crowded },
		StartMover:      func(*Leader) Mover { return idleMover{} },
	}
	change(&cfg)
	w.l = newLeader(r, cfg)
	w.l.begin()
	w.apply()
	w.work()
	return w
}

func newModelNode(n Node) *modelNode {
	return &modelNode{Node: n, consumers: map[wire.ConsumerNo]*wire.Consumer{}, held: map[queue.MessageID]*modelHold{}, had: map[wire.ConsumerNo]map[queue.MessageID]bool{}}
}

// work lets the leader do what it can, and checks it.
func (w *world) work() {
	w.spare = w.l.work(w.spare)
	if w.l.over {
		w.Fatal("the session is over")
	}
	w.check()
}

// check compares what is counted with the holds.
func (w *world) check() {
	l := w.l
	unacked := map[consumerKey]uint32{}
	named, back, bytes := 0, 0, int64(0)
	var namedSize, condemned int64
	for id, h := range l.held {
		if !h.free {
			unacked[consumerKey{h.node, h.no}]++
		}
		if h.named {
			named++
		}
		if h.back {
			back++
		}
		if h.named && !h.back && !h.free {
			w.Fatalf("message %d: the credit of what is settled for good is not back", id)
		}
		bytes += int64(h.bytes)
		if h.named {
			namedSize += int64(h.bytes)
		}
	}
	for id, b := range l.limits.condemned {
		if _, both := l.held[id]; both {
			w.Fatalf("message %d is held, and named to die", id)
		}
		bytes += int64(b)
		condemned += int64(b)
	}
	for k, c := range l.consumers.byKey {
		if c.unacked != unacked[k] {
			w.Fatalf("consumer %v: unacked %d, of its holds %d count; %s", k, c.unacked, unacked[k], l.describe())
		}
	}
	if l.named != named || l.single.returning != back || l.limits.heldBytes != bytes {
		w.Fatalf("named %d, back %d, bytes %d; counted %d, %d, %d", named, back, bytes, l.named, l.single.returning, l.limits.heldBytes)
	}
	w.checkLength()
	if l.namedSize != namedSize || l.limits.condemnedBytes != condemned {
		w.Fatalf("named %d bytes, condemned %d; counted %d, %d", namedSize, condemned, l.namedSize, l.limits.condemnedBytes)
	}
}

// apply applies the oldest entry.
func (w *world) apply() {
	if len(w.kept) > 0 {
		data := w.kept[0]
		w.kept = w.kept[1:]
		w.log.Propose(data, nil)
	}
}

// applyInVain applies the oldest entry without what nodes have said: it names holds and does not end them.
func (w *world) applyInVain() {
	if len(w.kept) == 0 {
		return
	}
	w.calm = false
	e, err := fsm.DecodeEntry(w.kept[0])
	if err != nil {
		w.Fatal(err)
	}
	e.Commands = slices.DeleteFunc(e.Commands, func(c fsm.Command) bool { _, ok := c.(fsm.Stream); return ok })
	w.kept[0] = fsm.EncodeEntry(nil, &e)
	w.apply()
	w.work()
}

func (w *world) send(n *modelNode, ops ...fsm.Op) (seq uint64) {
	n.ops = append(n.ops, ops...)
	seq = uint64(len(n.ops))
	w.sendFrom(n, seq-uint64(len(ops))+1)
	return seq
}

func (w *world) sendFrom(n *modelNode, first uint64) {
	if first <= uint64(len(n.ops)) {
		w.receive(n, &wire.Batch{Queue: 7, Stream: fsm.Stream{Origin: n.Origin, First: first, Ops: n.ops[first-1:], AnsweredUpTo: n.answered}})
	}
}

// resync says everything again.
func (w *world) resync(n *modelNode, session uint64) {
	n.resyncs++
	m := &wire.Resync{Queue: 7, Session: session, No: n.resyncs, Newest: w.l.cfg.Session, Origin: n.Origin}
	for _, no := range slices.Sorted(maps.Keys(n.consumers)) {
		if c := n.consumers[no]; c.Turn != (wire.Turn{}) {
			m.Consumers = append(m.Consumers, *c)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(n.held)) {
		h := n.held[id]
		m.Held = append(m.Held, wire.Hold{No: h.no, ID: id, Attempt: h.attempt, Settled: h.settled})
	}
	w.receive(n, m)
	for _, no := range slices.Sorted(maps.Keys(n.consumers)) {
		if c := n.consumers[no]; c.Turn == (wire.Turn{}) {
			w.receive(n, &wire.Attach{Queue: 7, Origin: n.Origin, Consumer: *c})
		}
	}
	w.sendFrom(n, n.answered+1)
}

// hear handles what has come to a node.
func (w *world) hear(n *modelNode) {
	in := n.inbox
	n.inbox = nil
	for _, m := range in {
		switch m := m.(type) {
		case *wire.RollCall:
			if m.Session >= n.session {
				n.session = m.Session
				w.resync(n, m.Session)
			}
		case *wire.NotLeader:
			w.resync(n, 0)
		case *wire.Attached:
			if c := n.consumers[m.No]; c != nil {
				c.Turn = m.Turn
			}
		case *wire.Answer:
			w.answered(n, m)
		case *wire.Got:
			w.got(n, m)
		case *wire.Deliver:
			if w.valid(n, m.Session, m.Resync) {
				w.delivered(n, m.Items)
			} else {
				w.calm = false
				w.resync(n, 0)
			}
		}
	}
}

func (w *world) answered(n *modelNode, m *wire.Answer) {
	if m.Origin != n.Origin {
		return
	}
	for _, o := range m.Outcomes {
		for _, h := range n.held {
			if h.settled == o.Seq && o.Kind >= fsm.RefusedFull {
				h.settled = 0
			}
		}
	}
	n.answered = max(n.answered, m.UpTo)
	maps.DeleteFunc(n.held, func(_ queue.MessageID, h *modelHold) bool { return h.settled > 0 && h.settled <= n.answered })
	if m.Rewind {
		w.sendFrom(n, max(m.Next, n.answered+1))
	}
}

func (w *world) delivered(n *modelNode, items []wire.Item) {
	for _, it := range items {
		n.held[it.ID] = &modelHold{no: it.No, attempt: it.Attempt}
		w.inOrder(n, it)
		c := n.consumers[it.No]
		if c == nil || !w.calm {
			continue
		}
		has := uint32(0)
		for _, h := range n.held {
			if h.no == it.No && h.settled == 0 {
				has++
			}
		}
		if has > c.Prefetch && c.Prefetch > 0 {
			w.Fatalf("consumer %d of %s has %d messages of %d", it.No, n.ID, has, c.Prefetch)
		}
	}
}

// inOrder checks that a message comes before what is behind it to the client of a consumer, unless it is flagged.
func (w *world) inOrder(n *modelNode, it wire.Item) {
	had := n.had[it.No]
	if had == nil {
		had = map[queue.MessageID]bool{}
		n.had[it.No] = had
	}
	m, err := fsm.DecodeMessage(it.Message)
	if err != nil {
		w.Fatal(err)
	}
	urgent := string(m.Body) == "urgent"
	for id, was := range had {
		if id > it.ID && was == urgent && !it.Redelivered {
			w.Fatalf("consumer %d of %s has message %d after %d and is not told", it.No, n.ID, it.ID, id)
		}
	}
	had[it.ID] = urgent
}

// some draws messages that a node holds and has not settled.
func (w *world) some(n *modelNode, most int) (ids []queue.MessageID) {
	for _, id := range slices.Sorted(maps.Keys(n.held)) {
		if len(ids) < most && n.held[id].settled == 0 && rapid.Bool().Draw(w.t, "this") {
			ids = append(ids, id)
		}
	}
	return ids
}

func (n *modelNode) settlement(kind fsm.SettleKind, ids []queue.MessageID) fsm.Settle {
	s := fsm.Settle{Kind: kind}
	for _, id := range ids {
		s.Runs = appendRun(s.Runs, id, n.held[id].attempt)
	}
	return s
}

func (n *modelNode) settled(ids []queue.MessageID, seq uint64) {
	for _, id := range ids {
		n.held[id].settled = seq
	}
}

var settleKinds = []fsm.SettleKind{fsm.Ack, fsm.Ack, fsm.Discard, fsm.RequeueFailed, fsm.RequeueCounted}

func (w *world) settle(n *modelNode) {
	if ids := w.some(n, 4); len(ids) > 0 {
		kind := rapid.SampledFrom(settleKinds).Draw(w.t, "kind")
		s := n.settlement(kind, ids)
		n.settled(ids, w.send(n, s))
		if rapid.IntRange(0, 9).Draw(w.t, "twice") == 0 {
			w.send(n, s)
		}
	}
}

func (w *world) tx(n *modelNode) {
	ids := w.some(n, 3)
	kind := rapid.SampledFrom(settleKinds).Draw(w.t, "kind")
	t := fsm.Tx{Ops: []fsm.Op{n.settlement(kind, ids)}}
	for range rapid.IntRange(0, 2).Draw(w.t, "publishes") {
		t.Ops = append(t.Ops, pub("in a transaction"))
	}
	n.settled(ids, w.send(n, t))
}

// part settles in a transaction of another queue: whoever has the message then.
func (w *world) part(n *modelNode) {
	if w.work(); w.l.phase == phaseOpen {
		return // it is sent again
	}
	next := w.l.sourceWatermark(fsm.Source{Queue: 5}) + 1
	if t := w.l.transfers[fsm.Source{Queue: 5}]; t != nil {
		next = t.next
	}
	for _, id := range w.some(n, 1) {
		s := n.settlement(rapid.SampledFrom(settleKinds).Draw(w.t, "kind"), []queue.MessageID{id})
		delete(n.held, id)
		w.receive(n, &wire.Transfer{Target: 7, Urgent: true, In: fsm.TransferIn{
			Source: fsm.Source{Queue: 5}, First: next, Items: []fsm.Transfer{{Part: fsm.EncodePart(nil, s)}},
		}})
	}
}

func (w *world) thoughtDead(nodes ...*modelNode) {
	w.calm = false
	for _, n := range nodes {
		w.l.NodeGone(n.Origin.Node, n.Origin.Incarnation)
	}
}

func (w *world) attachAny(n *modelNode) {
	w.attach(n, rapid.Uint32Range(0, 3).Draw(w.t, "prefetch"), rapid.Int32Range(0, 1).Draw(w.t, "priority"))
}

func (w *world) attach(n *modelNode, prefetch uint32, priority int32) {
	n.numbers++
	c := &wire.Consumer{No: n.numbers, Prefetch: prefetch, WindowMessages: 1 << 30, WindowBytes: 1 << 40, Priority: priority}
	n.consumers[c.No] = c
	w.receive(n, &wire.Attach{Queue: 7, Origin: n.Origin, Consumer: *c})
}

// detach ends a consumer: it is cancelled, or its channel ends and returns what it has.
func (w *world) detach(n *modelNode) {
	if len(n.consumers) == 0 {
		return
	}
	no := rapid.SampledFrom(slices.Sorted(maps.Keys(n.consumers))).Draw(w.t, "consumer")
	delete(n.consumers, no)
	returns := rapid.Bool().Draw(w.t, "returns")
	w.receive(n, &wire.Detach{Queue: 7, Origin: n.Origin, No: no, Returns: returns})
	if !returns {
		return
	}
	var ids []queue.MessageID
	for id, h := range n.held {
		if h.no == no && h.settled == 0 {
			ids = append(ids, id)
		}
	}
	if slices.Sort(ids); len(ids) > 0 {
		n.settled(ids, w.send(n, n.settlement(fsm.RequeueFailed, ids)))
	}
}

// restart is another process on the node.
func (w *world) restart(n *modelNode) {
	w.calm = false
	gone := n.Origin
	*n = *newModelNode(n.Node)
	n.Origin.Incarnation++
	if rapid.Bool().Draw(w.t, "noticed") {
		w.l.NodeGone(gone.Node, gone.Incarnation)
	}
	w.resync(n, 0)
}

// lose is a link that breaks: what was under way to the node is lost.
func (w *world) lose(n *modelNode) {
	w.calm = false
	n.inbox = nil
	w.resync(n, 0)
}

// TestCreditModel does things at random and checks after each that every consumer counts the holds it should, and in the end
// that nothing is left behind: no message, no hold, no credit.
func TestCreditModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		actions := map[string]func(*modelNode){
			"hear": w.hear, "hear too": w.hear, "hear as well": w.hear,
			"apply": func(*modelNode) { w.apply() }, "apply too": func(*modelNode) { w.apply() },
			"publish": func(n *modelNode) { w.send(n, pub("1"), pub("2")) },
			"get":     w.get, "expiring": w.expiring, "redrive": w.redrive, "purge": w.purge,
			"settle": w.settle, "settle too": w.settle, "tx": w.tx, "part": w.part,
			"unsent": w.unsent, "attach": w.attachAny, "detach": w.detach, "lose": w.lose, "restart": w.restart,
			"resync":       func(n *modelNode) { w.calm = false; w.resync(n, 0) },
			"thought dead": func(n *modelNode) { w.thoughtDead(n) },
			"in vain":      func(*modelNode) { w.applyInVain(); w.thoughtDead(w.nodes...) }, // they say it again then
			"time":         func(*modelNode) { w.now += 15 },
			"settings":     func(*modelNode) { w.change(drawSettings(t), rapid.IntRange(0, 3).Draw(t, "paused") == 0) },
			"lease":        func(*modelNode) { w.leaseless = !w.leaseless },
			"lead":         func(*modelNode) { w.lead() },
			"link":         w.crowd, "urgent": w.urgent, "again": w.again,
			"taken": func(*modelNode) { w.taken() }, "gone": w.targetGone, "decide": func(*modelNode) { w.decide() },
		}
		names := slices.Sorted(maps.Keys(actions))
		for _, n := range w.nodes {
			w.hear(n)
			w.attachAny(n)
		}
		w.work()
		for range rapid.IntRange(1, 80).Draw(t, "actions") {
			actions[rapid.SampledFrom(names).Draw(t, "action")](w.nodes[rapid.IntRange(0, 1).Draw(t, "node")])
			if rapid.IntRange(0, 3).Draw(t, "at once") > 0 { // else with what comes next
				w.work()
			}
		}
		w.drain()
	})
}

// drain has everything done that is left.
func (w *world) drain() {
	w.l.cfg.acksLinger = 1
	w.leaseless, w.crowded = false, ""
	w.change(w.set, false)
	w.attach(w.nodes[0], 1, 0)
	for round := range 400 {
		w.now += 15
		for _, n := range w.nodes {
			w.hear(n)
			if ids := unsettled(n); len(ids) > 0 {
				n.settled(ids, w.send(n, n.settlement(fsm.Ack, ids)))
			}
		}
		w.apply()
		w.l.rollBefore = time.Time{} // a roll call may have been lost
		if round < 350 {
			w.taken()
			w.decide()
		}
		w.work()
	}
	var left int
	w.l.replica.View(func(m *fsm.Machine) { left = m.Queue().Len() })
	if left > 0 || len(w.l.held)+len(w.l.limits.condemned) > 0 {
		w.Fatalf("%d messages, %d holds and %d that are named to die are left; %s; nodes %s", left, len(w.l.held), len(w.l.limits.condemned), w.l.describe(), w.show())
	}
	for k, c := range w.l.consumers.byKey {
		if c.unacked > 0 {
			w.Fatalf("consumer %v counts %d", k, c.unacked)
		}
	}
	w.checkEmpty()
}

func (w *world) show() (s string) {
	for _, n := range w.nodes {
		s += fmt.Sprintf("%s: %d operations, %d answered, holds", n.ID, len(n.ops), n.answered)
		for id, h := range n.held {
			s += fmt.Sprintf(" %d:%+v", id, *h)
		}
		s += "; "
	}
	return s
}
