package broker

import "time"

// levelBursts is the level of the cluster from which on leaders may hold publishers.
const levelBursts = 2

const (
	// burstMin publishes are a burst where fewer were under way.
	burstMin = 32
	// burstLongest is what a burst takes at the pace of the leader, at most; it is smaller where it would take longer.
	burstLongest = 100 * time.Millisecond
)

// burst is how a stream's publishes go while the queue's leader holds publishers: nearly as many at a time as are under way without that,
// and the next when all of these are answered and the leader's pace allows it. Settlements and everything else pass (ADR 47).
type burst struct {
	pace  uint64 // messages a second, 0: publishes go as they come
	count int    // publishes without an answer
	most  int    // of them, since publishers were held the last time
	usual int    // nearly all that is under way when publishers are free
	size  int    // of a burst
	sent  int    // of the one under way, of which began is the beginning
	began time.Time
	full  bool // all of it has gone out
	next  *time.Timer
}

func (b *burst) published() {
	b.count++
	if b.pace == 0 {
		b.most = max(b.most, b.count)
		return
	}
	if b.sent == 0 {
		b.began = time.Now()
	}
	b.sent++
	b.full = b.sent >= b.size
}

// answered takes an answer to n publishes, and how many messages a second the leader wants from now on. later is called, by a goroutine of its own, when the next burst may
// go if it may not yet.
func (b *burst) answered(n int, pace uint64, later func()) {
	b.count -= n
	if b.say(pace); pace > 0 {
		b.renew(later)
	}
}

// renew begins the next burst, if it is time.
func (b *burst) renew(later func()) {
	if b.full && b.count > 0 {
		return
	}
	wait := time.Until(b.began.Add(time.Duration(float64(b.size) / float64(b.pace) * float64(time.Second))))
	switch {
	case wait <= 0:
		b.sent, b.full = 0, false
	case b.full && b.next == nil:
		b.next = time.AfterFunc(wait, later)
	case b.full:
		b.next.Reset(wait)
	}
}

// say takes how many messages a second the leader wants from now on.
func (b *burst) say(pace uint64) {
	held := b.pace > 0
	b.pace = pace
	if pace == 0 {
		b.sent, b.full = 0, false
		if b.next != nil {
			b.next.Stop()
		}
		return
	}
	if !held {
		b.usual = max(burstMin, b.most*7/8, b.usual*3/4)
		b.sent, b.began, b.most = b.count, time.Now(), 0
	}
	b.size = max(1, int(min(float64(b.usual), float64(pace)*burstLongest.Seconds())))
	b.full = b.sent >= b.size
}
