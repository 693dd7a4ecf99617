package group

import (
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// wire is a replica's transport with the eyes of the host: it notices replication
// streams that broke, because raft sends again only when something triggers it.
type wire struct {
	RaftTransport
	g    *Group
	raft atomic.Pointer[raft.Raft] // whose wire this is; nil until it runs, and when it has ended
	over atomic.Bool               // it has ended
	// rests: its end is no turning away from a leader.
	rests atomic.Bool

	mu sync.Mutex
	// reached is how far followers have answered that they hold the log, by appends outside of pipelines.
	reached map[raft.ServerID]uint64
}

// Close implements raft.WithClose. raft calls it, too, when its goroutines have ended.
func (w *wire) Close() error {
	if w.rests.Load() {
		w.Rest()
		return nil
	}
	return w.RaftTransport.Close()
}

// isOver tells whether the instance has been stopped. What its goroutines still send would wake replicas that sleep.
func (w *wire) isOver() bool {
	r := w.raft.Load()
	return w.over.Load() || r != nil && r.State() == raft.Shutdown
}

// SetHeartbeatHandler ignores the handler. Heartbeats that bypass raft's main
// goroutine make replicas diverge (hashicorp/raft#695).
func (w *wire) SetHeartbeatHandler(func(raft.RPC)) {}

// RequestVote implements raft.Transport. What the voters were founded with is not asked for.
func (w *wire) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if w.g.isGiven(args) {
		*resp = raft.RequestVoteResponse{RPCHeader: args.RPCHeader, Term: args.Term, Granted: true}
		return nil
	}
	return w.RaftTransport.RequestVote(id, target, args, resp)
}

// AppendEntries implements raft.Transport. It tries again until it succeeds or the
// request has become pointless: each failure that raft sees makes it deaf to every
// trigger for a longer while, up to ten seconds, in which a follower that is back does
// not count for the quorum. A request that was received all the same is repeated
// unchanged and before any later one, which is what raft would do.
func (w *wire) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	longest := retryPauseMax
	if transport.IsHeartbeat(args) {
		longest = heartbeatPauseMax
		w.g.awaitBeat()
	} else if !w.paced(id, args) {
		return errStopping
	}
	if w.isOver() {
		return errStopping
	}
	anew := false
	for pause := retryPauseMin; ; pause = min(2*pause, longest) {
		// Taken before the attempt, so that no nudge is missed.
		nudged := w.g.nudged()
		err := w.RaftTransport.AppendEntries(id, target, args, resp)
		if err == nil {
			if resp.Success && !transport.IsHeartbeat(args) {
				w.reach(id, args)
			}
			if len(args.Entries) == 0 && resp.Success {
				w.g.told(transport.NodeID(target), args.Term, args.LeaderCommitIndex, resp.LastLog, transport.IsHeartbeat(args), anew)
			}
			return nil
		}
		anew = anew || errors.Is(err, transport.ErrUnknownGroup)
		if w.isOver() {
			// An answer would be a vote for whoever verifies the leader, which raft waits for nobody to take.
			return errStopping
		}
		w.g.host.watch.stalled(w.g)
		if !w.pending(id, args.Term) || !w.pause(nudged, pause) {
			return err
		}
	}
}

const (
	// retryPauseMin to retryPauseMax is the pause between attempts to append.
	retryPauseMin = 10 * time.Millisecond
	retryPauseMax = time.Second
	// heartbeatPauseMax is the same for heartbeats, which carry nothing urgent.
	heartbeatPauseMax = 3 * time.Second
)

// pending tells whether a request of a term to a peer still makes sense.
func (w *wire) pending(id raft.ServerID, term uint64) bool {
	in := w.g.running.Load()
	return in != nil && in.wire == w && in.raft.State() == raft.Leader && in.raft.CurrentTerm() == term &&
		slices.ContainsFunc(w.g.configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// pause waits for a nudge or for d; it reports false when the replica stops.
func (w *wire) pause(nudged <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-nudged:
	case <-timer.C:
	case <-w.g.stopped:
		return false
	}
	return true
}

// warmBytes is the heat, some bytes applied in the last seconds, from which a group's replication is
// pipelined. A colder one sends what it has one by one, which takes no longer for what comes alone, and
// saves a goroutine and its channels for each follower.
const warmBytes = 256 << 10

// errRests ends the pipeline of a group that has become cold, or of a follower that lacks entries.
var errRests = errors.New("group: the pipeline rests")

// AppendEntriesPipeline implements raft.Transport.
func (w *wire) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if w.g.apply.heat.Load() < warmBytes || w.fills(id) || w.lags(id) {
		return nil, raft.ErrPipelineReplicationNotSupported // raft asks again with each append
	}
	p, err := w.RaftTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	w.g.endsForLacking(transport.NodeID(target))
	return &pipeline{AppendPipeline: p, g: w.g, to: transport.NodeID(target)}, nil
}

// endsForLacking tells whether the pipeline to a follower has to end because of Group.lacking, once.
func (g *Group) endsForLacking(n transport.NodeID) bool {
	t := g.lacking.Load()
	return t != nil && *t == n && g.lacking.CompareAndSwap(t, nil)
}

// reach notes what a follower has accepted.
func (w *wire) reach(id raft.ServerID, args *raft.AppendEntriesRequest) {
	last := args.PrevLogEntry
	if n := len(args.Entries); n > 0 {
		last = args.Entries[n-1].Index
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reached == nil {
		w.reached = make(map[raft.ServerID]uint64)
	}
	w.reached[id] = last
}

// lags tells whether a follower, which has just accepted an append, lacks more than one request carries. Raft's pipeline sends one request
// for each trigger, and only what is appended triggers: the rest would wait for as many new entries. Outside of it one trigger has
// raft send all, and what was appended while the last request was under way has left one.
func (w *wire) lags(id raft.ServerID) bool {
	in := w.g.running.Load()
	if in == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reached[id]+uint64(w.g.host.cfg.Profile.AppendEntriesMax) < in.raft.LastIndex()
}

// InstallSnapshot implements raft.Transport. A follower may hold a newer snapshot than
// the leader sends: one that the leader's predecessor, deposed in between, has still
// delivered. It must refuse the older one, and raft would offer it again for ever, so the
// leader takes a newer one.
func (w *wire) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	// A snapshot cannot be sent twice from one reader, so wait for the peer first.
	for nudged := w.g.nudged(); !w.g.host.cfg.Mesh.Peer(transport.NodeID(target)).Up; nudged = w.g.nudged() {
		if !w.pending(id, args.Term) || !w.pause(nudged, retryPauseMax) {
			break
		}
	}
	err := w.RaftTransport.InstallSnapshot(id, target, args, resp, data)
	if err != nil || !resp.Success {
		w.g.ignorant(transport.NodeID(target)) // raft tries again when something triggers it
	}
	if err != nil && refusedByRaft(err) {
		w.g.host.watch.outdated(w.g, args.LastLogIndex)
	}
	return err
}

// refusedByRaft tells whether an error came from the other replica rather than from the
// way to it.
func refusedByRaft(err error) bool {
	if re, ok := errors.AsType[*transport.RemoteError](err); ok {
		return re.Code == transport.CodeRaft
	}
	for _, e := range []error{transport.ErrPeerDown, transport.ErrTimeout, transport.ErrClosed, transport.ErrBacklog} {
		if errors.Is(err, e) {
			return false
		}
	}
	return true
}
