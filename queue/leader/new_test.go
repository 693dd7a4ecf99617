package leader

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// heldLog commits nothing until it is let go.
type heldLog struct {
	*MemLog
	release chan struct{}
}

func (l heldLog) Propose(data []byte, done func(error)) {
	go func() {
		<-l.release
		l.MemLog.Propose(data, done)
	}()
}

// What is asked of the first leader of all before its first entry is committed is answered then, and not
// before: nobody has to say it again, and nobody is asked what he holds.
func TestNewQueueCallsNoRoll(t *testing.T) {
	a, b := Node{ID: "a", Origin: fsm.Origin{Node: 1, Incarnation: 1}}, Node{ID: "b", Origin: fsm.Origin{Node: 2, Incarnation: 1}}
	r := newQueueRig(t, a, b)
	held := heldLog{r.log, make(chan struct{})}
	r.change = func(c *Config) { c.Log, c.New = held, true }
	r.lead()
	r.l.Receive("a", &wire.Resync{Queue: 7, No: 1, Origin: a.Origin})
	r.l.Receive("a", &wire.Query{Queue: 7, Origin: a.Origin, Req: 5})
	// b's Resync is lost: what it asks is asked again behind its answer to the roll call.
	r.l.Receive("b", &wire.Query{Queue: 7, Origin: b.Origin, Req: 6})
	time.Sleep(20 * time.Millisecond)
	r.mu.Lock()
	if len(r.out) > 0 {
		t.Fatalf("said before the first entry is committed: %v", r.out)
	}
	r.mu.Unlock()
	close(held.release)
	if st := await[*wire.Status](r, "a", nil); st.Req != 5 {
		t.Fatalf("status of request %d", st.Req)
	}
	await[*wire.RollCall](r, "b", nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.out {
		if _, ok := s.m.(*wire.RollCall); ok {
			t.Fatalf("the roll is called at %s", s.to)
		}
	}
}

// What a node publishes to a new queue before the first entry is committed is not kept. It is asked for, with everything that
// waits behind it: the node would say it again only after a second without an answer.
func TestNewQueueAsksForWhatItDidNotKeep(t *testing.T) {
	a, b := Node{ID: "a", Origin: fsm.Origin{Node: 1, Incarnation: 1}}, Node{ID: "b", Origin: fsm.Origin{Node: 2, Incarnation: 1}}
	r := newQueueRig(t, a, b)
	held := heldLog{r.log, make(chan struct{})}
	r.change = func(c *Config) { c.Log, c.New = held, true }
	r.lead()
	r.l.Receive("a", &wire.Resync{Queue: 7, No: 1, Origin: a.Origin})
	r.batch(a, pub("early"))
	r.l.Receive("a", &wire.Query{Queue: 7, Origin: a.Origin, Req: 5, After: 1})
	r.l.Receive("b", &wire.Resync{Queue: 7, No: 1, Origin: b.Origin})
	r.l.Receive("b", &wire.Query{Queue: 7, Origin: b.Origin, Req: 6})
	close(held.release)
	await[*wire.Status](r, "b", nil)
	r.seq[1] = 0
	rc := await[*wire.RollCall](r, "a", nil)
	r.l.Receive("a", &wire.Resync{Queue: 7, Session: rc.Session, No: 2, Origin: a.Origin})
	r.batch(a, pub("early"))
	if s := r.status(a, 7); s.Ready != 1 {
		t.Errorf("%d messages", s.Ready)
	}
}

// The second leader calls the roll, although the first has done nothing but begin.
func TestSecondLeaderCallsTheRoll(t *testing.T) {
	a := Node{ID: "a", Origin: fsm.Origin{Node: 1, Incarnation: 1}}
	r := newQueueRig(t, a)
	r.change = func(c *Config) { c.New = true }
	r.lead()
	r.l.Receive("a", &wire.Resync{Queue: 7, No: 1, Origin: a.Origin})
	r.l.Receive("a", &wire.Query{Queue: 7, Origin: a.Origin, Req: 5})
	await[*wire.Status](r, "a", nil)
	r.lead()
	await[*wire.RollCall](r, "a", nil)
}

// A Resync that was overtaken by the next one takes nothing back that came behind that one.
func TestOvertakenResync(t *testing.T) {
	a := Node{ID: "a", Origin: fsm.Origin{Node: 1, Incarnation: 1}}
	r := newQueueRig(t, a)
	held := heldLog{r.log, make(chan struct{})}
	r.change = func(c *Config) { c.Log, c.New = held, true }
	r.lead()
	r.l.Receive("a", &wire.Resync{Queue: 7, No: 2, Origin: a.Origin})
	r.l.Receive("a", &wire.Query{Queue: 7, Origin: a.Origin, Req: 5})
	r.l.Receive("a", &wire.Resync{Queue: 7, No: 1, Origin: a.Origin})
	close(held.release)
	if st := await[*wire.Status](r, "a", nil); st.Req != 5 {
		t.Fatalf("status of request %d", st.Req)
	}
}
