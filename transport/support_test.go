package transport

import (
	"testing"

	"github.com/hashicorp/raft"
)

// TestSupport goes through what makes a voter turn from a leader, and what does not.
func TestSupport(t *testing.T) {
	const g = GroupID(2)
	const term = 5
	appendOf := func(t *testing.T, from *RaftTransport, to NodeID, term uint64) {
		t.Helper()
		h := headerOf(from.m.cfg.Local)
		var resp raft.AppendEntriesResponse
		if err := from.AppendEntries(raft.ServerID(to), raft.ServerAddress(to), &raft.AppendEntriesRequest{RPCHeader: h, Term: term, Leader: h.Addr}, &resp); err != nil {
			t.Fatal(err)
		}
	}
	voteFor := func(t *testing.T, from *RaftTransport, to NodeID, term uint64) {
		t.Helper()
		h := headerOf(from.m.cfg.Local)
		var resp raft.RequestVoteResponse
		if err := from.RequestVote(raft.ServerID(to), raft.ServerAddress(to), &raft.RequestVoteRequest{RPCHeader: h, Term: term, Candidate: h.Addr}, &resp); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, a, b, c *RaftTransport)
		want bool // b has turned away from a
	}{
		{"it votes for another", func(t *testing.T, _, b, c *RaftTransport) { voteFor(t, c, b.m.cfg.Local, term+1) }, true},
		{"it votes for the same", func(t *testing.T, a, b, _ *RaftTransport) { voteFor(t, a, b.m.cfg.Local, term+1) }, false},
		{"it is candidate", func(t *testing.T, _, b, c *RaftTransport) { voteFor(t, b, c.m.cfg.Local, term+1) }, true},
		{"an old leader appends before it votes", func(t *testing.T, _, b, c *RaftTransport) {
			appendOf(t, c, b.m.cfg.Local, term-1)
			voteFor(t, c, b.m.cfg.Local, term+1)
		}, true},
		{"it follows another and votes for that one", func(t *testing.T, _, b, c *RaftTransport) {
			appendOf(t, c, b.m.cfg.Local, term+1)
			voteFor(t, c, b.m.cfg.Local, term+2)
		}, false},
		{"its replica stops", func(_ *testing.T, _, b, _ *RaftTransport) { b.Close() }, true},
		{"its replica is removed", func(_ *testing.T, _, b, _ *RaftTransport) { b.Leave(); b.Close() }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := startTrio(t, nil)
			var of [3]*RaftTransport
			for i, m := range n.meshes {
				of[i] = script(t, m, g, agreeable)
			}
			a, voter, replica := of[0], n.ids[1], ReplicaID(n.ids[1])
			if _, ok := a.SupportFrom(replica, term); ok {
				t.Fatal("support before the first append")
			}
			appendOf(t, a, voter, term)
			s, ok := a.SupportFrom(replica, term)
			if !ok || s.Process != n.meshes[1].process {
				t.Fatalf("support %+v (%v), want that of process %d", s, ok, n.meshes[1].process)
			}
			if _, ok := a.SupportFrom(replica, term+1); ok {
				t.Error("support in a term without an append")
			}
			answered := func() Support {
				before := a.m.Peer(voter).LastAnswered
				var now PeerStatus
				until(t, "a newer ping is answered", func() bool { now = a.m.Peer(voter); return now.LastAnswered.After(before) })
				return now.Support
			}
			if got := answered(); got != s {
				t.Fatalf("pings tell of %+v, the append told of %+v", got, s)
			}
			tc.do(t, a, of[1], of[2])
			answered() // one may have been under way
			if got := answered(); (got != s) != tc.want {
				t.Errorf("pings tell of %+v, the append told of %+v, want a difference: %v", got, s, tc.want)
			}
			if tc.want && !t.Failed() && tc.name != "its replica stops" {
				appendOf(t, a, voter, term+2)
				if got, _ := a.SupportFrom(replica, term+2); got != answered() {
					t.Errorf("support %+v after another append, want %+v", got, answered())
				}
			}
		})
	}
}
