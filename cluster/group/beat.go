package group

import (
	"sync"
	"time"
)

// beats has the heartbeats of a node's groups leave together: one message to a node for all of
// them, and one back, instead of one each. It has a timer only while a heartbeat waits.
type beats struct {
	every time.Duration

	mu   sync.Mutex
	next chan struct{} // closed at the next beat; nil while nobody waits for it
}

// beatsPerHeartbeat is how many beats fit into raft's heartbeat timeout. A heartbeat is due every
// tenth to fifth of it, so that this delays it little.
const beatsPerHeartbeat = 60

func newBeats(p Profile) *beats { return &beats{every: p.Heartbeat / beatsPerHeartbeat} }

// wait returns a channel that is closed at the next beat.
func (b *beats) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		next := make(chan struct{})
		b.next = next
		time.AfterFunc(b.every, func() { // nothing is left of it then
			b.mu.Lock()
			b.next = nil
			b.mu.Unlock()
			close(next)
		})
	}
	return b.next
}

// awaitBeat holds a heartbeat back until the next beat, unless somebody waits for its answer.
func (g *Group) awaitBeat() {
	// Taken before the look, so that nobody who asks is missed.
	nudged := g.nudged()
	if now := time.Since(g.host.began); now-time.Duration(g.verified.Load()) < verifyRecent && g.verified.Load() > 0 {
		return
	}
	select {
	case <-g.host.beats.wait():
	case <-nudged:
	case <-g.stopped:
	}
}

// verifyRecent is how long after a question to the voters heartbeats are not held back.
const verifyRecent = 500 * time.Millisecond
