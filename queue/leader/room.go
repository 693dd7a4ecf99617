package leader

import (
	"maps"

	"github.com/warrenmq/warren/queue"
)

// roomKept is how many holds, or messages that have come back, the leader keeps room for, however few there are now.
const roomKept = 1024

// spareRoom lets go of what many messages have taken that are not there any more: maps and lists keep their room.
func (l *Leader) spareRoom() {
	n := len(l.held)
	if l.heldMost = max(l.heldMost, n); l.heldMost > roomKept && n < l.heldMost/8 {
		held := make(map[queue.MessageID]hold, n)
		maps.Copy(held, l.held)
		l.held, l.heldMost = held, n
	}
	if l.seen.n == 0 {
		l.ready.forget()
	}
}

// forget is called when the queue is empty. What came back and was purged, or has expired, is met by nobody any more.
func (v *readyView) forget() {
	clear(v.back)
	if len(v.unseen) > 0 {
		v.unseen = map[queue.MessageID]uint8{}
	}
}
