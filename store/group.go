package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// Group is the view of one Raft group: its LogStore and StableStore; Snapshots gives its SnapshotStore.
// All methods may be called from several goroutines.
type Group struct {
	s  *Store
	id GroupID

	// wmu orders the group's writes: it is held from placing a record until memory follows the disk, so that whoever
	// holds it sees the state that all records written so far add up to.
	wmu    turn
	staged *uint64 // the term of a vote whose candidate has not come yet; guarded by wmu

	mu      sync.RWMutex // guards what follows; taken after wmu, never held across a wait
	meta    meta
	entries index      // log and pinned entries; the log is what lies at or above meta.first
	snap    *published // newest published snapshot, nil if none
	damage  *CorruptError
	deleted bool
	trace   bool // something of the group is on disk
	stale   bool // see TakeStaleTail
	handed  bool // somebody may have a handle; guarded by the store's mu
	// marks are the writes that entries of the log wait for, in the order of both.
	marks []stageMark

	// Segments that hold small records of the group, as bounds; 0 when none does.
	metaLow, metaHigh uint32
	// placing says that a record is on its way into a segment that the bounds do not name yet.
	placing bool
}

func newGroup(s *Store, id GroupID) *Group {
	return &Group{s: s, id: id, wmu: newTurn(), meta: meta{keys: make(map[string][]byte)}}
}

// turn is a lock held across a write and its sync. It is a channel, so that in a synctest bubble, where a
// simulated disk sleeps, who waits for it lets the time go on; a mutex would stop it.
type turn chan struct{}

func newTurn() turn    { return make(turn, 1) }
func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// ID returns the group's id.
func (g *Group) ID() GroupID { return g.id }

// Err returns the damage that makes the group unusable, nil if there is none.
func (g *Group) Err() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.usable()
}

// usable is called with mu held.
func (g *Group) usable() error {
	if g.s.closed.Load() {
		return ErrClosed
	}
	if g.deleted {
		return fmt.Errorf("group %d: %w", g.id, ErrGroupDeleted)
	}
	if g.damage != nil {
		return g.damage
	}
	return nil
}

// quarantine makes the group answer every call with c.
func (g *Group) quarantine(c *CorruptError) *CorruptError {
	c.Group = g.id
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.damage == nil {
		g.damage = c
		g.s.damages.Add(1)
		g.s.log.Error("group quarantined", "group", uint64(g.id), "err", c)
	}
	return g.damage
}

// OnDamage sets who is told of a group whose bytes the store finds damaged by itself, as it moves them: nobody has called who could be given the
// error. It runs on a goroutine of the store and must return soon.
func (s *Store) OnDamage(f func(GroupID, *CorruptError)) { s.damaged.Store(&f) }

func (s *Store) tellDamage(g GroupID, c *CorruptError) {
	if f := s.damaged.Load(); f != nil {
		(*f)(g, c)
	}
}

// logFirst and logLast bound the log, 0 when it is empty. Called with mu held.
func (g *Group) logFirst() uint64 {
	i, _ := g.entries.ceil(max(g.meta.first, 1))
	return i
}

func (g *Group) logLast() uint64 {
	if i, ok := g.entries.max(); ok && i >= g.meta.first {
		return i
	}
	return 0
}

// FirstIndex implements raft.LogStore.
func (g *Group) FirstIndex() (uint64, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.logFirst(), g.usable()
}

// LastIndex implements raft.LogStore.
func (g *Group) LastIndex() (uint64, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.logLast(), g.usable()
}

// GetLog implements raft.LogStore. Data and Extensions are shared and must not be modified. A pinned entry below the log is not
// found here. The index of an installed snapshot answers with its term as long as the log begins right above it.
func (g *Group) GetLog(i uint64, log *raft.Log) error {
	g.mu.RLock()
	if err := g.usable(); err != nil {
		g.mu.RUnlock()
		return err
	}
	l, ok := g.entries.get(i)
	if !ok || i < g.meta.first {
		defer g.mu.RUnlock()
		return g.marker(i, log)
	}
	seg := g.s.acquire(l)
	g.mu.RUnlock()
	defer seg.refs.Add(-1)
	h, body, err := g.load(seg, l, i, true)
	if err != nil {
		return err
	}
	ext, data, _ := h.split(body)
	*log = raft.Log{Index: i, Term: h.term, Type: raft.LogType(h.typ), Data: data, Extensions: ext, AppendedAt: h.time()}
	return nil
}

// marker answers for the entry at an installed snapshot's index. raft asks for it to compare terms. It would also
// send it to a follower that starts from index 1, so that there only the real entry may be given: one
// that is known when the snapshot's configuration was made by it. Called with mu held.
func (g *Group) marker(i uint64, log *raft.Log) error {
	b := &g.meta.base
	if b.index == 0 || i != b.index || g.meta.first != b.index+1 {
		return raft.ErrLogNotFound
	}
	switch {
	case b.config != nil:
		*log = raft.Log{Index: i, Term: b.term, Type: raft.LogConfiguration, Data: b.config}
	case i == 1:
		return raft.ErrLogNotFound
	default:
		*log = raft.Log{Index: i, Term: b.term, Type: raft.LogNoop}
	}
	return nil
}

// TakeStaleTail reports, once, that an installed snapshot has replaced the last entry of the log, exactly at the
// snapshot's index, by one of another term. A running Raft instance goes on comparing the leader's entries with the
// old term, which it has cached, and refuses them for ever: its host must make the instance anew.
func (g *Group) TakeStaleTail() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	stale := g.stale
	g.stale = false
	return stale
}

// Read returns the payload (raft.Log.Data) of an entry that is in the log or pinned. The bytes are shared and must not
// be modified. raft.ErrLogNotFound if the entry is gone.
func (g *Group) Read(i uint64) ([]byte, error) {
	g.mu.RLock()
	if err := g.usable(); err != nil {
		g.mu.RUnlock()
		return nil, err
	}
	l, ok := g.entries.get(i)
	if !ok {
		g.mu.RUnlock()
		return nil, raft.ErrLogNotFound
	}
	seg := g.s.acquire(l)
	g.mu.RUnlock()
	defer seg.refs.Add(-1)
	h, body, err := g.load(seg, l, i, true)
	if err != nil {
		return nil, err
	}
	_, data, _ := h.split(body)
	return data, nil
}

// load reads and checks the entry i at l; damage quarantines the group. The caller holds a reference to seg.
func (g *Group) load(seg *segment, l loc, i uint64, keep bool) (h header, body []byte, err error) {
	h, body, err = g.s.readRecord(seg, l, keep)
	if err == nil && (h.group != g.id || h.index != i || h.kind != kindEntry && h.kind != kindPinned) {
		err = &CorruptError{Segment: l.segment, Offset: int64(l.off), Reason: "another record stands here"}
	}
	if c, ok := errors.AsType[*CorruptError](err); ok {
		return header{}, nil, g.quarantine(c)
	}
	return h, body, err
}

// StoreLog implements raft.LogStore.
func (g *Group) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore; it returns when the entries are durable. Gaps are allowed; an index that is present is
// replaced; one below the log's beginning, or covered by a published snapshot and gone, is ErrLogRange.
func (g *Group) StoreLogs(logs []*raft.Log) error {
	return g.StoreBodies(logs, nil)
}

// storeRecords writes entries and waits for them. Called with wmu held.
func (g *Group) storeRecords(recs []record) error {
	locs := make([]loc, len(recs))
	if err := g.commit(recs, locs); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.putEntries(recs, locs)
	return nil
}

// putEntries makes entries readable. Called with mu held.
func (g *Group) putEntries(recs []record, locs []loc) {
	for i := range recs {
		g.s.release(g.entries.put(recs[i].index, locs[i]))
	}
}

// entryRecords makes the records of entries; bodies may be nil.
func (g *Group) entryRecords(logs []*raft.Log, bodies []Body) ([]record, error) {
	recs := make([]record, len(logs))
	for i, l := range logs {
		r := &recs[i]
		*r = record{header: header{kind: kindEntry, typ: uint8(l.Type), group: g.id, index: l.Index, term: l.Term}, ext: l.Extensions, data: l.Data}
		if bodies != nil {
			r.data, r.pieces = nil, bodies[i].Pieces
		}
		if n := r.dataBytes(); n+len(l.Extensions)+4 > RecordBytesMax {
			return nil, fmt.Errorf("entry %d of group %d: %d bytes: %w", l.Index, g.id, n, ErrTooLarge)
		}
		r.setTime(l.AppendedAt)
		r.seal()
		if bodies != nil && bodies[i].damaged(r) {
			return nil, fmt.Errorf("entry %d of term %d of group %d: %w", l.Index, l.Term, g.id, ErrDamagedBody)
		}
	}
	return recs, nil
}

// admits tells why entries may not be stored. Called with wmu held.
func (g *Group) admits(logs []*raft.Log) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if err := g.usable(); err != nil {
		return err
	}
	for _, l := range logs {
		if l.Index < max(g.meta.first, 1) || l.Index == ^uint64(0) {
			return fmt.Errorf("store entry %d of group %d, log begins at %d: %w", l.Index, g.id, g.meta.first, ErrLogRange)
		}
	}
	return nil
}

// Found writes what a new replica begins with, its term and the entry at index 1, without waiting for the disk. The
// log is one stream: what this group, or any other, makes durable later is durable only together with it. A crash before
// leaves no trace of the group, and nobody can have been promised anything by it: a vote, a newer term and an entry are waited for.
func (g *Group) Found(term uint64, first *raft.Log) error {
	g.wmu.Lock()
	defer g.wmu.Unlock()
	g.mu.RLock()
	err := g.usable()
	if old, known := g.meta.keys[keyCurrentTerm]; err == nil && (g.meta.voteCand != nil || g.snap != nil || g.logLast() > 0 || known && binary.LittleEndian.Uint64(old) > term) {
		err = fmt.Errorf("found group %d: it has a history", g.id)
	}
	g.mu.RUnlock()
	if err != nil {
		return err
	}
	recs := []record{
		stableRecord(g.id, keyCurrentTerm, binary.LittleEndian.AppendUint64(nil, term)),
		{header: header{kind: kindEntry, typ: uint8(first.Type), group: g.id, index: first.Index, term: first.Term}, ext: first.Extensions, data: first.Data},
	}
	recs[1].setTime(first.AppendedAt)
	recs[1].seal()
	var locs [2]loc
	if _, err := g.place(recs, locs[:]); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.meta.keys[keyCurrentTerm] = binary.LittleEndian.AppendUint64(nil, term)
	g.s.release(g.entries.put(first.Index, locs[1]))
	return nil
}

// commit writes recs and waits for them. Called with wmu held.
func (g *Group) commit(recs []record, locs []loc) error {
	t, err := g.place(recs, locs)
	if err != nil {
		return err
	}
	return t.wait()
}

// place writes recs without waiting. Called with wmu held.
func (g *Group) place(recs []record, locs []loc) (*ticket, error) {
	g.mu.Lock()
	g.placing, g.trace = true, true
	g.mu.Unlock()
	t, err := g.s.wal.append(recs, locs)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.placing = false
	if err != nil {
		return nil, err
	}
	for i := range recs {
		if recs[i].kind != kindEntry && recs[i].kind != kindPinned {
			g.touch(locs[i].segment)
		}
	}
	return t, nil
}

// touch notes that a segment holds small records of the group. Called with mu held.
func (g *Group) touch(segment uint32) {
	if g.metaLow == 0 || segment < g.metaLow {
		g.metaLow = segment
	}
	g.metaHigh = max(g.metaHigh, segment)
}

// DeleteRange implements raft.LogStore. Removing a prefix only moves the log's beginning: pinned entries stay readable by Read. Removing a
// suffix, or everything above the published snapshot, forgets the entries and is durable on return. A hole in the middle is ErrLogRange.
func (g *Group) DeleteRange(from, to uint64) error {
	g.wmu.Lock()
	defer g.wmu.Unlock()
	g.mu.RLock()
	err := g.usable()
	first, last := g.logFirst(), g.logLast()
	covered := uint64(0)
	if g.snap != nil {
		covered = g.snap.index
	}
	g.mu.RUnlock()
	if err != nil || first == 0 || from > to || to < first || from > last {
		return err
	}
	switch {
	case from > first && to < last, from > first && from <= covered:
		return fmt.Errorf("delete %d..%d of group %d, log %d..%d, snapshot %d: %w", from, to, g.id, first, last, covered, ErrLogRange)
	case from > first:
		return g.truncate(from)
	case to < last || to <= covered:
		return g.begin(to + 1)
	}
	// The whole log, beyond the snapshot: a conflict from its first entry on.
	if covered >= first {
		if err := g.begin(covered + 1); err != nil {
			return err
		}
	}
	return g.truncate(max(first, covered+1))
}

// begin moves the log's beginning up to first. Nothing depends on it being durable before space is
// reclaimed, and the reclaimer waits for that itself. Called with wmu held.
func (g *Group) begin(first uint64) error {
	recs := []record{{header: header{kind: kindFirst, group: g.id, index: first}}}
	recs[0].seal()
	var locs [1]loc
	if _, err := g.place(recs, locs[:]); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.meta.first
	g.meta.first = first
	g.dropBelow(old, first)
	return nil
}

// dropBelow forgets entries in [from, to) that no pin of the published snapshot names. Called with mu held.
func (g *Group) dropBelow(from, to uint64) {
	if to == 0 || from >= to {
		return
	}
	var pins []Range
	if g.snap != nil {
		pins = g.snap.pins
	}
	gaps(pins, from, to-1, func(from, to uint64) {
		g.entries.remove(from, to, func(_ uint64, l loc) { g.s.release(l) })
	})
}

// truncate forgets every entry from from on. Called with wmu held.
func (g *Group) truncate(from uint64) error {
	recs := []record{{header: header{kind: kindTruncate, group: g.id, index: from}}}
	recs[0].seal()
	var locs [1]loc
	if err := g.commit(recs, locs[:]); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.meta.cuts = append(g.meta.cuts, truncation{from: from, seq: recs[0].seq})
	g.entries.remove(from, ^uint64(0), func(_ uint64, l loc) { g.s.release(l) })
	return nil
}

// placeRaw writes a record whose body is encoded already, without waiting. Called with wmu held.
func (g *Group) placeRaw(r *record, locs []loc) (*ticket, error) {
	r.raw = true
	recs := []record{*r}
	return g.place(recs, locs)
}
