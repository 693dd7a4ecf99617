package catalog

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

const (
	// appendPauseMin to appendPauseMax is the pause between two attempts to append, doubled each time.
	appendPauseMin = 10 * time.Millisecond
	appendPauseMax = time.Second
)

// wire is the replica's transport, and patient. Each failure that raft sees makes it deaf to a follower for a longer while, up to ten seconds
// after a dozen of them. A node that was away for some minutes would lack the catalog for that long after its start, because nobody
// answers for the group yet at the moment at which its link is back.
type wire struct {
	*transport.RaftTransport
	raft atomic.Pointer[raft.Raft] // nil until it runs
	up   func(node NodeID) bool    // whether a node has a link
	stop <-chan struct{}           // closed when the catalog closes

	mu sync.Mutex
	// heard is, of each replica, the newest append that it has accepted.
	heard map[raft.ServerID]accepted
}

// accepted is an append: in which term, and when it was sent.
type accepted struct {
	term uint64
	sent time.Time
}

// AppendEntries implements raft.Transport. It tries again until the follower has answered or the request has become pointless. One that was received
// all the same is repeated unchanged and before any later one, which is what raft would do. For heartbeats raft waits less by itself.
func (w *wire) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for pause := appendPauseMin; ; pause = min(2*pause, appendPauseMax) {
		sent := time.Now()
		err := w.RaftTransport.AppendEntries(id, target, args, resp)
		if err == nil && resp.Success {
			w.note(id, accepted{args.Term, sent})
		}
		if err == nil || transport.IsHeartbeat(args) || errors.Is(err, transport.ErrClosed) || !w.pending(id, args.Term) || !w.pause(pause) {
			return err
		}
	}
}

// InstallSnapshot implements raft.Transport. It waits for the link first: a snapshot cannot be sent twice from one reader.
func (w *wire) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	for pause := appendPauseMin; !w.up(NodeID(target)); pause = min(2*pause, appendPauseMax) {
		if !w.pending(id, args.Term) || !w.pause(pause) {
			break
		}
	}
	return w.RaftTransport.InstallSnapshot(id, target, args, resp, data)
}

// pending tells whether a request of a term to a replica still makes sense.
func (w *wire) pending(id raft.ServerID, term uint64) bool {
	r := w.raft.Load()
	if r == nil || r.State() != raft.Leader || r.CurrentTerm() != term {
		return false
	}
	config := r.GetConfiguration()
	if config.Error() != nil {
		return false
	}
	return slices.ContainsFunc(config.Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// pause waits for d; it reports false when the catalog closes.
func (w *wire) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.stop:
		return false
	}
}

func (w *wire) note(id raft.ServerID, a accepted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heard == nil {
		w.heard = make(map[raft.ServerID]accepted)
	}
	if old := w.heard[id]; a.term > old.term || a.term == old.term && a.sent.After(old.sent) {
		w.heard[id] = a
	}
}

// supported tells whether most of the voters, self among them, have accepted what the leader of a term has sent since a moment.
func (w *wire) supported(servers []raft.Server, self raft.ServerID, term uint64, since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	voters, support := 0, 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if a := w.heard[s.ID]; s.ID == self || a.term == term && !a.sent.Before(since) {
			support++
		}
	}
	return support > voters/2
}
