package transport

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// paceBytes is how much is sent in one piece: who sends more takes turns with others.
const paceBytes = 256 << 10

// Pace bounds how many bytes in a second a node sends to fill replicas, whatever the number of those and the way that the
// bytes go. It is safe for concurrent use; nil is no bound.
type Pace struct {
	limiter *rate.Limiter // nil: no bound
	sent    atomic.Uint64
	waited  atomic.Int64 // nanoseconds
}

// NewPace returns a bound of so many bytes in a second; 0 is none, but the bytes are counted.
func NewPace(bytesPerSecond uint64) *Pace {
	p := new(Pace)
	if bytesPerSecond > 0 {
		p.limiter = rate.NewLimiter(rate.Limit(bytesPerSecond), paceBytes)
	}
	return p
}

// Take waits until n bytes may be sent. It returns false if done was closed meanwhile.
func (p *Pace) Take(n int, done <-chan struct{}) bool {
	if p == nil || n <= 0 {
		return true
	}
	p.sent.Add(uint64(n))
	if p.limiter == nil {
		return true
	}
	begun := time.Now()
	defer func() { p.waited.Add(int64(time.Since(begun))) }()
	for ; n > 0; n -= paceBytes {
		r := p.limiter.ReserveN(time.Now(), min(n, paceBytes))
		wait := r.Delay()
		if wait == 0 {
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-done:
			t.Stop()
			r.Cancel()
			return false
		}
	}
	return true
}

// Stats are the bytes that were sent so far, and the time that senders have waited, summed up.
func (p *Pace) Stats() (sent uint64, waited time.Duration) {
	if p == nil {
		return 0, 0
	}
	return p.sent.Load(), time.Duration(p.waited.Load())
}
