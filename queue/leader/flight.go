package leader

import "sync/atomic"

// flightMax is how many bytes of entries all leaders of a node have in flight together, before each of them waits for its own to be
// applied: many times what is under way when a disk and a network are kept busy.
const flightMax = 64 << 20

// Flight counts the bytes of entries that the leaders of a node have in flight. Each leader's are bounded, but a message may go to
// thousands of queues. Beyond the bound each leader has one entry in flight, which nothing that another queue waits for can hold up. The
// zero value counts nothing yet; nil has no bound. What waits for an entry is counted apart.
type Flight struct{ bytes, waiting atomic.Int64 }

func (f *Flight) full() bool { return f != nil && f.bytes.Load() >= flightMax }

// crowded tells whether so much of other queues waits for entries that a leader takes nothing more beside what waits with it.
func (f *Flight) crowded() bool { return f != nil && f.waiting.Load() >= flightMax }

// fly notes that so many bytes are in flight, or not any more.
func (l *Leader) fly(n int) {
	l.flying += n
	if f := l.cfg.Flight; f != nil {
		f.bytes.Add(int64(n))
	}
}

// mayFly tells whether another entry may be put into the log now. What may not goes when one in flight has been applied.
func (l *Leader) mayFly() bool {
	n := len(l.inFlight)
	return n < entriesInFlight && l.flying < bytesInFlight && (n == 0 || !l.cfg.Flight.full())
}
