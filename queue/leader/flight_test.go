package leader

import "testing"

// While the leaders of a node have too much in flight, each of them waits for its one entry; and what is in flight is not counted any more
// when it has been applied, or its session is over.
func TestNodeFullOfEntries(t *testing.T) {
	a := node(1)
	flight := &Flight{}
	r := newRigWith(t, plain(), func(cfg *Config) { cfg.Flight = flight }, a)
	r.answerRoll(a)
	r.publish(a, "1")
	quiet := func(want int64) {
		t.Helper()
		eventually(t, "the end of what was in flight", func() bool { return flight.bytes.Load() == want })
	}
	quiet(0)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	handled := func() {
		for range 2 { // the first is answered before what came with it is proposed
			reply := make(chan string, 1)
			r.l.post(inspect{reply})
			<-reply
		}
	}
	quiet(0)
	flight.bytes.Add(flightMax) // of another queue
	proposed := func(want int) {
		t.Helper()
		handled()
		if got := len(slow.held); got != want {
			t.Fatalf("%d entries in flight, want %d", got, want)
		}
	}
	r.batch(a, pub("2"))
	eventually(t, "an entry", func() bool { return len(slow.held) == 1 })
	r.batch(a, pub("3"))
	proposed(1)
	r.batch(a, pub("4"))
	proposed(1)
	slow.let(1)
	eventually(t, "the next entry", func() bool { return len(slow.held) == 1 })
	flight.bytes.Add(-flightMax)
	r.batch(a, pub("5"))
	eventually(t, "another one, as there is room", func() bool { return len(slow.held) == 2 })
	r.l.Stop()
	quiet(0)
}
