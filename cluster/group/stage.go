package group

import (
	"slices"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// stager is a log that can take entries without a wait for the disk, as *store.Group can.
type stager interface {
	// Stage is StoreLogs without the wait. What the log, or any other of the node, makes durable
	// later is durable only together with what was staged before.
	Stage(logs []*raft.Log) error
	// Durable is as transport.Durable says.
	Durable(index uint64, then func(error)) (bool, error)
}

// holder is a transport that holds answers until entries are durable, as *transport.RaftTransport does.
type holder interface{ HoldAnswers(transport.Durable) }

// stagedLog is the log that raft writes to. raft waits in StoreLogs for the disk on its main goroutine: a follower
// before it answers, a leader before it sends. Here it does not wait, and the answers do instead, as
// docs/adr/0021-overlapped-syncs.md shows to be the same.
type stagedLog struct {
	raft.LogStore
	local raft.ServerID
	to    stager
	// in is the instance that writes here; nil until it is known.
	in atomic.Pointer[raft.Raft]
}

// raftLog is the log for an instance with a wire. It stages if log and wire are able to.
func (g *Group) raftLog(w *wire) *stagedLog {
	l := &stagedLog{LogStore: g.log, local: raft.ServerID(g.host.cfg.Local)}
	to, can := g.log.(stager)
	h, holds := w.RaftTransport.(holder)
	if can && holds {
		l.to = to
		h.HoldAnswers(to.Durable)
	}
	return l
}

// started tells the log who writes. Until then it waits for the disk.
func (l *stagedLog) started(r *raft.Raft) { l.in.Store(r) }

// StoreLogs implements raft.LogStore. raft calls it on its main goroutine, so that the membership it looks at is
// the one by which the entries will be counted: only an entry of the log changes it, and those are waited for.
func (l *stagedLog) StoreLogs(logs []*raft.Log) error {
	if l.mayStage(logs) {
		return l.to.Stage(logs)
	}
	return l.LogStore.StoreLogs(logs)
}

// StoreLog implements raft.LogStore.
func (l *stagedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// mayStage reports whether the entries need the answer of another voter before they can be committed.
func (l *stagedLog) mayStage(logs []*raft.Log) bool {
	r := l.in.Load()
	if l.to == nil || r == nil {
		return false
	}
	if slices.ContainsFunc(logs, func(e *raft.Log) bool { return e.Type == raft.LogConfiguration }) {
		return false
	}
	f := r.GetConfiguration()
	return f.Error() == nil && slices.ContainsFunc(f.Configuration().Servers, func(s raft.Server) bool {
		return s.Suffrage == raft.Voter && s.ID != l.local
	})
}
