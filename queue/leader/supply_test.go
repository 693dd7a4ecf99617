package leader

import (
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// Letters of many sources wait here while there is room for them. The others are told to come again, and do: all of them arrive, once.
func TestManySourcesAtOnce(t *testing.T) {
	const sources, size = 128, 512 << 10
	a := node(1)
	flight := &Flight{}
	r := newRigWith(t, plain(), func(cfg *Config) { cfg.Flight = flight }, a)
	r.answerRoll(a)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	body := strings.Repeat("x", size)
	for s := range uint64(sources) {
		r.l.Receive(a.ID, transfer(100+s, 1, body))
	}
	ask := func() { // what came before is handled then
		reply := make(chan string, 1)
		r.l.post(inspect{reply})
		<-reply
	}
	ask()
	if n := flight.waiting.Load(); n > supplyMax+size+1024 || n < supplyMax {
		t.Fatalf("%d bytes wait for entries, want %d and a letter", n, supplyMax)
	}
	turned, taken := map[uint64]bool{}, map[uint64]bool{} // away, and taken
	for len(taken) < sources {
		select {
		case data := <-slow.held:
			slow.MemLog.Propose(data, nil)
		default:
		}
		ask()
		for _, ans := range r.answers() {
			switch {
			case ans.UpTo == 1:
				taken[ans.Source] = true
				delete(turned, ans.Source)
			case ans.Gap:
				turned[ans.Source] = true
			}
		}
		for s := range turned {
			r.l.Receive(a.ID, transfer(s, 1, body))
			break
		}
	}
	r.replica.View(func(m *fsm.Machine) {
		if n := m.Queue().Len(); n != sources {
			t.Errorf("%d letters, want %d", n, sources)
		}
	})
	ask()
	if n := flight.waiting.Load(); n != 0 {
		t.Errorf("%d bytes wait although all is taken", n)
	}
}

// answers takes out what transfers were answered.
func (r *rig) answers() (list []*wire.TransferAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.out[:0]
	for _, s := range r.out {
		if a, ok := s.m.(*wire.TransferAnswer); ok {
			list = append(list, a)
			continue
		}
		kept = append(kept, s)
	}
	r.out = kept
	return list
}

// While the queues of a node have much waiting together, each takes one transfer at a time; and what waits is not counted any more when the
// session is over.
func TestNodeFullOfTransfers(t *testing.T) {
	a := node(1)
	flight := &Flight{}
	r := newRigWith(t, plain(), func(cfg *Config) { cfg.Flight = flight }, a)
	r.answerRoll(a)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	flight.waiting.Add(flightMax) // of another queue
	for s := range uint64(8) {
		r.l.Receive(a.ID, transfer(100+s, 1, strings.Repeat("x", 1000)))
	}
	eventually(t, "somebody to be turned away", func() bool {
		for _, ans := range r.answers() {
			if ans.Gap {
				return true
			}
		}
		return false
	})
	other := uint64(200)
	eventually(t, "somebody to be told so who asks", func() bool {
		r.l.Receive(a.ID, transfer(other, 1, "x")) // until so many entries are in the log that it waits
		other++
		r.l.Receive(a.ID, transfer(99, 1))
		return slices.ContainsFunc(r.answers(), func(ans *wire.TransferAnswer) bool { return ans.Source == 99 && ans.Gap })
	})
	slow.let(1)
	r.l.Stop()
	eventually(t, "the end of what waits", func() bool { return flight.waiting.Load() == flightMax })
}

// A source that asks while what it has sent is not committed is not told to send it again.
func TestUncommittedLettersAreNotAskedForAgain(t *testing.T) {
	const source = 100
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	r.l.Receive(a.ID, transfer(source, 1, "x"))
	r.l.Receive(a.ID, transfer(source, 1))
	eventually(t, "an answer", func() bool {
		list := r.answers()
		for _, ans := range list {
			if ans.UpTo != 0 || !ans.Gap {
				t.Fatalf("answered %+v", ans)
			}
		}
		return len(list) > 0
	})
	slow.let(1)
	eventually(t, "the end", func() bool {
		r.l.Receive(a.ID, transfer(source, 2))
		return slices.ContainsFunc(r.answers(), func(ans *wire.TransferAnswer) bool { return ans.UpTo == 1 && !ans.Gap })
	})
}
