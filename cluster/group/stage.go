package group

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/store"
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

// bodyLog is a log that can take the data of entries from where it arrived, as *store.Group can.
type bodyLog interface {
	StoreBodies(logs []*raft.Log, bodies []store.Body) error
	StageBodies(logs []*raft.Log, bodies []store.Body) error
	Checksum(index, term uint64) (sum uint32, ok bool)
}

// apartWire is a transport that need not put the data of entries into them, as *transport.RaftTransport is.
type apartWire interface {
	DataApart(transport.Checksum)
	Arrived(logs []*raft.Log) []transport.Body
	ArrivedFrom(index uint64) []transport.Body
}

// holder is a transport that holds answers until entries are durable, as *transport.RaftTransport does.
type holder interface{ HoldAnswers(transport.Durable) }

// stagedLog is the log that raft writes to. raft waits in StoreLogs for the disk on its main goroutine: a follower
// before it answers, a leader before it sends. Here it does not wait, and the answers do instead, as
// docs/adr/0021-overlapped-syncs.md shows to be the same.
type stagedLog struct {
	raft.LogStore
	g    *Group
	self raft.ServerID
	to   stager
	// bodies and wire are where the data of entries goes and comes from that is not in them; both nil if it always is.
	bodies bodyLog
	wire   apartWire
	// in is the instance that writes here; nil until it is known.
	in atomic.Pointer[raft.Raft]
	// newest is the newest configuration in the log, nil if there is none; before is the one that is in force if newest is
	// cut off: a log never ends with two that are not committed.
	confMu         sync.Mutex
	newest, before *configured
	// shortened says that entries at the end were deleted, and nothing was stored since: raft still believes that they are there.
	shortened atomic.Bool
}

// configured is a configuration and the index of its entry. raft does not tell the index (GetConfiguration answers 0), but
// asks for it where a change may only follow what it was decided by.
type configured struct {
	index   uint64
	servers []raft.Server
}

// note remembers a configuration that is in the log.
func (l *stagedLog) note(e *raft.Log) {
	if e.Type != raft.LogConfiguration {
		return
	}
	l.confMu.Lock()
	defer l.confMu.Unlock()
	if l.newest == nil || e.Index > l.newest.index {
		l.before, l.newest = l.newest, &configured{e.Index, raft.DecodeConfiguration(e.Data).Servers}
	}
}

// GetLog implements raft.LogStore. raft reads all that is above the newest snapshot before it runs.
func (l *stagedLog) GetLog(index uint64, to *raft.Log) error {
	err := l.LogStore.GetLog(index, to)
	switch {
	case err == nil:
		l.note(to)
	case l.in.Load() == nil:
	case errors.Is(err, raft.ErrLogNotFound):
		if term, ok := l.compared(index); ok {
			*to = raft.Log{Index: index, Term: term, Type: raft.LogNoop}
			return nil
		}
	case l.g.hurt(err):
		endApplying()
	}
	return err
}

// compared returns the term of the entry that the replica's own snapshot ends with and its log no longer has, to a follower that compares its log with its leader's. Behind it there
// may be what no leader has: without this one nothing would match, and everything but a newer snapshot would be refused. A leader that reads what to send
// must not get it, as it is not the entry: a snapshot may be taken between its looks.
func (l *stagedLog) compared(index uint64) (term uint64, ok bool) {
	if !isCalledBy("raft.(*Raft).appendEntries") {
		return 0, false
	}
	kept, err := l.g.log.Snapshots().List()
	if err != nil || len(kept) == 0 || kept[0].Index != index {
		return 0, false
	}
	return kept[0].Term, true
}

// FirstIndex implements raft.LogStore. A leader of raft's has a goroutine that looks every ten seconds how old the oldest entry is, for a
// gauge that nobody reads here; it ends with the first look, because thousands of them are a tenth of what idle queues cost.
func (l *stagedLog) FirstIndex() (uint64, error) {
	endCalledBy("raft.emitLogStoreMetrics")
	return l.LogStore.FirstIndex()
}

// cutOff forgets a configuration that stood at the end of the log.
func (l *stagedLog) cutOff(from, to, end uint64) {
	l.confMu.Lock()
	defer l.confMu.Unlock()
	if l.newest != nil && to >= end && l.newest.index >= from && l.newest.index <= to {
		l.newest, l.before = l.before, nil
	}
}

// configured returns the newest configuration of log and snapshot, the zero value if there is none.
func (l *stagedLog) configured(snapshots raft.SnapshotStore) (configured, error) {
	l.confMu.Lock()
	var c configured
	if l.newest != nil {
		c = *l.newest
	}
	l.confMu.Unlock()
	metas, err := snapshots.List()
	if err != nil {
		return configured{}, err
	}
	if len(metas) > 0 && metas[0].ConfigurationIndex > c.index {
		c = configured{metas[0].ConfigurationIndex, metas[0].Configuration.Servers}
	}
	return c, nil
}

// raftLog is the log for an instance with a wire. It stages if log and wire are able to.
func (g *Group) raftLog(w *wire) *stagedLog {
	l := &stagedLog{LogStore: g.log, g: g, self: raft.ServerID(g.self)}
	to, can := g.log.(stager)
	h, holds := w.RaftTransport.(holder)
	if can && holds {
		l.to = to
		h.HoldAnswers(durable(to))
	}
	bodies, takes := g.log.(bodyLog)
	from, apart := w.RaftTransport.(apartWire)
	if takes && apart {
		l.bodies, l.wire = bodies, from
		from.DataApart(bodies.Checksum)
	}
	return l
}

// durable is what answers wait for.
func durable(to stager) transport.Durable {
	if failpoint.Sown(failpoint.AnswerEarly) {
		return func(uint64, func(error)) (bool, error) { return true, nil }
	}
	return to.Durable
}

// started tells the log who writes. Until then it waits for the disk.
func (l *stagedLog) started(r *raft.Raft) { l.in.Store(r) }

// StoreLogs implements raft.LogStore. raft calls it on its main goroutine, so that the membership it looks at is
// the one by which the entries will be counted: only an entry of the log changes it, and those are waited for.
func (l *stagedLog) StoreLogs(logs []*raft.Log) error {
	if err := l.store(logs); err != nil {
		if !l.g.hurt(err) && l.shortened.Swap(false) {
			l.g.renew("what was to replace its last entries could not be stored")
		}
		return err
	}
	l.shortened.Store(false)
	for _, e := range logs {
		l.note(e)
	}
	return nil
}

func (l *stagedLog) store(logs []*raft.Log) error {
	stage := l.mayStage(logs)
	if slices.ContainsFunc(logs, transport.IsApart) {
		return l.storeArrived(logs, stage)
	}
	if stage {
		return l.to.Stage(logs)
	}
	return l.LogStore.StoreLogs(logs)
}

var errNoData = errors.New("group: the data of entries is apart and did not arrive")

// storeArrived stores entries of another node, whose data is not in them.
func (l *stagedLog) storeArrived(logs []*raft.Log, stage bool) error {
	var arrived []transport.Body
	if l.wire != nil {
		arrived = l.wire.Arrived(logs)
	}
	if arrived == nil {
		return errNoData
	}
	bodies := make([]store.Body, len(arrived))
	for i := range arrived {
		bodies[i] = store.Body(arrived[i])
	}
	if stage {
		return l.bodies.StageBodies(logs, bodies)
	}
	return l.bodies.StoreBodies(logs, bodies)
}

// DeleteRange implements raft.LogStore. A follower deletes what its leader has not, and stores what came in its place: if it cannot store that, raft
// goes on as if nothing were deleted, and the replica would refuse everything from then on. So what came is looked at before, and if storing it fails all the same
// the instance is made anew.
func (l *stagedLog) DeleteRange(from, to uint64) error {
	if l.wire != nil {
		for _, b := range l.wire.ArrivedFrom(from) {
			if err := (*store.Body)(&b).Sound(); err != nil {
				return err
			}
		}
	}
	end, err := l.LastIndex()
	if err != nil {
		return err
	}
	if err := l.LogStore.DeleteRange(from, to); err != nil {
		return err
	}
	if to >= end {
		l.shortened.Store(true)
	}
	l.cutOff(from, to, end)
	return nil
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
		return s.Suffrage == raft.Voter && s.ID != l.self
	})
}
