package store

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// ManifestSink is what Create's sink also implements. A local snapshot uses WriteManifest once instead of Write.
type ManifestSink interface {
	raft.SnapshotSink
	// WriteManifest gives the whole snapshot: the manifest and the entries at or below its index that stay
	// readable. Both are copied. Close publishes them.
	WriteManifest(manifest []byte, pins []Range) error
}

// Snapshots returns the group's snapshot store. It keeps one snapshot, the newest published.
func (g *Group) Snapshots() raft.SnapshotStore { return snapshots{g} }

type snapshots struct{ g *Group }

// Create implements raft.SnapshotStore. The sink takes either one WriteManifest, or by Write the stream that another
// replica's Open produced, which makes it an installation.
func (s snapshots) Create(version raft.SnapshotVersion, index, term uint64, config raft.Configuration,
	configIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if err := s.g.Err(); err != nil {
		return nil, err
	}
	if version != raft.SnapshotVersionMax {
		return nil, fmt.Errorf("snapshot version %d of group %d is not supported", version, s.g.id)
	}
	if index == 0 || index == ^uint64(0) {
		return nil, fmt.Errorf("snapshot of group %d at index %d: %w", s.g.id, index, ErrLogRange)
	}
	number := s.g.s.installations.Add(1)
	return &sink{g: s.g, p: published{
		id: snapshotID(index, term, number), version: version, index: index, term: term,
		config: config.Clone(), configIndex: configIndex, number: number,
	}}, nil
}

// List implements raft.SnapshotStore.
func (s snapshots) List() ([]*raft.SnapshotMeta, error) {
	s.g.mu.RLock()
	defer s.g.mu.RUnlock()
	if err := s.g.usable(); err != nil {
		return nil, err
	}
	if s.g.snap == nil {
		return nil, nil
	}
	return []*raft.SnapshotMeta{s.g.snap.meta()}, nil
}

// Open implements raft.SnapshotStore. The reader streams the manifest and every pinned entry and keeps them on disk until it is
// closed, whatever is published meanwhile. Reading only the manifest costs only the manifest.
func (s snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	g := s.g
	g.mu.RLock()
	defer g.mu.RUnlock()
	if err := g.usable(); err != nil {
		return nil, nil, err
	}
	p := g.snap
	if p == nil || p.id != id {
		return nil, nil, fmt.Errorf("open snapshot %q of group %d: %w", id, g.id, ErrSnapshotUnknown)
	}
	r := g.reader(p, nil)
	if uint64(len(r.entries)) != p.entries {
		_ = r.Close()
		return nil, nil, fmt.Errorf("open snapshot %q of group %d: %d of %d pinned entries: %w", id, g.id, len(r.entries), p.entries, errManifest)
	}
	return p.meta(), r, nil
}

type pinned struct {
	index uint64
	loc   loc
}

// snapshotReader produces the stream of one snapshot. It belongs to one goroutine.
type snapshotReader struct {
	g        *Group
	p        *published
	manifest []byte              // nil: in p's record
	segments map[uint32]*segment // referenced until Close
	entries  []pinned            // left to send
	state    streamState
	chunks   [][]byte // not handed out yet
	crc      uint32   // of everything put into chunks so far
	err      error
	once     sync.Once
}

// Index returns the index of the snapshot.
func (r *snapshotReader) Index() uint64 { return r.p.index }

// hold is called with the group's mu held.
func (r *snapshotReader) hold(l loc) {
	if r.segments[l.segment] == nil {
		r.segments[l.segment] = r.g.s.acquire(l)
	}
}

// Read implements io.Reader. Damaged bytes are a *CorruptError, never part of the stream.
func (r *snapshotReader) Read(b []byte) (n int, err error) {
	for n < len(b) {
		for len(r.chunks) > 0 && len(r.chunks[0]) == 0 {
			r.chunks = r.chunks[1:]
		}
		if len(r.chunks) > 0 {
			k := copy(b[n:], r.chunks[0])
			r.chunks[0] = r.chunks[0][k:]
			n += k
			continue
		}
		if r.err == nil {
			r.err = r.fill()
		}
		if r.err != nil {
			break
		}
	}
	if n == 0 && len(b) > 0 {
		return 0, r.err
	}
	return n, nil
}

// fill makes the next chunks of the stream.
func (r *snapshotReader) fill() error {
	switch r.state {
	case inHead:
		manifest := r.manifest
		if manifest == nil {
			var err error
			if manifest, err = r.g.readManifest(r.segments[r.p.loc.segment], r.p); err != nil {
				return err
			}
		}
		r.manifest = nil
		r.emit(streamHead(r.p.pins, manifest, r.p.entries), manifest)
		r.state = inEntryHead
	case inEntryHead:
		if len(r.entries) == 0 {
			r.state = inTrailer
			return nil
		}
		e := r.entries[0]
		r.entries = r.entries[1:]
		h, body, err := r.g.load(r.segments[e.loc.segment], e.loc, e.index, false)
		if err != nil {
			return err
		}
		head := make([]byte, streamEntryBytes)
		putStreamEntry(head, &h)
		r.emit(head, body)
	case inTrailer:
		r.emit(streamTrailer(r.crc))
		r.state = inEnd
	default:
		return io.EOF
	}
	return nil
}

func (r *snapshotReader) emit(chunks ...[]byte) {
	for _, c := range chunks {
		r.crc = updateCRC(r.crc, c)
	}
	r.chunks = append(r.chunks, chunks...)
}

// Close lets go of the entries. It is safe twice.
func (r *snapshotReader) Close() error {
	r.once.Do(func() {
		for _, seg := range r.segments {
			seg.refs.Add(-1)
		}
		r.g.s.nudge()
	})
	return nil
}

// readManifest reads a published manifest; damage quarantines the group. The caller holds a reference to seg.
func (g *Group) readManifest(seg *segment, p *published) ([]byte, error) {
	h, body, err := g.s.readRecord(seg, p.loc, false)
	if err == nil && (h.group != g.id || h.kind != kindManifest || h.seq != p.seq) {
		err = &CorruptError{Segment: p.loc.segment, Offset: int64(p.loc.off), Reason: "another record stands where a manifest was"}
	}
	if c, ok := errors.AsType[*CorruptError](err); ok {
		return nil, g.quarantine(c)
	}
	if err != nil {
		return nil, err
	}
	_, manifest, err := decodePublished(&h, p.loc, body)
	return manifest, err
}
