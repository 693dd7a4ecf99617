package broker

import (
	"runtime"
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// What a stream has taken for very many deliveries is given back when these are settled: it lives as long as its queue.
func TestRoomOfDeliveriesComesBack(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const n = 50_000
	s := newStreamRig(t).s
	s.leader = "leader"
	before := heap()
	for id := queue.MessageID(1); id <= n; id++ {
		s.holdLocked(id, &holding{no: 1})
	}
	for id := queue.MessageID(1); id < n; id++ {
		s.settle(fsm.Ack, id, 0)
	}
	s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: s.next - 1, Next: s.next})
	if len(s.held) != 1 || s.held[n] == nil {
		t.Fatalf("%d are held", len(s.held))
	}
	if left := heap() - before; left > 64<<10 {
		t.Fatalf("%d bytes are left", left)
	}
	runtime.KeepAlive(s)
}
