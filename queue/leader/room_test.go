package leader

import (
	"runtime"
	"testing"

	"github.com/warrenmq/warren/queue"
)

func heapNow() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What a leader has taken for very many deliveries is given back when these are over, and what came back and was purged
// is not looked at by the next delivery.
func TestRoomOfHoldsComesBack(t *testing.T) {
	const n = 50_000
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.attach(a, 1, 0)
	r.publish(a, "1", "2")
	r.items(a, 2)
	r.l.Stop() // from here on the test runs it
	l := r.l
	before := heapNow()
	for id := queue.MessageID(3); id < n; id++ {
		l.hold(queue.Message{ID: id, BodyBytes: 1}, 1, 1)
	}
	l.spareRoom()
	for id := queue.MessageID(3); id < n; id++ {
		l.letGo(id)
		l.ready.cursor[0] = id
		l.ready.putBack(queue.Message{ID: id})
	}
	l.spareRoom()
	if len(l.held) != 2 || l.held[2].node != 1 || l.limits.heldBytes != 2 {
		t.Fatalf("held %v, %d bytes", l.held, l.limits.heldBytes)
	}
	purged := l.ready.back[0].Len()
	l.seen.n = 0
	l.spareRoom()
	if len(l.ready.back) > 0 {
		t.Fatalf("%d messages that are gone are to be looked at", purged)
	}
	if left := heapNow() - before; left > 64<<10 {
		t.Fatalf("%d bytes are left", left)
	}
	runtime.KeepAlive(l)
}
