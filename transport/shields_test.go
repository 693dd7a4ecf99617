package transport

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// script answers a group's requests on a node in place of raft. A nil answer means
// silence.
func script(t testing.TB, m *Mesh, g GroupID, answer func(cmd any) any) *RaftTransport {
	t.Helper()
	rt := m.Raft(g, 0)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case rpc := <-rt.Consumer():
				if resp := answer(rpc.Command); resp != nil {
					rpc.Respond(resp, nil)
				}
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait(); rt.Close() })
	return rt
}

// agreeable grants every vote and accepts every entry.
func agreeable(cmd any) any {
	switch r := cmd.(type) {
	case *raft.RequestVoteRequest:
		return &raft.RequestVoteResponse{RPCHeader: r.RPCHeader, Term: r.Term, Granted: true}
	case *raft.RequestPreVoteRequest:
		return &raft.RequestPreVoteResponse{RPCHeader: r.RPCHeader, Term: r.Term, Granted: true}
	case *raft.AppendEntriesRequest:
		last := r.PrevLogEntry + uint64(len(r.Entries))
		return &raft.AppendEntriesResponse{RPCHeader: r.RPCHeader, Term: r.Term, LastLog: last, Success: true}
	default:
		return &raft.TimeoutNowResponse{}
	}
}

func headerOf(id NodeID) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)}
}

// patient timers: nothing happens unless the test makes it happen.
func patient(rc *raft.Config) {
	rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = 40*time.Second, 40*time.Second, 20*time.Second
	rc.CommitTimeout = 20 * time.Second
}

// withFastPath is what a stock transport does with heartbeats: it hands them to
// raft's callback beside the main loop. It shows that the schedule below finds the
// fault it is meant for.
type withFastPath struct {
	*RaftTransport
	consumer chan raft.RPC
	mu       sync.Mutex
	handler  func(raft.RPC)
}

func (w *withFastPath) Consumer() <-chan raft.RPC { return w.consumer }
func (w *withFastPath) SetHeartbeatHandler(f func(raft.RPC)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handler = f
}

func (w *withFastPath) forward(stop <-chan struct{}) {
	for {
		select {
		case rpc := <-w.RaftTransport.Consumer():
			a, ok := rpc.Command.(*raft.AppendEntriesRequest)
			w.mu.Lock()
			handler := w.handler
			w.mu.Unlock()
			if ok && len(a.Entries) == 0 && a.PrevLogEntry == 0 && handler != nil {
				handler(rpc)
				continue
			}
			select {
			case w.consumer <- rpc:
			case <-stop:
				return
			}
		case <-stop:
			return
		}
	}
}

// TestHeartbeatOfANewTermStopsTheOldLeader replays hashicorp/raft#695: a leader of
// term t gets one heartbeat of term t+1; its next Apply must not be written with a
// term it does not lead.
func TestHeartbeatOfANewTermStopsTheOldLeader(t *testing.T) {
	schedule := func(t *testing.T, fast bool) (usurped bool) {
		c := startTrio(t, nil)
		peer := script(t, c.meshes[1], 2, agreeable)
		script(t, c.meshes[2], 2, agreeable)
		rt := c.meshes[0].Raft(2, 0)
		var trans raft.Transport = rt
		stop := make(chan struct{})
		var wg sync.WaitGroup
		if fast {
			w := &withFastPath{RaftTransport: rt, consumer: make(chan raft.RPC)}
			wg.Go(func() { w.forward(stop) })
			trans = w
		}
		rc := quickRaft(c.ids[0])
		patient(rc)
		store, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		var conf raft.Configuration
		for _, id := range c.ids {
			conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
		}
		if err := raft.BootstrapCluster(rc, store, store, snaps, trans, conf); err != nil {
			t.Fatal(err)
		}
		r, err := raft.NewRaft(rc, &tape{}, store, store, snaps, trans)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { rt.Close(); r.Shutdown().Error(); close(stop); wg.Wait() }()
		if err := rt.InjectTimeoutNow(); err != nil {
			t.Fatal(err)
		}
		until(t, "it leads", func() bool { return r.State() == raft.Leader })
		if err := r.Apply([]byte("mine"), 5*time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		led := r.CurrentTerm()
		hb := &raft.AppendEntriesRequest{RPCHeader: headerOf(c.ids[1]), Term: led + 1, Leader: []byte(c.ids[1])}
		var resp raft.AppendEntriesResponse
		if err := peer.AppendEntries(raft.ServerID(c.ids[0]), raft.ServerAddress(c.ids[0]), hb, &resp); err != nil || !resp.Success {
			t.Fatalf("heartbeat: %+v, %v", resp, err)
		}
		r.Apply([]byte("stolen"), time.Second).Error()
		last, err := store.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		var l raft.Log
		if err := store.GetLog(last, &l); err != nil {
			t.Fatal(err)
		}
		return l.Term > led
	}
	t.Run("stock fast path shows the fault", func(t *testing.T) {
		if !schedule(t, true) {
			t.Fatal("the schedule no longer shows the fault it guards against")
		}
	})
	t.Run("ours is safe", func(t *testing.T) {
		if schedule(t, false) {
			t.Fatal("an entry was written with a term this node never led")
		}
	})
}

func logs(from, n, bytes int) []*raft.Log {
	var out []*raft.Log
	for i := range n {
		out = append(out, &raft.Log{Index: uint64(from + i), Term: 1, Data: make([]byte, bytes)})
	}
	return out
}

func TestAppendsAreShortenedInPlaceAndSayNoMoreThanTheyVerify(t *testing.T) {
	a, b := pair(t, func(c *Config) { c.AppendBytesMax = 10 << 10 })
	var got []*raft.AppendEntriesRequest
	script(t, b, 2, func(cmd any) any { got = append(got, cmd.(*raft.AppendEntriesRequest)); return agreeable(cmd) })
	rt := a.Raft(2, 0)
	var resp raft.AppendEntriesResponse
	send := func(req *raft.AppendEntriesRequest) {
		t.Helper()
		if err := rt.AppendEntries("b/1", "b/1", req, &resp); err != nil {
			t.Fatal(err)
		}
	}
	req := &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 3, PrevLogEntry: 6, PrevLogTerm: 1, LeaderCommitIndex: 100, Entries: logs(7, 20, 3<<10)}
	send(req)
	if len(req.Entries) != 3 || len(got[0].Entries) != 3 || req.Entries[2].Index != 9 {
		t.Fatalf("request has %d entries, frame %d, want 3", len(req.Entries), len(got[0].Entries))
	}
	if got[0].LeaderCommitIndex != 9 || req.LeaderCommitIndex != 100 {
		t.Fatalf("frame says commit %d, want 9; raft's request %d, want 100", got[0].LeaderCommitIndex, req.LeaderCommitIndex)
	}
	send(&raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 3, Entries: logs(1, 2, 50<<10)})
	if len(got[1].Entries) != 1 {
		t.Fatalf("a large entry travels with %d others", len(got[1].Entries)-1)
	}
}

// TestFollowerCommitsNothingUnverified shows why: a real follower with a divergent
// tail gets a short append and the leader's commit index.
func TestFollowerCommitsNothingUnverified(t *testing.T) {
	a, b := pair(t, nil)
	follower := startReplica(t, b, 2, patient, "a/1", "b/1")
	rt := a.Raft(2, 0)
	send := func(req *raft.AppendEntriesRequest) {
		t.Helper()
		req.RPCHeader = headerOf("a/1")
		var resp raft.AppendEntriesResponse
		if err := rt.AppendEntries("b/1", "b/1", req, &resp); err != nil || !resp.Success {
			t.Fatalf("append: %+v, %v", resp, err)
		}
	}
	entry := func(i, term uint64, data string) *raft.Log {
		return &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: []byte(data)}
	}
	send(&raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 1, PrevLogTerm: 1, Entries: []*raft.Log{entry(2, 2, "good"), entry(3, 2, "divergent")}})
	send(&raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 1, PrevLogTerm: 1, LeaderCommitIndex: 3, Entries: []*raft.Log{entry(2, 2, "good")}})
	if got := follower.CommitIndex(); got != 2 {
		t.Fatalf("commit index %d, want 2: entry 3 was compared with nothing", got)
	}
	send(&raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 2, PrevLogTerm: 2, LeaderCommitIndex: 3, Entries: []*raft.Log{entry(3, 3, "true")}})
	until(t, "two commands are applied", func() bool { return len(follower.fsm.all()) == 2 })
	if got := fmt.Sprint(follower.fsm.all()); got != "[good true]" {
		t.Fatalf("applied %s", got)
	}
}

func TestAppendWaitsForTheLink(t *testing.T) {
	d := &directory{}
	a := startMesh(t, d, "a/1", func(c *Config) { c.StreamWait = 300 * time.Millisecond })
	rt := a.Raft(2, 0)
	appendTo := func(rt *RaftTransport) <-chan error {
		ch := make(chan error, 1)
		go func() {
			var resp raft.AppendEntriesResponse
			ch <- rt.AppendEntries("b/1", "b/1", &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1}, &resp)
		}()
		return ch
	}
	start := time.Now()
	if err := <-appendTo(rt); !errors.Is(err, ErrPeerDown) || time.Since(start) < 250*time.Millisecond {
		t.Fatalf("append to a node that never comes = %v after %v", err, time.Since(start))
	}
	a.cfg.StreamWait = time.Minute // no request is running
	waiting := appendTo(rt)
	other := a.Raft(3, 0)
	closed := appendTo(other)
	until(t, "it dials", func() bool { return a.Peer("b/1").Err != nil })
	other.Close()
	if err := <-closed; !errors.Is(err, ErrClosed) {
		t.Fatalf("append of a closed group = %v", err)
	}
	b := startMesh(t, d, "b/1", nil)
	script(t, b, 2, agreeable)
	if err := <-waiting; err != nil {
		t.Fatalf("append after the link came = %v", err)
	}
}

func TestNoAppendsWhileTheLogIsStuck(t *testing.T) {
	healthy := true
	a, b := pair(t, func(c *Config) {
		if c.Local == "a/1" {
			c.Healthy = func() bool { return healthy }
		}
	})
	seen := 0
	script(t, b, 2, func(cmd any) any { seen++; return agreeable(cmd) })
	rt := a.Raft(2, 0)
	beat := func() error {
		var resp raft.AppendEntriesResponse
		return rt.AppendEntries("b/1", "b/1", &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1}, &resp)
	}
	pipe, err := rt.AppendEntriesPipeline("b/1", "b/1")
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	healthy = false
	if err := beat(); !errors.Is(err, ErrUnhealthy) {
		t.Errorf("heartbeat = %v", err)
	}
	if _, err := pipe.AppendEntries(&raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{}); !errors.Is(err, ErrUnhealthy) {
		t.Errorf("pipelined append = %v", err)
	}
	healthy = true
	if err := beat(); err != nil || seen != 1 {
		t.Errorf("healthy again: %v, %d seen", err, seen)
	}
}

func TestStuckCandidateIsFreed(t *testing.T) {
	refuse := func(cmd any) any {
		if r, ok := cmd.(*raft.RequestVoteRequest); ok {
			return &raft.RequestVoteResponse{RPCHeader: r.RPCHeader, Term: r.Term}
		}
		return agreeable(cmd)
	}
	t.Run("refused votes", func(t *testing.T) {
		c := startTrio(t, nil)
		var mu sync.Mutex
		kind := false
		for _, m := range c.meshes[1:] {
			script(t, m, 2, func(cmd any) any {
				mu.Lock()
				defer mu.Unlock()
				if kind {
					return agreeable(cmd)
				}
				return refuse(cmd)
			})
		}
		r := startReplica(t, c.meshes[0], 2, patient, c.ids...)
		if r.rt.FreeCandidate(0) {
			t.Fatal("a follower was freed")
		}
		if err := r.rt.InjectTimeoutNow(); err != nil {
			t.Fatal(err)
		}
		until(t, "it is a candidate with open votes", func() bool { r.rt.mu.Lock(); defer r.rt.mu.Unlock(); return len(r.rt.votes) == 2 })
		term := r.CurrentTerm()
		if r.rt.FreeCandidate(term + 5) {
			t.Fatal("a candidate of another term was freed")
		}
		if !r.rt.FreeCandidate(term) {
			t.Fatal("no open vote")
		}
		until(t, "it is a follower", func() bool { return r.State() == raft.Follower && r.CurrentTerm() == term+1 })
		mu.Lock()
		kind = true
		mu.Unlock()
		if err := r.rt.InjectTimeoutNow(); err != nil {
			t.Fatal(err)
		}
		until(t, "it leads", func() bool { return r.State() == raft.Leader })
	})
	t.Run("voters that cannot be reached, in pre-vote", func(t *testing.T) {
		d := &directory{}
		a := startMesh(t, d, "a/1", nil)
		r := startReplica(t, a, 2, nil, "a/1", "b/1", "c/1")
		until(t, "it is a candidate", func() bool {
			r.rt.mu.Lock()
			defer r.rt.mu.Unlock()
			return len(r.rt.votes) > 0
		})
		before := r.CurrentTerm()
		if !r.rt.FreeCandidate(before) {
			t.Fatal("no open vote")
		}
		until(t, "its term moves", func() bool { return r.CurrentTerm() > before })
	})
}

// TestVotesSurviveALostLink cuts the links of a candidate while its votes are under
// way: it still wins, without waiting for its long timer.
func TestVotesSurviveALostLink(t *testing.T) {
	c := startTrio(t, nil)
	cut := make(chan struct{}, 2)
	var once [2]sync.Once
	for i, m := range c.meshes[1:] {
		script(t, m, 2, func(cmd any) any {
			if _, ok := cmd.(*raft.RequestVoteRequest); ok {
				once[i].Do(func() {
					c.proxies[0][i+1].cut(false)
					cut <- struct{}{}
				})
			}
			return agreeable(cmd)
		})
	}
	r := startReplica(t, c.meshes[0], 2, patient, c.ids...)
	if err := r.rt.InjectTimeoutNow(); err != nil {
		t.Fatal(err)
	}
	<-cut
	<-cut
	until(t, "it leads", func() bool { return r.State() == raft.Leader })
}

func TestUnknownGroupIsHeldUntilTheHostStartsIt(t *testing.T) {
	a, b := pair(t, func(c *Config) {
		c.GroupHold = 2 * time.Second // a starved process starts the group in it
		c.CatalogIndex = func() uint64 { return 42 }
	})
	rt, lost := a.Raft(2, 0), a.Raft(3, 0)
	vote := &raft.RequestVoteRequest{RPCHeader: headerOf("a/1"), Term: 5}
	beat := func(rt *RaftTransport) error {
		var resp raft.AppendEntriesResponse
		return rt.AppendEntries("b/1", "b/1", &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1}, &resp)
	}
	if err := beat(rt); !errors.Is(err, ErrUnknownGroup) {
		t.Fatalf("without a hook: %v", err)
	}
	type ask struct {
		g       GroupID
		from    NodeID
		catalog uint64
	}
	asks := make(chan ask, 10)
	b.OnUnknownGroup(func(g GroupID, from NodeID, catalog uint64) {
		asks <- ask{g, from, catalog}
		if g == 2 {
			script(t, b, g, agreeable)
		}
	})
	var resp raft.RequestVoteResponse
	if err := rt.RequestVote("b/1", "b/1", vote, &resp); err != nil || !resp.Granted || resp.Term != 5 {
		t.Fatalf("held vote: %+v, %v", resp, err)
	}
	if got := <-asks; got != (ask{2, "a/1", 42}) {
		t.Fatalf("hook called with %+v", got)
	}
	start := time.Now()
	if err := beat(lost); !errors.Is(err, ErrUnknownGroup) || time.Since(start) < 1900*time.Millisecond {
		t.Fatalf("group that never starts: %v after %v", err, time.Since(start))
	}
	if got := <-asks; got.g != 3 {
		t.Fatalf("hook called with %+v", got)
	}
}

func TestFullInboxAnswersBusy(t *testing.T) {
	a, b := pair(t, func(c *Config) { c.InboxDepth = 4; c.AnswerWait = time.Minute })
	inbox := b.Raft(2, 0) // nobody consumes
	rt := a.Raft(2, 0)
	results := make(chan error, 10)
	for range 7 {
		go func() {
			var resp raft.AppendEntriesResponse
			results <- rt.AppendEntries("b/1", "b/1", &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1}, &resp)
		}()
	}
	for range 3 {
		if err := <-results; !errors.Is(err, ErrBusy) {
			t.Fatalf("overflow = %v, want busy", err)
		}
	}
	if err := inbox.InjectTimeoutNow(); !errors.Is(err, ErrBusy) {
		t.Fatalf("injection into a full inbox = %v", err)
	}
	// Another group of the same link is not held up.
	script(t, b, 3, agreeable)
	var resp raft.AppendEntriesResponse
	if err := a.Raft(3, 0).AppendEntries("b/1", "b/1", &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1}, &resp); err != nil {
		t.Fatal(err)
	}
	inbox.Close()
	for range 4 {
		if err := <-results; !errors.Is(err, ErrClosed) {
			t.Fatalf("closed group = %v", err)
		}
	}
	until(t, "the inbox is accounted for", func() bool { return b.Stats().InboxBytes == 0 })
}

func TestRestingGroupsCostNoGoroutine(t *testing.T) {
	a, b := pair(t, nil)
	before := runtime.NumGoroutine()
	for g := range GroupID(1000) {
		a.Raft(g+2, 0)
		b.Raft(g+2, 0)
	}
	if got := runtime.NumGoroutine(); got > before+100 { // links that are made at this moment have theirs
		t.Fatalf("%d goroutines more for 2000 groups", got-before)
	}
}

func TestOpeningAGroupTwiceClosesTheOlder(t *testing.T) {
	a, _ := pair(t, nil)
	old := a.Raft(2, 0)
	newer := a.Raft(2, 0)
	if err := old.InjectTimeoutNow(); !errors.Is(err, ErrClosed) {
		t.Fatalf("older instance: %v", err)
	}
	old.Close()
	if err := a.InjectAt(t.Context(), "a/1", 2); err != nil || len(newer.Consumer()) != 1 {
		t.Fatalf("newer instance was closed with the older: %v", err)
	}
	newer.Close()
	newer.Close()
	a.Close()
	if err := a.Raft(5, 0).InjectTimeoutNow(); !errors.Is(err, ErrClosed) {
		t.Fatalf("group of a closed mesh: %v", err)
	}
}
