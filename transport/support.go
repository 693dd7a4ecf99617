package transport

import (
	"sync"

	"github.com/hashicorp/raft"
)

// Support tells how often a node has turned away from another one: voted against a
// leader there that it had followed before, or stopped a replica that followed one. A
// node says so in each answer to a ping and to an append of that other node. As long as
// the two agree, whoever was followed then was not voted out by this voter before it
// answered the ping: that is what a lease over pings of nodes must know about a group.
// Two values of different processes never agree.
type Support struct {
	Process uint64 // of the node that supports
	Turns   uint64
}

// supports counts how often this node has turned away from each other node.
type supports struct {
	mu    sync.RWMutex
	turns map[NodeID]uint64
}

func (s *supports) of(n NodeID) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.turns[n]
}

func (s *supports) turnFrom(n NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turns == nil {
		s.turns = make(map[NodeID]uint64)
	}
	s.turns[n]++
}

// Following is the leader that a replica was last asked to follow.
type Following struct {
	leader NodeID // empty: none, or one that the replica has turned away from
	term   uint64
}

// appendAnswer is the answer to an append with what the transport adds to it.
type appendAnswer struct {
	raft.AppendEntriesResponse
	// turns is the answering node's count, taken before its replica saw the request.
	turns uint64
}

// follow notes the sender of a request that Raft is about to see. A leader of an
// earlier term is not followed. Caller holds rt.mu.
func (rt *RaftTransport) follow(r *inboundRPC) {
	a, ok := r.cmd.(*raft.AppendEntriesRequest)
	if !ok {
		return
	}
	r.turns, r.last = rt.m.supports.of(r.in.from), lastIndex(a)
	if a.Term >= rt.followed.term {
		rt.followed = Following{leader: r.in.from, term: a.Term}
	}
}

// turnFromLeader is called before the vote of this replica for candidate leaves the node, and
// when the replica stops.
func (rt *RaftTransport) turnFromLeader(candidate NodeID) {
	rt.mu.Lock()
	old := rt.followed.leader
	if old == candidate {
		old = ""
	} else {
		rt.followed.leader = ""
	}
	rt.mu.Unlock()
	if old != "" {
		rt.m.supports.turnFrom(old)
	}
}

// Leave tells that the replica is being removed for good and will never vote again:
// its end is no turning away.
func (rt *RaftTransport) Leave() {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.followed = Following{}
}

// Rest closes the transport of a replica that stops for a while and has turned away from nobody.
func (rt *RaftTransport) Rest() {
	rt.m.groups.remove(rt)
	rt.shut()
}

// Following returns whom the replica has followed last. Once Raft has stopped it is what the replica's next transport needs for Resume.
func (rt *RaftTransport) Following() Following {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.followed
}

// Resume tells the transport of a replica that was at rest whom it followed before, so that a vote against that leader
// counts as turning away. It is called before Raft runs.
func (rt *RaftTransport) Resume(f Following) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if f.term > rt.followed.term {
		rt.followed = f // else a request that was held for this transport is of a newer leader, or of the same
	}
}

// supported notes that a voter follows this replica as the leader of a term.
func (rt *RaftTransport) supported(by ReplicaID, term uint64, s Support) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.supporters == nil {
		rt.supporters = make(map[ReplicaID]supporter)
	}
	rt.supporters[by] = supporter{term, s}
}

// supporter is a voter that has accepted an append of this replica.
type supporter struct {
	term    uint64
	support Support
}

// SupportFrom returns what a voter said of its support when it last accepted an append of this
// replica as the leader of term; ok is false if it accepted none. It may be compared
// with PeerStatus.Support.
func (rt *RaftTransport) SupportFrom(voter ReplicaID, term uint64) (s Support, ok bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	got, ok := rt.supporters[voter]
	return got.support, ok && got.term == term
}
