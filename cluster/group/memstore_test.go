package group

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// memStore keeps a node's replicas in memory; it survives the host.
type memStore struct {
	mu     sync.Mutex
	groups map[transport.GroupID]*memLog
}

func newMemStore() *memStore { return &memStore{groups: make(map[transport.GroupID]*memLog)} }

func (s *memStore) Group(id transport.GroupID) Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.groups[id]
	if !ok {
		l = &memLog{InmemStore: raft.NewInmemStore(), entries: make(map[uint64]raft.Log)}
		s.groups[id] = l
	}
	return l
}

func (s *memStore) DeleteGroup(id transport.GroupID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, id)
	return nil
}

func (s *memStore) ReadManifest(r io.Reader) ([]byte, error) { return io.ReadAll(r) }

// memLog is a replica in memory with the promises of the segment log: a snapshot is
// visible when it is closed, never replaces a newer one, and one that was sent by a leader
// removes every entry up to its index but the term there.
type memLog struct {
	*raft.InmemStore // only its StableStore half

	mu          sync.Mutex
	entries     map[uint64]raft.Log
	first, last uint64 // 0 while there are no entries
	meta        *raft.SnapshotMeta
	data        []byte
	stale       bool
	truncated   bool  // the last change took entries from the end
	refuse      error // what StoreLogs says once, right behind such a change
}

// TakeStaleTail does what the segment log's does.
func (l *memLog) TakeStaleTail() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	stale := l.stale
	l.stale = false
	return stale
}

func (l *memLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, nil
}

func (l *memLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, nil
}

func (l *memLog) GetLog(index uint64, to *raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[index]; ok {
		*to = e
		return nil
	}
	if l.meta != nil && l.meta.Index == index {
		*to = raft.Log{Index: index, Term: l.meta.Term, Type: raft.LogNoop}
		return nil
	}
	return raft.ErrLogNotFound
}

func (l *memLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *memLog) StoreLogs(es []*raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refuse; err != nil && l.truncated {
		l.refuse = nil
		return err
	}
	l.truncated = false
	for _, e := range es {
		kept := *e
		kept.Data, kept.Extensions = bytes.Clone(e.Data), bytes.Clone(e.Extensions) // as the segment log does
		l.entries[e.Index] = kept
	}
	l.bounds()
	return nil
}

func (l *memLog) DeleteRange(from, to uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.truncated = to >= l.last && from > l.first
	for i := range l.entries {
		if i >= from && i <= to {
			delete(l.entries, i)
		}
	}
	l.bounds()
	return nil
}

func (l *memLog) bounds() {
	l.first, l.last = 0, 0
	for i := range l.entries {
		l.last = max(l.last, i)
		if l.first == 0 || i < l.first {
			l.first = i
		}
	}
}

func (l *memLog) Snapshots() raft.SnapshotStore { return l }

// Create implements raft.SnapshotStore.
func (l *memLog) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &memSink{l: l, meta: raft.SnapshotMeta{
		Version: v, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term, Configuration: c, ConfigurationIndex: ci,
	}}, nil
}

// List implements raft.SnapshotStore.
func (l *memLog) List() ([]*raft.SnapshotMeta, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta == nil {
		return nil, nil
	}
	return []*raft.SnapshotMeta{l.meta}, nil
}

// Open implements raft.SnapshotStore.
func (l *memLog) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta == nil || l.meta.ID != id {
		return nil, nil, fmt.Errorf("no snapshot %s", id)
	}
	return l.meta, io.NopCloser(bytes.NewReader(l.data)), nil
}

type memSink struct {
	l    *memLog
	meta raft.SnapshotMeta
	data []byte
}

func (s *memSink) ID() string    { return s.meta.ID }
func (s *memSink) Cancel() error { return nil }

func (s *memSink) Write(b []byte) (int, error) {
	s.data = append(s.data, b...)
	return len(b), nil
}

func (s *memSink) Close() error {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta != nil && l.meta.Index > s.meta.Index {
		return fmt.Errorf("snapshot %d is older than %d", s.meta.Index, l.meta.Index)
	}
	if e, ok := l.entries[s.meta.Index]; !ok || e.Term != s.meta.Term {
		l.stale = l.stale || ok && s.meta.Index == l.last
		for i := range l.entries {
			if i <= s.meta.Index {
				delete(l.entries, i)
			}
		}
		l.bounds()
	}
	s.meta.Size = int64(len(s.data))
	l.meta, l.data = &s.meta, s.data
	return nil
}

func (l *memLog) Read(index uint64) ([]byte, error) {
	var e raft.Log
	if err := l.GetLog(index, &e); err != nil {
		return nil, err
	}
	return e.Data, nil
}

// ledger is a machine that remembers the indexes and texts it applied.
type ledger struct {
	mu    sync.Mutex
	items []string
	last  uint64
}

func (l *ledger) Apply(e Entry) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Index <= l.last {
		panic(fmt.Sprintf("entry %d after %d", e.Index, l.last))
	}
	l.last = e.Index
	l.items = append(l.items, string(e.Data))
	return len(l.items)
}

func (l *ledger) Snapshot() (func() ([]byte, []store.Range), error) {
	l.mu.Lock()
	items, last := slices.Clone(l.items), l.last
	l.mu.Unlock()
	return func() ([]byte, []store.Range) {
		b := binary.AppendUvarint(nil, last)
		for _, it := range items {
			b = binary.AppendUvarint(b, uint64(len(it)))
			b = append(b, it...)
		}
		return b, nil
	}, nil
}

func (l *ledger) Restore(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = nil
	v, n := binary.Uvarint(b)
	l.last, b = v, b[n:]
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		l.items = append(l.items, string(b[n:n+int(v)]))
		b = b[n+int(v):]
	}
	return nil
}

func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.items)
}
