package transport

import "time"

// twinsEvery is the time between two lines in the log about two processes of one node.
const twinsEvery = 10 * time.Second

// runs are the newest process of a node that was heard, and the one before. No process comes back once another one has taken its place, unless both
// run: a data folder was copied.
type runs struct{ now, before uint64 }

// twins notes whose stream begins, and tells whether that should be said: two processes take each other's place. m.mu is held.
func (m *Mesh) twins(in *inbound) bool {
	r := m.ran[in.from]
	if r.now == in.process {
		return false
	}
	m.ran[in.from] = runs{now: in.process, before: r.now}
	if r.before != in.process || time.Since(m.told) < twinsEvery {
		return false
	}
	m.told = time.Now()
	return true
}
