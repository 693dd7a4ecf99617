package transport

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
)

// BenchmarkCall measures an echo call of 1 KiB between two nodes, one caller.
func BenchmarkCall(b *testing.B) {
	x, y := pair(b, nil)
	y.HandleCall(1, func(_ context.Context, _ NodeID, req []byte) ([]byte, error) { return req, nil })
	payload := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.Call(b.Context(), "b/1", 1, payload); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCallParallel is the same with 64 callers, whose frames coalesce.
func BenchmarkCallParallel(b *testing.B) {
	x, y := pair(b, nil)
	y.HandleCall(1, func(_ context.Context, _ NodeID, req []byte) ([]byte, error) { return req, nil })
	b.ReportAllocs()
	b.SetParallelism(max(64/runtime.GOMAXPROCS(0), 1))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := x.Call(context.Background(), "b/1", 1, make([]byte, 1024)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkSend measures one-way messages, until the last has arrived.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{128, 1024, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x, y := pair(b, nil)
			var got atomic.Int64
			y.Handle(1, func(NodeID, []byte) { got.Add(1) })
			b.SetBytes(int64(size))
			b.ReportAllocs()
			sent := int64(0)
			for b.Loop() {
				payload := make([]byte, size)
				for {
					err := x.Send("b/1", 1, payload)
					if err == nil {
						break
					}
					if !errors.Is(err, ErrBacklog) {
						b.Fatal(err)
					}
					runtime.Gosched()
				}
				sent++
			}
			for got.Load() < sent {
				runtime.Gosched()
			}
		})
	}
}

// BenchmarkHeartbeats measures how heartbeats of many groups share messages: one
// iteration is a heartbeat and its answer of each of 1,000 groups.
func BenchmarkHeartbeats(b *testing.B) {
	x, y := pair(b, nil)
	const groups = 1000
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var rts []*RaftTransport
	for g := range GroupID(groups) {
		in := y.Raft(g+2, 0)
		wg.Go(func() {
			for {
				select {
				case rpc := <-in.Consumer():
					rpc.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
				case <-stop:
					return
				}
			}
		})
		rts = append(rts, x.Raft(g+2, 0))
	}
	before := x.Stats()
	for b.Loop() {
		var round sync.WaitGroup
		for _, rt := range rts {
			round.Go(func() {
				req := &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1, Leader: []byte("a/1")}
				var resp raft.AppendEntriesResponse
				if err := rt.AppendEntries("b/1", "b/1", req, &resp); err != nil {
					b.Error(err)
				}
			})
		}
		round.Wait()
	}
	after := x.Stats()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*groups), "ns/heartbeat")
	b.ReportMetric(float64(after.FramesOut-before.FramesOut)/float64(max(after.MessagesOut-before.MessagesOut, 1)), "frames/message")
	close(stop)
	wg.Wait()
}

// BenchmarkAppend measures pipelined appends of 64 entries of 1 KiB to a follower
// that does nothing.
func BenchmarkAppend(b *testing.B) {
	x, y := pair(b, nil)
	in := y.Raft(2, 0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case rpc := <-in.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
			case <-stop:
				return
			}
		}
	})
	p, err := x.Raft(2, 0).AppendEntriesPipeline("b/1", "b/1")
	if err != nil {
		b.Fatal(err)
	}
	wg.Go(func() {
		for {
			select {
			case <-p.Consumer():
			case <-stop:
				return
			}
		}
	})
	b.SetBytes(64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.AppendEntries(entriesRequest(1, 64, 1024), new(raft.AppendEntriesResponse)); err != nil {
			b.Fatal(err)
		}
	}
	p.Close()
	close(stop)
	wg.Wait()
}

// BenchmarkRaftCommit measures entries of 1 KiB through three raft nodes with stores
// in memory, 256 proposals at a time.
func BenchmarkRaftCommit(b *testing.B) {
	c := &trio{dir: &directory{}, ids: []NodeID{"n1/u1", "n2/u2", "n3/u3"}} // no proxies
	for _, id := range c.ids {
		c.meshes = append(c.meshes, startMesh(b, c.dir, id, nil))
	}
	for i, m := range c.meshes {
		m.SetPeers(c.ids)
		for j, id := range c.ids {
			if i != j {
				untilUp(b, m, id)
			}
		}
	}
	rs := c.startGroup(b, 2, func(rc *raft.Config) {
		patient(rc)
		rc.BatchApplyCh = true
		rc.SnapshotThreshold = 1 << 40
	})
	if err := rs[0].rt.InjectTimeoutNow(); err != nil {
		b.Fatal(err)
	}
	until(b, "it leads", func() bool { return rs[0].State() == raft.Leader })
	data := make([]byte, 1024)
	b.SetBytes(1024)
	b.SetParallelism(max(256/runtime.GOMAXPROCS(0), 1))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := rs[0].Apply(data, 0).Error(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
