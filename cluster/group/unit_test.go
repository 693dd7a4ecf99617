package group

import (
	"bytes"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/warrenmq/warren/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatusMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Map(rapid.Uint64(), func(v uint64) transport.GroupID { return transport.GroupID(v) }), 0, 20).Draw(t, "ids")
		flags, got, err := decodeStatusRequest(encodeStatusRequest(askLeaderless, ids))
		if err != nil || flags != askLeaderless || !slices.Equal(got, ids) {
			t.Fatalf("question: %v, %d, %v", got, flags, err)
		}
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) replicaStatus {
			s := replicaStatus{flags: rapid.Uint8().Draw(t, "flags")}
			if s.known() {
				s.term, s.lastTerm, s.lastIndex = rapid.Uint64().Draw(t, "term"), rapid.Uint64().Draw(t, "lt"), rapid.Uint64().Draw(t, "li")
				s.leader = transport.NodeID(rapid.String().Draw(t, "leader"))
			}
			return s
		}), 0, 20).Draw(t, "answers")
		back, err := decodeStatusResponse(encodeStatusResponse(all))
		if err != nil || !slices.Equal(back, all) {
			t.Fatalf("answer: %v, %v, want %v", back, err, all)
		}
	})
}

func TestStatusMalformed(t *testing.T) {
	cases := map[string][]byte{
		"empty": nil, "version": {9, 0, 0}, "cut": {1, 0, 3, 1}, "too many": {1, 0, 0xff, 0xff, 0x7f},
		"trailing": append(encodeStatusRequest(0, nil), 1),
	}
	for name, b := range cases {
		if _, _, err := decodeStatusRequest(b); !errors.Is(err, errStatus) {
			t.Errorf("question %s: %v", name, err)
		}
		if _, err := decodeStatusResponse(b); !errors.Is(err, errStatus) && name != "trailing" {
			t.Errorf("answer %s: %v", name, err)
		}
	}
}

func FuzzStatusRequest(f *testing.F) {
	f.Add(encodeStatusRequest(0, []transport.GroupID{1, 300}))
	f.Add([]byte{1, 1, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		flags, ids, err := decodeStatusRequest(b)
		if err != nil {
			return
		}
		if f2, again, err := decodeStatusRequest(encodeStatusRequest(flags, ids)); err != nil || f2 != flags || !slices.Equal(again, ids) {
			t.Errorf("%x does not survive", b)
		}
	})
}

func FuzzStatusResponse(f *testing.F) {
	f.Add(encodeStatusResponse([]replicaStatus{{}, {flags: 3, term: 7, lastTerm: 7, lastIndex: 99, leader: "a/1"}}))
	f.Add([]byte{1, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decodeStatusResponse(b)
		if err != nil {
			return
		}
		if again, err := decodeStatusResponse(encodeStatusResponse(all)); err != nil || !slices.Equal(again, all) {
			t.Errorf("%x does not survive", b)
		}
	})
}

func TestProfiles(t *testing.T) {
	if err := QueueProfile().Validate(); err != nil {
		t.Errorf("the queue profile: %v", err)
	}
	for name, change := range map[string]func(*Profile){
		"lease shorter than a heartbeat": func(p *Profile) { p.Lease = p.Heartbeat / 5 },
		"lease longer than the timeout":  func(p *Profile) { p.Lease = 2 * p.Heartbeat },
		"election before heartbeat":      func(p *Profile) { p.Election = p.Heartbeat / 2 },
		"no entries":                     func(p *Profile) { p.AppendEntriesMax = 0 },
	} {
		p := QueueProfile()
		change(&p)
		if p.Validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	err := HostConfig{}.Validate()
	for _, want := range []string{"local node id", "store", "mesh", "detector"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestRaftLog(t *testing.T) {
	var b bytes.Buffer
	l := &raftLog{to: slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	named := l.With("group", 7).Named("x").Named("y")
	named.Info("hidden")
	named.Warn("shown", "servers", hclog.Fmt("%v", []int{1}), "odd")
	got := b.String()
	for _, want := range []string{"level=INFO", "raft: shown", "group=7", "servers=[1]"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "hidden") || named.IsInfo() || !named.IsWarn() || named.Name() != "x.y" || named.GetLevel() != hclog.Warn {
		t.Errorf("levels are wrong: %q, %v", got, named.GetLevel())
	}
}

// notes records everything a group tells its owner, in order.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) add(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, s)
}

func (n *notes) Leadership(_ uint64, leader transport.NodeID, self bool) {
	if self {
		n.add("leads")
	} else if leader == "" {
		n.add("nobody")
	} else {
		n.add("follows " + string(leader))
	}
}

func TestObserverHearsInOrder(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		var log notes
		s := Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true}
		g, err := c.nodes["n0"].host.Start(s, &ledger{}, &log)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes["n1"].start(t, s)
		c.nodes["n2"].start(t, s)
		c.waitLeader(queueA, time.Second)
		g.Propose([]byte("a"), func(_ any, err error) { log.add("a:" + errText(err)) })
		time.Sleep(time.Second)
		c.net.isolate("n0", true)
		g.Propose([]byte("b"), func(_ any, err error) { log.add("b:" + errText(err)) })
		c.waitLeader(queueA, 5*time.Second, "n0")
		time.Sleep(20 * time.Second) // the lease of raft runs out
		c.net.isolate("n0", false)
		time.Sleep(20 * time.Second)
		log.mu.Lock()
		defer log.mu.Unlock()
		got := slices.DeleteFunc(slices.Clone(log.all), func(s string) bool { return s == "nobody" })
		last := "follows " + string(c.leader(queueA).host.cfg.Local)
		if want := []string{"leads", "a:", "b:unknown", last}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func errText(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrUnknown):
		return "unknown"
	}
	return err.Error()
}

func TestProposalsExpire(t *testing.T) {
	tune := func(h *HostConfig) { h.ProposeDeadline = 3 * time.Second }
	bubble(t, 3, tune, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		c.net.isolate("n0", true)
		began := time.Now()
		var want []error
		errs := make(chan error, 60)
		for i := range 60 {
			g.Propose([]byte{byte(i)}, func(_ any, err error) { errs <- err })
			if i < inFlightCeiling {
				want = append(want, ErrUnknown)
			} else {
				want = append(want, ErrOverloaded)
			}
		}
		for i := range want {
			err := <-errs
			// What waited moves up when the first have expired, and is unknown too then.
			if !errors.Is(err, ErrUnknown) && !errors.Is(err, want[i]) {
				t.Errorf("proposal %d: %v", i, err)
			}
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("answers after %v", took)
		}
	})
}

func TestNoElectionWithoutQuorum(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		if _, err := propose(c.waitLeader(queueA, time.Second), "a"); err != nil {
			t.Fatal(err)
		}
		g, _ := c.nodes["n2"].host.Group(queueA)
		term := g.Stats().Term
		c.kill("n0")
		c.kill("n1")
		time.Sleep(20 * time.Second)
		if s := g.Stats(); s.Term != term || s.State != "Follower" {
			t.Errorf("alone: %s in term %d, want follower in %d", s.State, s.Term, term)
		}
		c.boot("n1").start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		if _, err := propose(c.waitLeader(queueA, 3*time.Second), "b"); err != nil {
			t.Fatal(err)
		}
		c.agree(queueA, []string{"a", "b"})
	})
}

// The longest log wins even if another node is preferred.
func TestBestReplicaLeads(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n1"})
		g := c.waitLeader(queueA, time.Second)
		if err := g.TransferTo(t.Context(), "n0"); err != nil {
			t.Fatal(err)
		}
		g = c.waitLeader(queueA, time.Second, "n1")
		c.net.isolate("n1", true)
		for range 10 {
			if _, err := propose(g, "x"); err != nil {
				t.Fatal(err)
			}
		}
		// n1 lacks ten entries when n0 dies and the link heals.
		c.net.change(func() {
			c.nodes["n0"].link.down = true
			for p := range c.net.cut {
				delete(c.net.cut, p)
			}
		})
		now := c.waitLeader(queueA, 3*time.Second, "n0")
		if now.host.cfg.Local != "n2" {
			t.Errorf("%s leads, want n2 with the longest log", now.host.cfg.Local)
		}
		c.kill("n0")
		c.agree(queueA, slices.Repeat([]string{"x"}, 10))
	})
}

func TestRemovedLeaderIsReplaced(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		if err := g.RemoveServer(t.Context(), transport.Replica("n0", 0), 0); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c.waitLeader(queueA, 15*time.Second, "n0")
		t.Logf("replaced after %v", time.Since(began))
	})
}

// One broken link must not make two leaders depose each other in turn.
func TestBrokenLinkDoesNotFlap(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		_, term, _ := g.Leader()
		c.net.change(func() { c.net.cut[pair("n0", "n2")] = true })
		time.Sleep(5 * time.Second)
		c.kill("n2")
		c.boot("n2").start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		for range 60 {
			time.Sleep(time.Second)
			if _, err := propose(g, "x"); err != nil {
				t.Fatalf("%v", err)
			}
		}
		if l, now, _ := g.Leader(); l != "n0" || now != term || !g.HasLease() {
			t.Errorf("leader %s in term %d (lease %v), want n0 in %d", l, now, g.HasLease(), term)
		}
	})
}

// A follower that was away for long is needed for the quorum as soon as it is back;
// raft alone would leave it alone for up to ten seconds.
func TestReturnedFollowerCountsAtOnce(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		c.kill("n2")
		for range 20 {
			if _, err := propose(g, "x"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		c.boot("n2").start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		time.Sleep(time.Second)
		c.kill("n1")
		began := time.Now()
		if _, err := propose(g, "y"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("committed with the returned follower after %v", took)
		}
	})
}

// forgotten is a future that raft never answers.
type forgotten struct{ ShutdownCh chan struct{} }

func (f *forgotten) Error() error {
	<-f.ShutdownCh
	return raft.ErrRaftShutdown
}

// TestUnansweredFutureEnds: a future that raft never answers ends with its instance.
func TestUnansweredFutureEnds(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, 5*time.Second)
		f := g.replica().Barrier(time.Second)
		in := g.running.Load()
		if err := g.waitFuture(in, f); err != nil {
			t.Fatal(err)
		}
		for name, f := range map[string]raft.Future{"a barrier": g.replica().Barrier(time.Second), "a change": g.replica().AddVoter("n0", "n0", 0, time.Second)} {
			in.endFuture(f)
			if set := reflect.ValueOf(f).Elem().FieldByName("ShutdownCh"); !set.IsValid() || set.IsNil() {
				t.Errorf("%s does not end with its replica", name)
			}
			if err := f.Error(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		answer := make(chan error, 1)
		go func() { answer <- g.waitFuture(in, &forgotten{}) }()
		synctest.Wait()
		if err := g.recycle("a test"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-answer:
			if !errors.Is(err, raft.ErrRaftShutdown) {
				t.Error(err)
			}
		default:
			t.Error("it waits for an instance that has ended")
		}
	})
}

// A candidate whose log is shorter than ours is no rival in the end; one that is as long is.
func TestRivalsBehind(t *testing.T) {
	own := replicaStatus{flags: statusKnown, term: 13, lastTerm: 12, lastIndex: 718}
	for _, c := range []struct {
		name      string
		rival     replicaStatus
		in, while bool // a rival in the end, and at first
	}{
		{"shorter", replicaStatus{term: 18, lastTerm: 12, lastIndex: 674}, false, true},
		{"of an older term", replicaStatus{term: 18, lastTerm: 11, lastIndex: 900}, false, true},
		{"the same", replicaStatus{term: 13, lastTerm: 12, lastIndex: 718}, true, true},
		{"longer", replicaStatus{term: 13, lastTerm: 13, lastIndex: 3}, true, true},
		{"of an older election", replicaStatus{term: 12, lastTerm: 12, lastIndex: 718}, false, false},
	} {
		c.rival.flags = statusKnown | statusCandidate
		answers := map[transport.NodeID]replicaStatus{"n1/v": c.rival, "n2/v": {flags: statusKnown, term: 13}}
		if while, in := hasRival(own, answers), hasRival(own, withoutRivalsBehind(own, answers)); while != c.while || in != c.in || len(answers) != 2 {
			t.Errorf("%s: a rival at first: %v, in the end: %v", c.name, while, in)
		}
	}
}

// A candidate that too many voters refuse is no rival; one that may still win is.
func TestHopelessRivals(t *testing.T) {
	log := func(flags uint8, term, lastTerm, last uint64) replicaStatus {
		return replicaStatus{flags: statusKnown | flags, term: term, lastTerm: lastTerm, lastIndex: last}
	}
	type answers = map[transport.NodeID]replicaStatus
	own := log(0, 4, 3, 306)
	candidate := log(statusCandidate, 4, 3, 304)
	for _, c := range []struct {
		name         string
		voters, dead string
		others       answers
		rival        bool
	}{
		{"both others are ahead of it", "abc", "", answers{"b": log(0, 4, 3, 305), "c": candidate}, false},
		{"one that is ahead has not heard of it", "abc", "", answers{"b": log(0, 3, 3, 305), "c": candidate}, false},
		{"one is as far", "abc", "", answers{"b": log(0, 4, 3, 304), "c": candidate}, true},
		{"one may have got its entries since it voted", "abc", "", answers{"b": log(0, 5, 3, 305), "c": candidate}, true},
		{"one is silent", "abc", "", answers{"c": candidate}, true},
		{"one is dead", "abc", "b", answers{"c": candidate}, false},
		{"one is dead, but this one may have voted for it", "abc", "b", answers{"c": log(statusCandidate, 4, 3, 306)}, true},
		{"one has entries of its term: it has won", "abc", "", answers{"b": log(0, 4, 4, 305), "c": candidate}, true},
		{"one does not run the group", "abc", "", answers{"b": {}, "c": candidate}, true},
		{"it has entries of a later term", "abc", "", answers{"b": log(0, 4, 3, 305), "c": log(statusCandidate, 5, 4, 9)}, true},
		{"two of five are ahead", "abcde", "", answers{"b": log(0, 4, 3, 305), "c": candidate}, true},
		{"three of five are ahead", "abcde", "", answers{"b": log(0, 4, 3, 305), "d": log(0, 4, 3, 306), "c": candidate}, false},
		{"two of five are ahead, one is dead", "abcde", "d", answers{"b": log(0, 4, 3, 305), "c": candidate}, false},
		{"two of four are ahead", "abcd", "", answers{"b": log(0, 4, 3, 305), "c": candidate}, false},
		{"two candidates, one ahead of the other", "abc", "", answers{"b": log(statusCandidate, 4, 3, 305), "c": candidate}, false},
		{"two candidates of different terms", "abc", "", answers{"b": log(statusCandidate, 5, 3, 306), "c": candidate}, true},
		{"a candidate that has less votes for certain", "abcd", "", answers{"b": log(statusCandidate, 4, 3, 306), "c": log(statusCandidate, 4, 3, 306)}, true},
		{"three candidates of four", "abcd", "", answers{"b": log(statusCandidate, 4, 3, 306), "c": log(statusCandidate, 4, 3, 306), "d": log(statusCandidate, 4, 3, 306)}, false},
	} {
		var voters []transport.NodeID
		for _, v := range c.voters {
			voters = append(voters, transport.NodeID(v))
		}
		e := electorate{voters: voters, local: "a", own: own, others: c.others, dead: func(n transport.NodeID) bool { return strings.Contains(c.dead, string(n)) }}
		n := len(c.others)
		if got := hasRival(own, e.rivals()); got != c.rival || len(c.others) != n {
			t.Errorf("%s: a rival: %v", c.name, got)
		}
	}
}

// A candidate that was asked a moment ago may lead by now, and this replica have its first entry.
func TestRivalThatHasWon(t *testing.T) {
	own := replicaStatus{flags: statusKnown, term: 4, lastTerm: 4, lastIndex: 307}
	rival := replicaStatus{flags: statusKnown | statusCandidate, term: 4, lastTerm: 3, lastIndex: 306}
	e := electorate{
		voters: []transport.NodeID{"a", "b", "c"}, local: "a", own: own, others: map[transport.NodeID]replicaStatus{"b": rival},
		dead: func(n transport.NodeID) bool { return n == "c" },
	}
	if !hasRival(own, e.rivals()) {
		t.Error("it is not waited for")
	}
}
