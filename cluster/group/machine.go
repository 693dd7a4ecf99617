package group

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
)

// Entry is one committed command.
type Entry struct {
	Index, Term uint64
	// Data must not be changed, and not be kept beyond Apply.
	Data []byte
}

// Machine is the replicated machine of one group. All calls come from one goroutine
// at a time, in log order.
type Machine interface {
	// Apply takes the next command; the result reaches the proposer's callback on
	// the leader.
	Apply(e Entry) any
	// Snapshot captures the state quickly; encode runs later on another goroutine
	// and returns the manifest with the entries that it refers to.
	Snapshot() (encode func() (manifest []byte, pins []store.Range), err error)
	// Restore replaces the whole state.
	Restore(manifest []byte) error
}

// Reclaimer is a Machine that knows what a snapshot would free.
type Reclaimer interface {
	// Reclaimable returns the bytes of log that a snapshot taken now would free. It
	// is called like Apply, and behind each batch: it has to be quick.
	Reclaimable() int64
}

// entryOverheadBytes is what a log entry costs besides its data, roughly.
const entryOverheadBytes = 64

// applier stands between raft and a Machine. Its methods are called by raft's FSM
// goroutine; the atomics are read by anybody.
type applier struct {
	g       *Group
	machine Machine
	reclaim Reclaimer // nil if the machine has no opinion

	// index is the newest entry the machine has seen. A re-created Raft instance
	// replays from the last snapshot; what is at or below index is not applied again.
	index uint64
	// seen is the newest entry that the present Raft instance has handed over.
	seen     uint64
	results  []result // reused between batches
	applied  atomic.Uint64
	logBytes atomic.Int64 // applied since the last snapshot
	entries  atomic.Int64 // applied since the last snapshot
	freeable atomic.Int64 // what a snapshot would free
	heat     atomic.Int64 // applied bytes, decayed by the host
	// captured is the newest capture; raft takes one snapshot at a time.
	captured atomic.Pointer[capture]
}

// result is the outcome of one applied command. id is the identity of its data.
type result struct {
	id    *byte
	value any
}

// identity returns what tells one proposal's bytes from another's: their address.
func identity(data []byte) *byte {
	if len(data) == 0 {
		return nil
	}
	return &data[0]
}

var _ raft.BatchingFSM = (*applier)(nil)

func newApplier(g *Group, m Machine) *applier {
	a := &applier{g: g, machine: m}
	a.reclaim, _ = m.(Reclaimer)
	return a
}

// ApplyBatch implements raft.BatchingFSM. The answers travel to the proposer by the
// identity of the proposed bytes, which raft hands back on the leader, and not
// through raft's futures: those can hang for ever when an instance stops.
func (a *applier) ApplyBatch(logs []*raft.Log) []any {
	a.g.checkCommitted(logs)
	out := make([]any, len(logs))
	a.results = a.results[:0]
	var bytes, entries int64
	changed := false
	for _, l := range logs {
		a.seen = l.Index
		if l.Index <= a.index {
			continue
		}
		a.index = l.Index
		bytes += int64(len(l.Data)) + entryOverheadBytes
		entries++
		switch l.Type {
		case raft.LogCommand:
			v := a.machine.Apply(Entry{Index: l.Index, Term: l.Term, Data: l.Data})
			a.results = append(a.results, result{id: identity(l.Data), value: v})
		case raft.LogConfiguration:
			changed = true
		}
	}
	a.account(bytes, entries)
	a.applied.Store(a.index)
	a.g.applied(a.results)
	clear(a.results)
	if changed {
		a.g.membersChanged()
	}
	return out
}

// Apply implements raft.FSM for completeness; raft uses ApplyBatch.
func (a *applier) Apply(l *raft.Log) any { return a.ApplyBatch([]*raft.Log{l})[0] }

func (a *applier) account(bytes, entries int64) {
	a.heat.Add(bytes)
	a.g.settled.Store(false)
	a.g.host.watch.rouse(a.g)
	total := a.logBytes.Add(bytes)
	a.entries.Add(entries)
	if a.reclaim == nil {
		a.freeable.Store(total)
		return
	}
	a.freeable.Store(a.reclaim.Reclaimable()) // each time: a few bytes of acks free any number of them
}

// Snapshot implements raft.FSM.
func (a *applier) Snapshot() (raft.FSMSnapshot, error) {
	if a.seen < a.index {
		// A re-created instance is still replaying what the machine knows: it would
		// label the state with an index too low.
		return nil, raft.ErrNothingNewToSnapshot
	}
	encode, err := a.machine.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("capture group %d at %d: %w", a.g.spec.ID, a.index, err)
	}
	c := &capture{a: a, encode: encode, index: a.index, bytes: a.logBytes.Load(), entries: a.entries.Load()}
	a.captured.Store(c)
	return c, nil
}

// Restore implements raft.FSM. A snapshot that was under way for long may be older than what
// this replica has applied since; raft restores it all the same and hands over what follows once more.
// The machine does not go back for it.
func (a *applier) Restore(r io.ReadCloser) error {
	index := snapshotIndex(r)
	a.seen = index
	if index == 0 || index >= a.index {
		if err := a.restore(r, index); err != nil {
			return err
		}
	}
	a.g.membersChanged()
	a.g.refreshTail()
	return nil
}

func (a *applier) restore(r io.Reader, index uint64) error {
	manifest, err := a.g.host.cfg.Store.ReadManifest(r)
	if err != nil {
		return fmt.Errorf("read manifest of group %d: %w", a.g.spec.ID, err)
	}
	if err := a.machine.Restore(manifest); err != nil {
		return fmt.Errorf("restore group %d: %w", a.g.spec.ID, err)
	}
	a.index = index
	a.applied.Store(max(index, a.applied.Load()))
	a.logBytes.Store(0)
	a.entries.Store(0)
	a.freeable.Store(0)
	return nil
}

// snapshotIndex returns the index of an opened snapshot, 0 if its store does not tell. Everything
// after that comes through ApplyBatch, in order.
func snapshotIndex(r io.ReadCloser) uint64 {
	if w, ok := r.(raft.ReadCloserWrapper); ok {
		r = w.WrappedReadCloser()
	}
	if s, ok := r.(interface{ Index() uint64 }); ok {
		return s.Index()
	}
	return 0
}

// capture is a machine's state on its way to the store.
type capture struct {
	a              *applier
	encode         func() ([]byte, []store.Range)
	index          uint64
	bytes, entries int64
}

// Persist implements raft.FSMSnapshot. It runs on raft's snapshot goroutine.
func (c *capture) Persist(sink raft.SnapshotSink) error {
	manifest, pins := c.encode()
	var err error
	if ms, ok := sink.(manifestSink); ok {
		err = ms.WriteManifest(manifest, pins)
	} else {
		_, err = sink.Write(manifest)
	}
	if err != nil {
		return fmt.Errorf("write manifest of group %d at %d: %w", c.a.g.spec.ID, c.index, err)
	}
	return nil
}

// Release implements raft.FSMSnapshot. It is called whether or not Persist was.
func (c *capture) Release() {}

// snapshotted accounts for the newest capture once the store has published it.
func (a *applier) snapshotted() {
	c := a.captured.Swap(nil)
	if c == nil {
		return
	}
	a.entries.Add(-c.entries)
	left := a.logBytes.Add(-c.bytes)
	if a.reclaim == nil {
		a.freeable.Store(left)
	} else {
		a.freeable.Store(0)
	}
}
