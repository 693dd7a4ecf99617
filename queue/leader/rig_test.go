package leader

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// rig runs one leader over a log in memory and plays its nodes.
type rig struct {
	t       *testing.T
	replica *Replica
	log     *MemLog
	l       *Leader
	set     queue.Settings
	session uint64
	nodes   []Node
	nowMS   func() int64
	change  func(*Config)

	mu     sync.Mutex
	out    []sent
	signal chan struct{}
	seq    map[uint32]uint64
}

type sent struct {
	to string
	m  wire.Message
}

func plain() queue.Settings {
	return queue.Settings{MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1}
}

func newRig(t *testing.T, set queue.Settings, nodes ...Node) *rig {
	return newRigWith(t, set, func(*Config) {}, nodes...)
}

func newRigWith(t *testing.T, set queue.Settings, change func(*Config), nodes ...Node) *rig {
	r := &rig{
		t: t, replica: NewReplica(), set: set, nodes: nodes, change: change,
		signal: make(chan struct{}, 1), seq: map[uint32]uint64{},
		nowMS: func() int64 { return time.Now().UnixMilli() },
	}
	r.log = NewMemLog(r.replica)
	// Somebody has led before, so that the roll is called.
	r.log.Propose(fsm.EncodeEntry(nil, &fsm.Entry{}), func(error) {})
	r.lead()
	t.Cleanup(func() { r.l.Stop() })
	return r
}

// newQueueRig is a rig whose log is empty.
func newQueueRig(t *testing.T, nodes ...Node) *rig {
	r := &rig{
		t: t, replica: NewReplica(), set: plain(), nodes: nodes, change: func(*Config) {},
		signal: make(chan struct{}, 1), seq: map[uint32]uint64{},
		nowMS: func() int64 { return time.Now().UnixMilli() },
	}
	r.log = NewMemLog(r.replica)
	t.Cleanup(func() { r.l.Stop() })
	return r
}

// lead begins a new session, as after a change of leadership.
func (r *rig) lead() {
	if r.l != nil {
		r.l.Stop()
	}
	r.session++
	cfg := Config{
		Queue: 7, Log: r.log, Session: r.session,
		Send:      r.send,
		LiveNodes: func() []Node { return r.nodes },
		Now:       r.nowMS,
		Settings: func() (queue.Settings, uint64, string, string) {
			return r.set, 1, "/", "q"
		},
		CatalogRevision: func() uint64 { return 1 },
		SourceExists:    func(uint64) bool { return true },
		Closed:          func() {},
		Unused:          func() {},
		StartMover:      func(*Leader) Mover { return idleMover{} },
		Logger:          slog.New(slog.DiscardHandler),
	}
	r.change(&cfg)
	r.l = Lead(r.replica, cfg)
}

type idleMover struct{}

func (idleMover) Wake()                       {}
func (idleMover) Answer(*wire.TransferAnswer) {}
func (idleMover) Stop()                       {}

func (r *rig) send(to string, m wire.Message) {
	r.mu.Lock()
	r.out = append(r.out, sent{to, m})
	r.mu.Unlock()
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// await returns the first message to a node for which match is true, and takes
// it out.
func await[M wire.Message](r *rig, to string, match func(M) bool) M {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		r.mu.Lock()
		for i, s := range r.out {
			if m, ok := s.m.(M); ok && s.to == to && (match == nil || match(m)) {
				r.out = append(r.out[:i], r.out[i+1:]...)
				r.mu.Unlock()
				return m
			}
		}
		r.mu.Unlock()
		select {
		case <-r.signal:
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			var none M
			r.t.Fatalf("no %T to %s; waiting: %v", none, to, r.out)
			return none
		}
	}
}

func node(n uint32) Node {
	return Node{ID: string(rune('a' + n - 1)), Origin: fsm.Origin{Node: n, Incarnation: 10}}
}

func (r *rig) batch(n Node, ops ...fsm.Op) (last uint64) {
	o := n.Origin
	first := r.seq[o.Node] + 1
	r.seq[o.Node] += uint64(len(ops))
	r.l.Receive(n.ID, &wire.Batch{Queue: 7, Stream: fsm.Stream{Origin: o, First: first, Ops: ops}})
	return r.seq[o.Node]
}

func pub(body string) fsm.Publish {
	m := fsm.Message{Exchange: "x", RoutingKeys: []string{"k"}, Properties: []byte{0, 0}, Body: []byte(body)}
	return fsm.Publish{TTLMillis: -1, Message: fsm.EncodeMessage(nil, &m), BodyBytes: uint32(len(body))}
}

func bodyOf(t *testing.T, it wire.Item) string {
	t.Helper()
	m, err := fsm.DecodeMessage(it.Message)
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Body)
}

// publish sends bodies and waits for the answer; it returns the outcomes.
func (r *rig) publish(n Node, bodies ...string) (outcomes []fsm.Outcome) {
	r.t.Helper()
	ops := make([]fsm.Op, len(bodies))
	for i, b := range bodies {
		ops[i] = pub(b)
	}
	last := r.batch(n, ops...)
	for {
		a := await[*wire.Answer](r, n.ID, nil)
		outcomes = append(outcomes, a.Outcomes...)
		if a.UpTo >= last {
			return outcomes
		}
	}
}

func (r *rig) attach(n Node, no wire.ConsumerNo, prefetch uint32) {
	r.t.Helper()
	r.l.Receive(n.ID, &wire.Attach{Queue: 7, Origin: n.Origin, Consumer: wire.Consumer{
		No: no, Prefetch: prefetch, WindowMessages: 1000, WindowBytes: 1 << 20,
	}})
	if a := await[*wire.Attached](r, n.ID, nil); a.Refusal != "" {
		r.t.Fatalf("attach refused: %s", a.Refusal)
	}
}

// items waits for n deliveries to a node.
func (r *rig) items(to Node, n int) (list []wire.Item) {
	r.t.Helper()
	for len(list) < n {
		list = append(list, await[*wire.Deliver](r, to.ID, nil).Items...)
	}
	return list
}

func (r *rig) bodies(items []wire.Item) (list []string) {
	for _, it := range items {
		list = append(list, bodyOf(r.t, it))
	}
	return list
}

func (r *rig) settle(n Node, kind fsm.SettleKind, items ...wire.Item) {
	s := fsm.Settle{Kind: kind}
	for _, it := range items {
		s.Runs = append(s.Runs, fsm.Run{First: it.ID, Count: 1, Attempt: it.Attempt})
	}
	r.batch(n, s)
}

func (r *rig) get(n Node, req uint64) *wire.Got {
	r.t.Helper()
	r.l.Receive(n.ID, &wire.Get{Queue: 7, Origin: n.Origin, Req: req, After: r.seq[n.Origin.Node]})
	return await(r, n.ID, func(g *wire.Got) bool { return g.Req == req })
}

func (r *rig) status(n Node, req uint64) *wire.Status {
	r.t.Helper()
	r.l.Receive(n.ID, &wire.Query{Queue: 7, Origin: n.Origin, Req: req, After: r.seq[n.Origin.Node]})
	return await(r, n.ID, func(s *wire.Status) bool { return s.Req == req })
}

// answerRoll answers the roll call of the present session.
func (r *rig) answerRoll(n Node, held ...wire.Hold) {
	r.t.Helper()
	rc := await(r, n.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
	r.l.Receive(n.ID, &wire.Resync{Queue: 7, Session: rc.Session, No: 1, Origin: n.Origin, Held: held})
}
