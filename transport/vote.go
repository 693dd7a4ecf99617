package transport

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// openVote is a vote request of the local replica whose answer Raft still waits
// for. Answers that would only say "no" are kept back for a while, so that
// FreeCandidate has one to use.
type openVote struct {
	term uint64      // the term the candidate is in
	free chan uint64 // capacity 1: answer with this term, refused
}

// RequestVote implements raft.Transport. A grant or a newer term is passed on at
// once; a plain refusal, an error or a lost link changes nothing for a candidate and
// is reported after Config.VoteHold (catalogVoteHold), or when FreeCandidate uses the request.
func (rt *RaftTransport) RequestVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	// The replica has voted for itself.
	rt.turnFromLeader(rt.m.cfg.Local)
	to := ReplicaID(id)
	v := rt.openVote(args.Term)
	defer rt.closeVote(v)
	var got raft.RequestVoteResponse
	term, err := rt.poll(to, v, args, &got, func() bool { return got.Granted || got.Term > args.Term })
	switch {
	case err != nil:
		return err
	case term > 0:
		*resp = raft.RequestVoteResponse{RPCHeader: args.RPCHeader, Term: term}
	default:
		*resp = got
	}
	return nil
}

// RequestPreVote implements raft.WithPreVote, like RequestVote. A pre-vote asks about
// the term after the candidate's own.
func (rt *RaftTransport) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	to := ReplicaID(id)
	v := rt.openVote(args.Term - 1)
	defer rt.closeVote(v)
	var got raft.RequestPreVoteResponse
	term, err := rt.poll(to, v, args, &got, func() bool { return got.Granted || got.Term > args.Term })
	switch {
	case err != nil:
		return err
	case term > 0:
		// One more than the request's term, or Raft would not fall back.
		*resp = raft.RequestPreVoteResponse{RPCHeader: args.RPCHeader, Term: term + 1}
	default:
		*resp = got
	}
	return nil
}

// FreeCandidate makes the local replica a follower if it is a candidate of the given
// term that waits for votes (0 means of any term): one open vote request is
// answered with the next term, refused. It reports whether such a request was open. Terms
// may be skipped, so this is always safe.
func (rt *RaftTransport) FreeCandidate(term uint64) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	var newest *openVote
	for _, v := range rt.votes {
		if (term == 0 || v.term == term) && (newest == nil || v.term > newest.term) {
			newest = v
		}
	}
	if newest == nil {
		return false
	}
	select {
	case newest.free <- newest.term + 1:
		rt.m.stats.candidatesFreed.Add(1)
	default: // it is being freed already
	}
	return true
}

func (rt *RaftTransport) openVote(term uint64) *openVote {
	v := &openVote{term: term, free: make(chan uint64, 1)}
	rt.mu.Lock()
	rt.votes = append(rt.votes, v)
	rt.mu.Unlock()
	return v
}

func (rt *RaftTransport) closeVote(v *openVote) {
	rt.mu.Lock()
	if i := slices.Index(rt.votes, v); i >= 0 {
		rt.votes = slices.Delete(rt.votes, i, i+1)
	}
	rt.mu.Unlock()
}

// poll asks for one vote. It returns a term above 0 when the request was freed with
// that term; otherwise resp is decoded or err says why not. Results that are
// not decisive are held back.
func (rt *RaftTransport) poll(to ReplicaID, v *openVote, args, resp any, decisive func() bool) (uint64, error) {
	hold := time.NewTimer(rt.voteHold)
	defer hold.Stop()
	stop := make(chan struct{}) // ends the asking when the request is freed or the group closes
	asked := make(chan error, 1)
	if !rt.m.spawn(func() { asked <- rt.askVote(to, stop, args, resp) }) {
		close(stop)
		return 0, ErrClosed
	}
	defer close(stop)
	select {
	case term := <-v.free:
		return term, nil
	case <-rt.done:
		return 0, ErrClosed
	case err := <-asked:
		if err == nil && decisive() {
			return 0, nil
		}
		select {
		case term := <-v.free:
			return term, nil
		case <-rt.done:
			return 0, ErrClosed
		case <-hold.C:
			return 0, err
		}
	}
}

// voteAgain is the pause before a vote is asked for again.
const voteAgain = 20 * time.Millisecond

// askVote is the request itself. Its resp belongs to it until it returns. When the
// link is lost or the voter is busy it asks again: votes are idempotent, and a
// candidate that never hears of one would wait for its long timer.
func (rt *RaftTransport) askVote(to ReplicaID, stop <-chan struct{}, args, resp any) error {
	req, err := rt.frameFor(to, args)
	if err != nil {
		return err
	}
	timeout := time.NewTimer(rt.voteHold)
	defer timeout.Stop()
	for {
		b, codec, err := rt.askVoteOnce(to.Node(), stop, timeout.C, req)
		switch {
		case err == nil:
			return codec.readResponse(b, resp)
		case errors.Is(err, errNoLink) || !errors.Is(err, ErrPeerDown) && !errors.Is(err, ErrBusy):
			return err
		}
		pause := time.NewTimer(voteAgain)
		select {
		case <-pause.C:
		case <-stop:
			pause.Stop()
			return ErrClosed
		}
	}
}

func (rt *RaftTransport) askVoteOnce(to NodeID, stop <-chan struct{}, timeout <-chan time.Time, req request) ([]byte, raftCodec, error) {
	p, err := rt.m.peer(to)
	if err != nil {
		return nil, raftCodec{}, err
	}
	sess, err := p.await(stop, timeout, false)
	if err != nil {
		return nil, raftCodec{}, err
	}
	b, err := sess.roundTrip(stop, timeout, req)
	return b, sess.codec, err
}
