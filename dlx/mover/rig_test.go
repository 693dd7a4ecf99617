package mover

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// rig runs a mover over a machine whose log is the rig; the test plays the targets.
type rig struct {
	t *testing.T
	m *Mover

	mu      sync.Mutex
	gate    Gate
	kept    Kept
	machine *fsm.Machine
	log     [][]byte
	targets []Target // what routing finds
	only    string   // for letters with this key, if not ""
	exists  map[uint64]bool
	goesOn  map[uint64]uint64 // queues that go on in place of targets, whose first life has ended
	sent    []*wire.Transfer
	rev     uint64
	slip    func() // runs before a proposal is applied
	onAsk   func() // runs with mu held after routing was asked
	onRead  func(bytes int)
	onFresh func() // runs when an up-to-date catalog is asked for
	onMoved func() // runs with mu held when a target is looked for
	again   int    // LookAgain calls
	moved   int    // Relocate calls

	through  string // exchange of the newest letter taken
	answered uint64 // of the newest transfer taken
	now      int64  // machine time
	routed   string // newest exchange and letter asked about
	routedAs Letter
	asked    int // Route calls
	fresh    int
	reads    atomic.Int64 // of entries
	seq      uint64
	planned  *fsm.Plan // of the entries in which messages die
}

func newRig(t *testing.T, atLeastOnce bool, targets ...Target) *rig {
	r := &rig{t: t, machine: fsm.New(), targets: targets, exists: map[uint64]bool{}}
	for _, x := range targets {
		r.exists[x.ID] = true
	}
	r.propose(settings(1, "x", atLeastOnce))
	r.m = Start(Config{
		Queue: 7,
		View: func(f func(*fsm.Machine)) {
			r.mu.Lock()
			defer r.mu.Unlock()
			f(r.machine)
		},
		Read: func(index uint64) ([]byte, error) {
			r.mu.Lock()
			data := r.log[index-1]
			r.mu.Unlock()
			r.reads.Add(1)
			if r.onRead != nil {
				r.onRead(len(data))
			}
			return data, nil
		},
		Route: func(_, exchange string, l *Letter) ([]Target, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.routed, r.routedAs = exchange, *l
			r.asked++
			if r.only != "" && l.Keys[0] != r.only {
				return nil, true
			}
			targets := slices.Clone(r.targets)
			if r.onAsk != nil {
				r.onAsk()
			}
			return targets, true
		},
		Fresh: func(context.Context) error {
			if r.onFresh != nil {
				r.onFresh()
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.fresh++
			return nil
		},
		Revision: func() uint64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.rev
		},
		LookAgain: func() { r.again++ },
		Gate:      &r.gate,
		Kept:      &r.kept,
		Exists: func(id uint64) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.exists[id]
		},
		Successor: func(id uint64) (uint64, uint32, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			to, ok := r.goesOn[id]
			return to, 1, ok
		},
		Send: func(m *wire.Transfer) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.sent = append(r.sent, m)
		},
		Relocate: func(uint64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.moved++
			if r.onMoved != nil {
				r.onMoved()
			}
		},
		Propose: func(c fsm.Command, _ bool, applied func()) {
			if r.slip != nil {
				r.slip()
			}
			r.propose(c)
			if applied != nil {
				applied()
			}
			r.m.Wake()
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	return r
}

// settings are those with a dead-letter exchange, none for "".
func settings(revision uint64, exchange string, atLeastOnce bool) fsm.SetSettings {
	return fsm.SetSettings{Revision: revision, Name: "q", VHost: "/", Settings: queue.Settings{
		MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1,
		DeadLetter: exchange != "", DeadLetterExchange: exchange, AtLeastOnce: atLeastOnce,
	}}
}

// routes sets what routing finds from now on.
func (r *rig) routes(targets ...Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets = targets
	r.rev++
	for _, t := range targets {
		r.exists[t.ID] = true
	}
}

func (r *rig) propose(c ...fsm.Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data := fsm.EncodeEntry(nil, &fsm.Entry{Session: 1, Ordinal: 1, TimeMillis: r.now, Commands: c})
	r.log = append(r.log, data)
	r.machine.Apply(uint64(len(r.log)), data)
}

// die publishes messages and rejects them.
func (r *rig) die(bodies ...string) {
	s := fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq + 1}
	var first queue.MessageID
	r.m.cfg.View(func(m *fsm.Machine) { first = m.Queue().Tail() + 1 })
	for _, b := range bodies {
		m := fsm.Message{RoutingKeys: []string{"k"}, Properties: []byte{0, 0}, Body: []byte(b)}
		s.Ops = append(s.Ops, fsm.Publish{TTLMillis: -1, Message: fsm.EncodeMessage(nil, &m), BodyBytes: uint32(len(b))})
	}
	s.Ops = append(s.Ops, fsm.Settle{Kind: fsm.Discard, Runs: []fsm.Run{{First: first, Count: uint32(len(bodies))}}})
	r.seq += uint64(len(s.Ops))
	if r.planned != nil {
		r.propose(*r.planned, s)
	} else {
		r.propose(s)
	}
	r.m.Wake()
	synctest.Wait()
}

// distinct leaves out what was said again to a target that does not answer.
func distinct(list []string) (once []string) {
	for _, s := range list {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// take returns what was sent to a target since the last call, as "seq:body".
func (r *rig) take(target uint64) (list []string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.sent {
		if m.Target != target {
			continue
		}
		r.answered = m.In.AnsweredUpTo
		for i, it := range m.In.Items {
			if it.Withdrawn {
				list = append(list, fmt.Sprintf("%d:-", m.In.First+uint64(i)))
				continue
			}
			msg, err := fsm.DecodeMessage(it.Message)
			if err != nil {
				r.t.Fatal(err)
			}
			r.through = msg.Exchange
			list = append(list, fmt.Sprintf("%d:%s", m.In.First+uint64(i), msg.Body))
		}
	}
	r.sent = slices.DeleteFunc(r.sent, func(m *wire.Transfer) bool { return m.Target == target })
	return list
}

// asks counts the transfers without items that were sent to a target since the last take, and forgets them.
func (r *rig) asks(target uint64) (n int) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = slices.DeleteFunc(r.sent, func(m *wire.Transfer) bool {
		ask := m.Target == target && len(m.In.Items) == 0
		if ask {
			n++
		}
		return ask
	})
	return n
}

func (r *rig) answer(a wire.TransferAnswer) {
	a.Source = 7
	r.m.Answer(&a)
	synctest.Wait()
}

// ends lists the targets whose end the log records, with their watermarks.
func (r *rig) ends() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, data := range r.log {
		e, err := fsm.DecodeEntry(data)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, c := range e.Commands {
			if x, ok := c.(fsm.TargetGone); ok {
				list = append(list, fmt.Sprintf("%d at %d", x.Target, x.Watermark))
			}
		}
	}
	return list
}

func (r *rig) count(s dlx.State) (n int) {
	r.m.cfg.View(func(m *fsm.Machine) { n = m.Outbox().Count(s) })
	return n
}

func (r *rig) entries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.log)
}

func (r *rig) len() (n int) {
	r.m.cfg.View(func(m *fsm.Machine) { n = m.Outbox().Len() })
	return n
}

func want(t *testing.T, got []string, list ...string) {
	t.Helper()
	if !slices.Equal(got, list) {
		t.Errorf("sent %v, want %v", got, list)
	}
}

func run(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
