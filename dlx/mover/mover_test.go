package mover

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

func TestMove(t *testing.T) {
	run(t, "every target has to take it", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"}, Target{6, "b"})
		defer r.m.Stop()
		r.die("1", "2")
		want(t, r.take(5), "1:1", "2:2")
		want(t, r.take(6), "1:1", "2:2")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2})
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 1})
		if n := r.len(); n != 1 {
			t.Errorf("%d items are left, want 1", n)
		}
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 2})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	run(t, "no answer", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		want(t, r.take(5), "1:1")
		time.Sleep(answerTimeout)
		if n := r.asks(5); n < quietRepeats {
			t.Errorf("asked %d times", n)
		}
		want(t, r.take(5))
		if r.moved != 1 {
			t.Errorf("looked for the target %d times", r.moved)
		}
	})
	run(t, "a target that slept", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		want(t, r.take(5), "1:1")
		time.Sleep(quietTimeout)
		if n := r.asks(5); n != 1 {
			t.Errorf("asked %d times", n)
		}
		r.answer(wire.TransferAnswer{Target: 5})
		want(t, r.take(5), "1:1")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	run(t, "a target that has it and is slow", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		want(t, r.take(5), "1:1")
		for range 300 {
			time.Sleep(quietTimeout)
			if r.asks(5) > 0 {
				r.answer(wire.TransferAnswer{Target: 5, Gap: true})
			}
		}
		want(t, r.take(5))
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		r.die("2")
		want(t, r.take(5), "2:2") // at once
	})
	run(t, "an answer for what was never sent", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2")
		want(t, r.take(5), "1:1", "2:2")
		for _, upTo := range []uint64{3, math.MaxInt64, math.MaxUint64} {
			r.answer(wire.TransferAnswer{Target: 5, UpTo: upTo, Gap: upTo == 3})
		}
		if n := r.len(); n != 2 {
			t.Errorf("%d items are left, want 2", n)
		}
		r.die("3")
		want(t, r.take(5), "3:3")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	run(t, "gap", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2", "3")
		r.take(5)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1, Gap: true})
		want(t, r.take(5), "2:2", "3:3")
		// The same again: it does not help to be quick.
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1, Gap: true})
		want(t, r.take(5))
		time.Sleep(2 * backoffMin)
		want(t, r.take(5), "2:2", "3:3")
	})
	run(t, "full", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		for i := range 20 {
			if n := r.asks(5); n+len(r.take(5)) == 0 {
				t.Fatalf("not tried again after %d answers", i)
			}
			r.answer(wire.TransferAnswer{Target: 5, Full: true})
			want(t, r.take(5))
			time.Sleep(2 * backoffMax)
		}
	})
}

// Parts of a transaction go to their targets as they were written, in one sequence
// with dead letters.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		part := fsm.EncodePart(nil, fsm.Settle{Kind: fsm.Ack, Runs: []fsm.Run{{First: 8, Count: 2, Attempt: 1}}})
		r.seq++
		r.propose(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq, Ops: []fsm.Op{
			fsm.Tx{Parts: []fsm.TxPart{{Targets: []uint64{5, 6}, Part: part}}},
		}})
		r.m.Wake()
		synctest.Wait()
		r.mu.Lock()
		var got []string
		for _, m := range r.sent {
			for i, it := range m.In.Items {
				got = append(got, fmt.Sprint(m.Target, " ", m.In.First+uint64(i), " ", bytes.Equal(it.Part, part)))
			}
		}
		r.mu.Unlock()
		want(t, got, "5 1 false", "5 2 true", "6 1 true")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2})
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 0, Gone: true})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
}

// A full target is sent what waits for room there at once when a part of a transaction comes behind it, and is told so; also if the target has
// refused so often that it was only asked how it stands, and has not answered.
func TestPartsDoNotWaitForRoom(t *testing.T) {
	for name, refusals := range map[string]int{"refused once": 1, "refused all the time": 100} {
		run(t, name, func(t *testing.T) {
			r := newRig(t, false, Target{5, "a"})
			defer r.m.Stop()
			r.die("1")
			want(t, r.take(5), "1:1")
			for i := range refusals {
				if i > 0 {
					time.Sleep(2 * backoffMin)
				}
				r.answer(wire.TransferAnswer{Target: 5, Full: true})
			}
			if refusals > 1 {
				r.take(5)
				for r.asks(5) == 0 {
					time.Sleep(backoffMin)
				}
			}
			r.seq++
			r.propose(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq, Ops: []fsm.Op{
				fsm.Tx{Parts: []fsm.TxPart{{Targets: []uint64{5}, Part: fsm.EncodePart(nil, fsm.Settle{})}}},
			}})
			r.mu.Lock()
			r.sent = nil
			r.mu.Unlock()
			r.m.Wake()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.sent) != 1 || !r.sent[0].Urgent || r.sent[0].In.First != 1 || len(r.sent[0].In.Items) != 2 {
				t.Errorf("sent %+v", r.sent)
			}
		})
	}
}

func TestTargetGone(t *testing.T) {
	run(t, "closed", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2")
		r.take(5)
		r.mu.Lock()
		r.targets = []Target{{6, "a"}}
		r.mu.Unlock()
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1, Gone: true})
		want(t, r.take(6), "1:2") // the first one was taken
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 1})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	run(t, "left the catalog", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.take(5)
		r.mu.Lock()
		r.exists[5] = false
		r.targets = []Target{{6, "a"}}
		r.mu.Unlock()
		time.Sleep(answerTimeout)
		want(t, r.take(6), "1:1")
	})
	// The target tells its end, is told that it is recorded, and leaves the catalog, while the
	// mover looks at that: what it saw before says nothing of what was taken.
	run(t, "left the catalog after it told its end", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2")
		r.take(5)
		r.onFresh = sync.OnceFunc(func() { r.propose(fsm.TargetGone{Target: 5, Watermark: 1}) })
		r.mu.Lock()
		r.exists[5] = false
		r.targets = []Target{{6, "a"}}
		r.mu.Unlock()
		time.Sleep(answerTimeout)
		want(t, r.take(6), "1:2")
		want(t, r.ends(), "5 at 1")
	})
	// Routing from an old catalog names a closed target: the log does not take it,
	// and the item is decided on again, not at once and not for ever later.
	run(t, "routed there again", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.take(5)
		r.answer(wire.TransferAnswer{Target: 5, Gone: true})
		synctest.Wait()
		entries := r.entries()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := r.entries() - entries; n < 5 || n > 40 {
			t.Errorf("%d decisions in 10 s", n)
		}
		r.mu.Lock()
		r.targets = []Target{{6, "a"}}
		r.mu.Unlock()
		time.Sleep(2 * routeAgainMax)
		want(t, distinct(r.take(6)), "1:1")
	})
}

func TestParked(t *testing.T) {
	run(t, "released below newer ones", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		r.die("1", "2")
		if n := r.count(dlx.ParkedUnrouted); n != 2 || r.fresh == 0 {
			t.Fatalf("%d parked, catalog asked %d times", n, r.fresh)
		}
		r.mu.Lock()
		r.targets = []Target{{5, "a"}}
		r.exists[5] = true
		r.mu.Unlock()
		r.die("3")
		want(t, r.take(5), "1:3")
		r.propose(fsm.Release{Kind: fsm.ParkUnrouted})
		r.m.Wake()
		want(t, r.take(5), "2:1", "3:2")
	})
	// What died later must not overtake what waited for the same way.
	run(t, "go first when there is a way", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		r.die("1", "2")
		r.mu.Lock()
		r.targets = []Target{{5, "a"}}
		r.exists[5] = true
		r.rev++
		r.mu.Unlock()
		r.die("3")
		want(t, r.take(5), "1:1", "2:2", "3:3")
	})
	// The way comes between the decisions on two that died together.
	run(t, "keep their order when the way comes", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		looks := 0
		r.mu.Lock()
		r.onAsk = func() {
			if looks++; looks == 2 { // the first one was looked up twice, in vain
				r.targets, r.exists[5] = []Target{{5, "a"}}, true
				r.rev++
			}
		}
		r.mu.Unlock()
		r.die("1", "2", "3")
		want(t, r.take(5), "1:1", "2:2", "3:3")
	})
	// The route came while the letter was on its way to be parked.
	run(t, "by an old catalog", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		r.die("1")
		if r.again != 0 {
			t.Errorf("looked again %d times without a change", r.again)
		}
		r.slip = func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.rev++
		}
		r.die("2")
		if n := r.count(dlx.ParkedUnrouted); n != 2 || r.again != 1 {
			t.Errorf("%d parked, looked again %d times", n, r.again)
		}
	})
	run(t, "not in a queue that is gone", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		r.die("1")
		r.propose(fsm.Close{}, fsm.Release{Kind: fsm.ParkUnrouted})
		r.m.Wake()
		synctest.Wait()
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
}
