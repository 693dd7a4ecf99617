package transport

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func pipelineOf(t *testing.T, rt *RaftTransport) raft.AppendPipeline {
	t.Helper()
	p, err := rt.AppendEntriesPipeline("b/1", "b/1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func entriesRequest(from, n, bytes int) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: headerOf("a/1"), Term: 1, PrevLogEntry: uint64(from - 1), PrevLogTerm: 1,
		LeaderCommitIndex: 1000, Entries: logs(from, n, bytes),
	}
}

func readFuture(t *testing.T, p raft.AppendPipeline) raft.AppendFuture {
	t.Helper()
	select {
	case f := <-p.Consumer():
		return f
	case <-time.After(30 * time.Second):
		t.Fatal("no future")
		return nil
	}
}

func TestPipelineKeepsItsWindowAndOrder(t *testing.T) {
	a, b := pair(t, nil)
	release := make(chan struct{})
	var arrived atomic.Int64
	script(t, b, 2, func(cmd any) any { arrived.Add(1); <-release; return agreeable(cmd) })
	p := pipelineOf(t, a.Raft(2, 0))
	sent := make(chan error, 3)
	go func() {
		for i := range 3 {
			_, err := p.AppendEntries(entriesRequest(1+10*i, 10, 100), new(raft.AppendEntriesResponse))
			sent <- err
		}
	}()
	for range 2 {
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-sent:
		t.Fatalf("a third request was sent into a window of two: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f := readFuture(t, p)
		if f.Error() != nil || !f.Response().Success || f.Request().Entries[0].Index != uint64(1+10*i) || f.Response().LastLog != uint64(10+10*i) {
			t.Fatalf("future %d: %+v, %v", i, f.Response(), f.Error())
		}
		if f.Start().IsZero() {
			t.Fatal("no start time")
		}
	}
}

func TestPipelineSplitsLargeRequests(t *testing.T) {
	a, b := pair(t, func(c *Config) { c.AppendBytesMax = 10 << 10 })
	var frames []*raft.AppendEntriesRequest
	refuseFrom := uint64(1 << 60)
	script(t, b, 2, func(cmd any) any {
		r := cmd.(*raft.AppendEntriesRequest)
		frames = append(frames, r)
		resp := agreeable(cmd).(*raft.AppendEntriesResponse)
		if r.PrevLogEntry >= refuseFrom {
			resp.Success, resp.LastLog = false, refuseFrom
		}
		return resp
	})
	p := pipelineOf(t, a.Raft(2, 0))
	send := func() raft.AppendFuture {
		t.Helper()
		if _, err := p.AppendEntries(entriesRequest(5, 10, 3<<10), new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		return readFuture(t, p)
	}
	f := send()
	if f.Error() != nil || !f.Response().Success || f.Response().LastLog != 14 || len(f.Request().Entries) != 10 {
		t.Fatalf("future: %d entries, %+v, %v", len(f.Request().Entries), f.Response(), f.Error())
	}
	want := [][3]uint64{{4, 3, 7}, {7, 3, 10}, {10, 3, 13}, {13, 1, 14}} // previous, entries, commit
	for i, w := range want {
		if got := [3]uint64{frames[i].PrevLogEntry, uint64(len(frames[i].Entries)), frames[i].LeaderCommitIndex}; got != w {
			t.Errorf("frame %d: %v, want %v", i, got, w)
		}
	}
	refuseFrom = 10
	f = send()
	if f.Error() != nil || f.Response().Success || f.Response().LastLog != 10 {
		t.Fatalf("refused in the middle: %+v, %v", f.Response(), f.Error())
	}
}

func TestPipelineEndsWithItsStream(t *testing.T) {
	d := &directory{}
	a, b := startMesh(t, d, "a/1", nil), startMesh(t, d, "b/1", nil)
	proxy := startProxy(t, b.cfg.Listener.Addr().String())
	d.set("a/1", "b/1", proxy.addr())
	a.SetPeers([]NodeID{"b/1"})
	untilUp(t, a, "b/1")
	var silent atomic.Bool
	silent.Store(true)
	script(t, b, 2, func(cmd any) any {
		if silent.Load() {
			return nil
		}
		return agreeable(cmd)
	})
	rt := a.Raft(2, 0)
	failed := make(chan NodeID, 10)
	rt.OnAppendFailed(func(to NodeID) { failed <- to })
	p := pipelineOf(t, rt)
	resp := &raft.AppendEntriesResponse{Success: true, Term: 77}
	if _, err := p.AppendEntries(entriesRequest(1, 1, 10), resp); err != nil {
		t.Fatal(err)
	}
	proxy.cut(false)
	f := readFuture(t, p)
	if !errors.Is(f.Error(), ErrPeerDown) || f.Response().Success || f.Response().Term != 0 {
		t.Fatalf("future of a lost stream: %+v, %v", f.Response(), f.Error())
	}
	if got := <-failed; got != "b/1" {
		t.Fatalf("failure reported for %s", got)
	}
	silent.Store(false)
	untilUp(t, a, "b/1")
	if _, err := p.AppendEntries(entriesRequest(1, 1, 10), resp); !errors.Is(err, ErrPeerDown) {
		t.Fatalf("a pipeline of a lost stream accepts requests: %v", err)
	}
	again := pipelineOf(t, rt)
	if _, err := again.AppendEntries(entriesRequest(1, 1, 10), resp); err != nil {
		t.Fatal(err)
	}
	// The older request was given to the script, which is silent about it: the group's
	// answers are in order, so the new one waits behind it until the group is reopened.
	again.Close()
	if _, err := again.AppendEntries(entriesRequest(1, 1, 10), resp); !errors.Is(err, raft.ErrPipelineShutdown) {
		t.Fatalf("closed pipeline: %v", err)
	}
}

func TestPipelineWaitsForItsReader(t *testing.T) {
	a, b := pair(t, nil)
	script(t, b, 2, agreeable)
	p := pipelineOf(t, a.Raft(2, 0))
	const n = 5 * pipelineUnread
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			if _, err := p.AppendEntries(entriesRequest(1+i, 1, 10), new(raft.AppendEntriesResponse)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	until(t, "the unread futures fill up", func() bool { return len(p.Consumer()) >= pipelineUnread })
	for i := range n {
		f := readFuture(t, p)
		if f.Error() != nil || f.Request().Entries[0].Index != uint64(1+i) {
			t.Fatalf("future %d: entry %d, %v", i, f.Request().Entries[0].Index, f.Error())
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestPipelineCanBeTurnedOff(t *testing.T) {
	a, _ := pair(t, func(c *Config) { c.PipelineDepth = 1 })
	if _, err := a.Raft(2, 0).AppendEntriesPipeline("b/1", "b/1"); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Fatalf("AppendEntriesPipeline = %v", err)
	}
}

func TestPipelineCloseFreesASenderThatWaits(t *testing.T) {
	a, b := pair(t, nil)
	b.Raft(2, 0) // nobody answers
	rt := a.Raft(2, 0)
	for _, end := range []func(raft.AppendPipeline){func(p raft.AppendPipeline) { p.Close() }, func(raft.AppendPipeline) { rt.Close() }} {
		p := pipelineOf(t, rt)
		sent := make(chan error, 1)
		go func() {
			for {
				if _, err := p.AppendEntries(entriesRequest(1, 1, 10), new(raft.AppendEntriesResponse)); err != nil {
					sent <- err
					return
				}
			}
		}()
		pp := p.(*appendPipeline)
		until(t, "the window is full", func() bool { pp.mu.Lock(); defer pp.mu.Unlock(); return pp.frames == 2 })
		end(p)
		if err := <-sent; !errors.Is(err, raft.ErrPipelineShutdown) && !errors.Is(err, ErrClosed) {
			t.Fatalf("waiting sender: %v", err)
		}
	}
}
