package leader

import (
	"log/slog"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// BenchmarkThrough takes 1 KiB messages from publish to ack through a leader over
// a log in memory: what the leader and the machine cost, without Raft and
// sockets. One operation is one message.
func BenchmarkThrough(b *testing.B) {
	a := node(1)
	r := NewReplica()
	down := make(chan wire.Message, 1<<16)
	l := Lead(r, Config{
		Queue: 7, Log: NewMemLog(r), Session: 1,
		Send:            func(_ string, m wire.Message) { down <- m },
		LiveNodes:       func() []Node { return []Node{a} },
		Now:             func() int64 { return time.Now().UnixMilli() },
		Settings:        func() (queue.Settings, uint64, string, string) { return plain(), 1, "/", "q" },
		CatalogRevision: func() uint64 { return 1 },
		SourceExists:    func(uint64) bool { return true },
		Logger:          slog.New(slog.DiscardHandler),
	})
	defer l.Stop()
	for m := range down {
		if rc, ok := m.(*wire.RollCall); ok {
			l.Receive(a.ID, &wire.Resync{Queue: 7, Session: rc.Session, No: 1, Origin: a.Origin})
			break
		}
	}
	l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{No: 1, Prefetch: 1000, WindowMessages: 1 << 40, WindowBytes: 1 << 50}})
	l.Receive(a.ID, &wire.Query{Queue: 7, Origin: a.Origin, Req: 1})
	for m := range down {
		if _, active := m.(*wire.Status); active {
			break
		}
	}
	op := pub(string(make([]byte, 1024)))
	const burst = 64
	seq, sent, done := uint64(1), 0, 0
	b.ReportAllocs()
	b.ResetTimer()
	for done < b.N {
		for sent-done < 8*burst {
			ops := make([]fsm.Op, burst)
			for i := range ops {
				ops[i] = op
			}
			l.Receive(a.ID, &wire.Batch{Queue: 7, Stream: fsm.Stream{Origin: a.Origin, First: seq, Ops: ops}})
			seq += burst
			sent += burst
		}
		if d, ok := (<-down).(*wire.Deliver); ok {
			s := fsm.Settle{Kind: fsm.Ack}
			for _, it := range d.Items {
				s.Runs = appendRun(s.Runs, it.ID, it.Attempt)
			}
			l.Receive(a.ID, &wire.Batch{Queue: 7, Stream: fsm.Stream{Origin: a.Origin, First: seq, Ops: []fsm.Op{s}}})
			seq++
			done += len(d.Items)
		}
	}
}
