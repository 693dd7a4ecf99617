package restore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// The world of TestCutsAreConsistent: queues that dead-letter into each other over a network that delays, repeats, reorders and loses
// what they say, with the real machines. A cut is taken step by step among everything else.

const worldQueues = 3

// shop is a queue: its machine, its log, and the gate of the node that leads it.
type shop struct {
	id    uint64
	m     *fsm.Machine
	index uint64
	log   map[uint64][]byte
	held  bool
	// born are the messages that were published here, by body, with their index.
	born map[string]uint64
}

// word is something under way between two queues.
type word struct {
	from, to uint64
	transfer *fsm.TransferIn
	answer   *fsm.TransferResult
}

// rules are what a cut does.
type rules struct {
	holdSends, holdAnswers bool
}

type world struct {
	t     *rapid.T
	rules rules
	shops []*shop
	net   []word
	next  int
	// The cut: how many queues are held, then which are captured.
	holds    int
	captured map[uint64]*shop
}

func newWorld(t *rapid.T, r rules) *world {
	w := &world{t: t, rules: r, captured: map[uint64]*shop{}}
	for id := uint64(1); id <= worldQueues; id++ {
		s := &shop{id: id, m: fsm.New(), log: map[uint64][]byte{}, born: map[string]uint64{}}
		w.shops = append(w.shops, s)
		s.apply(fsm.SetSettings{Revision: 1, Name: fmt.Sprint("q", id), VHost: "/", Settings: queue.Settings{
			MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1, DeadLetter: true, DeadLetterExchange: "dlx",
		}})
	}
	return w
}

func (s *shop) apply(cmds ...fsm.Command) fsm.Result {
	s.index++
	data := fsm.EncodeEntry(nil, &fsm.Entry{TimeMillis: int64(s.index), CatalogRev: 1, Commands: cmds})
	s.log[s.index] = data
	return s.m.Apply(s.index, data)
}

func (s *shop) message(ref queue.Ref) fsm.Message {
	m, err := fsm.DecodeMessage(s.log[ref.Index][ref.Offset : ref.Offset+ref.Length])
	if err != nil {
		panic(err)
	}
	return m
}

func (w *world) n(low, high int, what string) int { return rapid.IntRange(low, high).Draw(w.t, what) }
func (w *world) any(what string) *shop            { return w.shops[w.n(0, worldQueues-1, what)] }

// step does one thing, of the load or of the cut.
func (w *world) step() {
	switch s := w.any("queue"); w.n(0, 11, "step") {
	case 0, 1:
		w.publish(s)
	case 2, 3:
		w.reject(s)
	case 4:
		s.route(func() uint64 { return uint64(w.n(1, worldQueues, "target")) })
	case 5, 6:
		if !s.held || !w.rules.holdSends {
			w.net = append(w.net, s.sends(uint64(w.n(1, worldQueues, "target")), uint64(w.n(0, 3, "after")), w.n(1, 4, "window"))...)
		}
	case 7, 8:
		w.hear()
	case 9:
		s.apply(fsm.Withdraw{Target: uint64(w.n(1, worldQueues, "target")), UpTo: uint64(w.n(1, 6, "withdraw"))})
	default:
		w.cut()
	}
}

func (w *world) publish(s *shop) {
	w.next++
	body := fmt.Sprint("m", w.next)
	_, at, _ := s.m.Watermark(1)
	raw := fsm.EncodeMessage(nil, &fsm.Message{Body: []byte(body)})
	s.apply(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: at + 1, Ops: []fsm.Op{
		fsm.Publish{TTLMillis: -1, BodyBytes: uint32(len(body)), Message: raw},
	}})
	s.born[body] = s.index
}

// reject dead-letters the oldest message.
func (w *world) reject(s *shop) {
	if m, ok := s.m.Queue().NextLive(0); ok {
		s.apply(fsm.Return{Kind: fsm.Discard, Runs: []fsm.Run{{First: m.ID, Count: 1, Attempt: m.Attempt}}})
	}
}

// route gives every unrouted letter one target.
func (s *shop) route(target func() uint64) {
	var c fsm.Route
	for _, it := range s.m.Outbox().Unrouted(100) {
		c.Items = append(c.Items, fsm.Routed{Item: it.ID, Targets: []uint64{target()}})
	}
	if len(c.Items) > 0 {
		s.apply(c)
	}
}

// sends is what the leader of a queue tells a target: letters that are under way to it, from some place on.
func (s *shop) sends(target, after uint64, window int) []word {
	out := s.m.Outbox()
	done, back := out.Progress(target)
	pending := out.Pending(target, done+after, window)
	if len(pending) == 0 {
		return nil
	}
	run := &fsm.TransferIn{Source: fsm.Source{Queue: s.id}, First: pending[0].Seq, AnsweredUpTo: done}
	settings := s.m.OutboxSettings()
	for _, p := range pending {
		if p.Seq <= back {
			run.Items = append(run.Items, fsm.Transfer{Withdrawn: true})
			continue
		}
		m := s.message(p.Ref)
		dead, err := m.Dead(dlx.Dying{Queue: s.m.Name(), Reason: p.Reason, TimeMillis: p.TimeMillis}, &settings)
		if err != nil {
			panic(err)
		}
		run.Items = append(run.Items, fsm.Transfer{Message: fsm.EncodeMessage(nil, &dead), BodyBytes: uint32(len(dead.Body))})
	}
	return []word{{from: s.id, to: target, transfer: run}}
}

// hear delivers something that is under way, perhaps not for the last time, or loses it.
func (w *world) hear() {
	if len(w.net) == 0 {
		return
	}
	i := w.n(0, len(w.net)-1, "word")
	x := w.net[i]
	if w.n(0, 3, "again") > 0 {
		w.net = slices.Delete(w.net, i, i+1)
	}
	if w.n(0, 9, "lost") == 0 {
		return
	}
	s := w.shops[x.to-1]
	if x.answer != nil && s.held && w.rules.holdAnswers {
		return
	}
	w.net = append(w.net, s.takes(x)...)
}

// takes applies what another queue says and returns the answer.
func (s *shop) takes(x word) []word {
	if x.answer != nil {
		s.apply(fsm.TransferDone{Target: x.from, UpTo: x.answer.UpTo, Withdrawn: x.answer.Withdrawn})
		return nil
	}
	r := s.apply(*x.transfer).Transfers[0]
	return []word{{from: s.id, to: x.from, answer: &r}}
}

// rush moves a letter from one queue toward another, and perhaps lets all that is under way arrive, answers too.
func (w *world) rush() {
	s, target := w.any("queue"), uint64(w.n(1, worldQueues, "target"))
	w.publish(s)
	w.reject(s)
	s.route(func() uint64 { return target })
	if !s.held || !w.rules.holdSends {
		w.net = append(w.net, s.sends(target, 0, 100)...)
	}
	if w.n(0, 2, "arrives") > 0 {
		return
	}
	for i := 0; i < 50 && len(w.net) > 0; i++ {
		x := w.net[0]
		w.net = w.net[1:]
		if to := w.shops[x.to-1]; x.answer == nil || !to.held || !w.rules.holdAnswers {
			w.net = append(w.net, to.takes(x)...)
		}
	}
}

// cut does the next step of the cut: every gate is closed, then every state is taken, then the gates open.
func (w *world) cut() {
	if w.holds < worldQueues {
		w.shops[w.holds].held = true
		w.holds++
		return
	}
	if len(w.captured) < worldQueues {
		s := w.any("captured")
		for w.captured[s.id] != nil {
			s = w.shops[s.id%worldQueues]
		}
		w.capture(s)
	}
	if len(w.captured) == worldQueues {
		for _, s := range w.shops {
			s.held = false
		}
	}
}

// capture restores a copy of a queue from its manifest and what that pins of the log.
func (w *world) capture(s *shop) {
	encode := s.m.Freeze()
	manifest, pins := encode()
	m, err := fsm.Restore(manifest)
	if err != nil {
		w.t.Fatal(err)
	}
	k := &shop{id: s.id, m: m, index: s.index, log: map[uint64][]byte{}, born: map[string]uint64{}}
	for _, p := range pins {
		for i := p.First; i <= p.Last; i++ {
			k.log[i] = s.log[i]
		}
	}
	maps.Copy(k.born, s.born)
	w.captured[s.id] = k
}

// runOn lets the restored queues go on until nothing is under way, and returns what is wrong then: each message that a queue's state
// knew to be published has to be in exactly one place, others nowhere.
func (w *world) runOn() error {
	restored := make([]*shop, worldQueues)
	for id, s := range w.captured {
		restored[id-1] = s
	}
	for range 8 {
		for _, s := range restored {
			s.route(func() uint64 { return s.id%worldQueues + 1 })
			for target := uint64(1); target <= worldQueues; target++ {
				for _, x := range s.sends(target, 0, 1000) {
					for _, y := range restored[x.to-1].takes(x) {
						restored[y.to-1].takes(y)
					}
				}
			}
		}
	}
	places := map[string]int{}
	for _, s := range restored {
		if n := s.m.Outbox().Len(); n > 0 {
			return fmt.Errorf("%d letters never leave queue %d", n, s.id)
		}
		for m, ok := s.m.Queue().NextLive(0); ok; m, ok = s.m.Queue().NextLive(m.ID) {
			msg := s.message(m.Ref)
			places[string(msg.Body)]++
		}
	}
	for _, s := range restored {
		for body := range s.born {
			if places[body] != 1 {
				return fmt.Errorf("%s is in %d places", body, places[body])
			}
			delete(places, body)
		}
	}
	if len(places) > 0 {
		return fmt.Errorf("not known to be published: %v", places)
	}
	return nil
}

// run plays one history up to the end of the cut. It returns what the restored queues make of the cut, and what Verify says to it.
func run(t *rapid.T, r rules) (fate, verdict error) {
	w := newWorld(t, r)
	for range rapid.IntRange(5, 80).Draw(t, "steps") {
		w.step()
	}
	for len(w.captured) < worldQueues {
		switch w.n(0, 3, "rest") {
		case 0:
			w.cut()
		case 1:
			w.step()
		default:
			w.rush()
		}
	}
	v := newMoves()
	for id, s := range w.captured {
		v.add(id, s.m)
	}
	_, verdict = v.check()
	return w.runOn(), verdict
}

// TestCutsAreConsistent: restored from a cut that holds what package backup/cut holds, every message is in exactly one place.
func TestCutsAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if fate, verdict := run(t, rules{holdSends: true, holdAnswers: true}); fate != nil || verdict != nil {
			t.Fatalf("%v; Verify: %v", fate, verdict)
		}
	})
}

// TestNaiveCutsAreNot: with any less held, letters are lost and doubled, and Verify finds every such cut.
func TestNaiveCutsAreNot(t *testing.T) {
	for name, r := range map[string]rules{
		"nothing is held": {}, "only what is sent": {holdSends: true}, "only what is answered": {holdAnswers: true},
	} {
		t.Run(name, func(t *testing.T) {
			bad, runs := 0, 0
			example := ""
			for range 100 { // times rapid's number of checks, until one is found
				rapid.Check(t, func(t *rapid.T) {
					runs++
					fate, verdict := run(t, r)
					if fate != nil {
						bad++
						example = fate.Error()
					}
					if fate != nil && !errors.Is(verdict, ErrInconsistent) {
						t.Fatalf("%v; Verify says %v", fate, verdict)
					}
				})
				if bad > 0 {
					break
				}
			}
			t.Logf("%d of %d cuts lose or double a letter, such as: %s", bad, runs, example)
			if bad == 0 {
				t.Error("a cut like this does no harm: the test proves nothing")
			}
		})
	}
}
