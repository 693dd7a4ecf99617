package store

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/hashicorp/raft"
)

// ErrReadOnly is returned for a change to a store that is only looked at.
var ErrReadOnly = errors.New("store: only looked at, not to be changed")

// Inspection is what the directory of a store held when Inspect read it. It changes nothing there and takes no lock, so that a node may
// be using the directory; what it does meanwhile can make reads fail or look damaged, and then Inspect has to be called again.
type Inspection struct{ s *Store }

// Inspect reads the state of every group in o.Dir as Open would recover it, but for what Open would repair. Of o it uses Dir, FS
// and Logger. Errors callers decide by: ErrForeignDirectory, ErrVersion, *CorruptError. The caller closes the Inspection.
func Inspect(o Options) (*Inspection, error) {
	o.setDefaults()
	o.FS = readOnly{o.FS}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{o: o, fs: o.FS, log: o.Logger, looksOnly: true, segs: make(map[uint32]*segment), groups: make(map[GroupID]*Group), wake: make(chan struct{}, 1)}
	fail := func(err error) (*Inspection, error) {
		return nil, errors.Join(fmt.Errorf("inspect store %s: %w", o.Dir, err), s.shut())
	}
	if err := checkVersion(o.FS, o.Dir); err != nil {
		return fail(err)
	}
	_, blank, err := s.openSegments()
	if err != nil {
		return fail(err)
	}
	groups := make(map[GroupID]*recovered)
	if _, _, _, err := s.scanAll(groups, blank); err != nil {
		return fail(err)
	}
	for id, r := range groups {
		g := newGroup(s, id)
		s.groups[id] = g
		g.restore(r)
	}
	return &Inspection{s}, nil
}

// Close closes the files.
func (i *Inspection) Close() error {
	i.s.closed.Store(true)
	return i.s.shut()
}

// Groups lists the groups that have something on disk, ascending.
func (i *Inspection) Groups() []GroupID { return i.s.Groups() }

// Group looks at one group; ok is false if there is nothing of it.
func (i *Inspection) Group(id GroupID) (g InspectedGroup, ok bool) {
	found := i.s.existing(id)
	if found == nil || !found.trace {
		return g, false
	}
	return InspectedGroup{found}, true
}

// InspectedGroup is one group of an Inspection.
type InspectedGroup struct{ g *Group }

// Damage is what makes the group unusable, nil if there is nothing.
func (g InspectedGroup) Damage() error {
	if g.g.damage == nil {
		return nil
	}
	return g.g.damage
}

// Log returns the bounds of the log, 0 if it is empty.
func (g InspectedGroup) Log() (first, last uint64) { return g.g.logFirst(), g.g.logLast() }

// Vote is the last vote of the replica, zero if it has none.
func (g InspectedGroup) Vote() (term uint64, candidate string) {
	return g.g.meta.voteTerm, string(g.g.meta.voteCand)
}

// Keys are the other small records of Raft, by key.
func (g InspectedGroup) Keys() map[string][]byte { return maps.Clone(g.g.meta.keys) }

// Indexes lists what is there of the log and of pinned entries from first to last.
func (g InspectedGroup) Indexes(first, last uint64) []uint64 {
	var list []uint64
	g.g.entries.each(first, last, func(i uint64, _ loc) bool {
		list = append(list, i)
		return true
	})
	return list
}

// Entry reads an entry of the log, or a pinned one below it. It is raft.ErrLogNotFound if it is gone and a *CorruptError if it is damaged.
func (g InspectedGroup) Entry(index uint64) (raft.Log, error) {
	l, ok := g.g.entries.get(index)
	if !ok {
		return raft.Log{}, raft.ErrLogNotFound
	}
	seg := g.g.s.acquire(l)
	defer seg.refs.Add(-1)
	h, body, err := g.g.s.readRecord(seg, l, false)
	if err == nil && (h.group != g.g.id || h.index != index) {
		err = &CorruptError{Group: g.g.id, Segment: l.segment, Offset: int64(l.off), Reason: "another record stands here"}
	}
	if err != nil {
		return raft.Log{}, err
	}
	ext, data, _ := h.split(body)
	return raft.Log{Index: index, Term: h.term, Type: raft.LogType(h.typ), Data: data, Extensions: ext, AppendedAt: h.time()}, nil
}

// Bytes is what the group's entries and its snapshot take on disk.
func (g InspectedGroup) Bytes() (n int64) {
	g.g.entries.each(0, ^uint64(0), func(_ uint64, l loc) bool {
		n += l.bytes()
		return true
	})
	if g.g.snap != nil {
		n += g.g.snap.record
	}
	return n
}

// InspectedSnapshot is a group's newest snapshot.
type InspectedSnapshot struct {
	*raft.SnapshotMeta
	// Installed: it came from another replica.
	Installed bool
	// Pins are the entries at or below its index that it needs, Entries how many there are.
	Pins    []Range
	Entries uint64
	// Manifest is the machine's own part.
	Manifest []byte
}

// Snapshot reads the newest snapshot; nil without an error if there is none.
func (g InspectedGroup) Snapshot() (*InspectedSnapshot, error) {
	p := g.g.snap
	if p == nil {
		return nil, nil
	}
	seg := g.g.s.acquire(p.loc)
	defer seg.refs.Add(-1)
	h, body, err := g.g.s.readRecord(seg, p.loc, false)
	if err != nil {
		return nil, err
	}
	_, manifest, err := decodePublished(&h, p.loc, body)
	if err != nil {
		return nil, err
	}
	return &InspectedSnapshot{SnapshotMeta: p.meta(), Installed: p.installed, Pins: slices.Clone(p.pins), Entries: p.entries, Manifest: manifest}, nil
}

// readOnly is a file system on which nothing can be changed.
type readOnly struct{ FS }

// Open implements FS.
func (r readOnly) Open(name string) (File, error) {
	var f File
	var err error
	if o, ok := r.FS.(interface {
		OpenToRead(name string) (File, error)
	}); ok {
		f, err = o.OpenToRead(name)
	} else {
		f, err = r.FS.Open(name)
	}
	if err != nil {
		return nil, err
	}
	return readOnlyFile{f}, nil
}

// MkdirAll implements FS, as do the following.
func (readOnly) MkdirAll(string) error       { return ErrReadOnly }
func (readOnly) Create(string) (File, error) { return nil, ErrReadOnly }
func (readOnly) Rename(string, string) error { return ErrReadOnly }
func (readOnly) Remove(string) error         { return ErrReadOnly }
func (readOnly) SyncDir(string) error        { return ErrReadOnly }

type readOnlyFile struct{ File }

// WriteAt implements File, as do the following.
func (readOnlyFile) WriteAt([]byte, int64) (int, error)      { return 0, ErrReadOnly }
func (readOnlyFile) WriteDirect([]byte, []byte, int64) error { return ErrReadOnly }
func (readOnlyFile) Fdatasync() error                        { return ErrReadOnly }
func (readOnlyFile) Truncate(int64) error                    { return ErrReadOnly }
func (readOnlyFile) Allocate(int64) error                    { return ErrReadOnly }
