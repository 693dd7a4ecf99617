package mover

import (
	"math/rand/v2"
	"time"
)

// flight is the window of transfers to one target.
type flight struct {
	sent, acked uint64
	bytes       int
	sizes       []int // of the transfers above acked
	room        room
	deadline    time.Time
	heard       time.Time // when it was last answered
	repeats     int       // of what may have met a sleeping target
	lapsed      int       // bytes that were not answered in time, and that the target's log may be about to take all the same
	lapsedAt    time.Time // when they were given up
	notBefore   time.Time
	backoff     time.Duration
	full        bool   // notBefore is there because the target is full
	doubt       bool   // it does not take what it is sent: it is asked before, see Mover.ask
	asked       bool   // and was, without an answer yet
	cleared     uint64 // the number of the stopped redrive that clearWay has looked after
	review      review
	next        succession // zero while the target is what it was
	// hops are the spans of letters under way that are traced, by their sequence.
	hops map[uint64]*hop
}

func (f *flight) ack(upTo uint64) {
	f.room.taken()
	f.lapsed = 0
	n := min(upTo-f.acked, uint64(len(f.sizes)))
	for _, s := range f.sizes[:n] {
		f.bytes -= s
	}
	f.sizes = f.sizes[n:]
	f.acked = upTo
	f.sent = max(f.sent, upTo)
	f.heard, f.repeats = time.Now(), 0
	f.deadline = f.heard.Add(answerTimeout)
	f.backoff = 0
}

// patience is how long the answer to the first transfer under way is waited for, and whether that is because the target may sleep. All these
// waits are answerTimeout together.
func (f *flight) patience(now time.Time) (d time.Duration, short bool) {
	switch {
	case f.repeats > quietRepeats || now.Sub(f.heard) < quietAfter:
		return answerTimeout, false
	case f.repeats == quietRepeats:
		return answerTimeout - quietTimeout<<quietRepeats + quietTimeout, false
	}
	return quietTimeout << f.repeats, true
}

// lapse gives up waiting for the answer to what is under way.
func (f *flight) lapse(now time.Time) {
	if f.bytes > 0 {
		f.lapsed, f.lapsedAt = f.bytes, now
	}
	f.rewind(f.acked)
	f.doubt, f.asked = true, false
}

func (f *flight) rewind(to uint64) {
	f.acked = max(f.acked, min(to, f.sent))
	f.sent, f.sizes, f.bytes = f.acked, nil, 0
}

// pause waits longer each time, with jitter so that many sources do not return
// to one target at once. All answers to one window are one time.
func (f *flight) pause() {
	if time.Now().Before(f.notBefore) {
		return
	}
	f.backoff = min(max(backoffMin, 2*f.backoff), backoffMax)
	f.notBefore = time.Now().Add(f.backoff/2 + rand.N(f.backoff))
}
