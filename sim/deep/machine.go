package deep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"sync"

	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

const (
	// keepNewest and keepOld are how many entries a machine refers to: the newest, and of older ones each of which
	// the index is a multiple of keepEvery. The rest is let go, so that snapshots have pins with holes between.
	keepNewest = 24
	keepOld    = 12
	keepEvery  = 9
)

// machine is like a queue's: it keeps references to some entries, whose bytes stay in the log, and a hash of
// everything it has ever applied.
type machine struct {
	n  *life
	id transport.GroupID

	mu    sync.Mutex // guards the rest
	last  uint64
	count uint64
	hash  uint64
	live  []uint64
	bytes int64 // applied since the last snapshot
}

var _ group.Reclaimer = (*machine)(nil)

// hashSeed is of this process, as all hashes that are compared are.
var hashSeed = maphash.MakeSeed()

func mix(hash, index uint64, data []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], hash)
	binary.LittleEndian.PutUint64(b[8:], index)
	_, _ = h.Write(b[:])
	_, _ = h.Write(data)
	return h.Sum64()
}

// Apply implements group.Machine. The result is the entry's index.
func (m *machine) Apply(e group.Entry) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Index <= m.last {
		m.n.w.oracle.Fail("%s applies entry %d of group %d after %d", m.n.id, e.Index, m.id, m.last)
	}
	m.last, m.count = e.Index, m.count+1
	m.hash = mix(m.hash, e.Index, e.Data)
	m.live = append(m.live, e.Index)
	m.live = trim(m.live)
	m.bytes += int64(len(e.Data))
	m.n.w.oracle.applied(m.n, m.id, e, m.hash)
	return e.Index
}

// trim lets references go.
func trim(live []uint64) []uint64 {
	if len(live) <= keepNewest {
		return live
	}
	edge := len(live) - keepNewest
	if live[edge-1]%keepEvery != 0 {
		live = slices.Delete(live, edge-1, edge)
		edge--
	}
	if edge > keepOld {
		live = slices.Delete(live, 0, 1)
	}
	return live
}

// Snapshot implements group.Machine. The manifest is last, count, hash and the live indexes, 8 bytes each.
func (m *machine) Snapshot() (func() ([]byte, []store.Range), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes = 0
	live, head := slices.Clone(m.live), []uint64{m.last, m.count, m.hash}
	return func() ([]byte, []store.Range) {
		var b []byte
		for _, v := range append(head, live...) {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		var pins []store.Range
		for _, i := range live {
			if n := len(pins); n > 0 && pins[n-1].Last+1 == i {
				pins[n-1].Last = i
				continue
			}
			pins = append(pins, store.Range{First: i, Last: i})
		}
		return b, pins
	}, nil
}

// Restore implements group.Machine.
func (m *machine) Restore(b []byte) error {
	if len(b) < 24 || len(b)%8 != 0 {
		return fmt.Errorf("manifest of %d bytes", len(b))
	}
	var v []uint64
	for ; len(b) > 0; b = b[8:] {
		v = append(v, binary.LittleEndian.Uint64(b))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count > 0 && v[0] < m.last {
		m.n.w.oracle.Fail("%s goes back from %d to a snapshot at %d in group %d", m.n.id, m.last, v[0], m.id)
	}
	if m.count > 0 {
		m.n.w.report.installs.Add(1)
	}
	m.last, m.count, m.hash, m.live, m.bytes = v[0], v[1], v[2], v[3:], 0
	m.n.w.oracle.restored(m.n, m.id, m.last, m.hash)
	return nil
}

// Succeed implements group.Heir: its state does not tell whose it was.
func (m *machine) Succeed() {}

// Reclaimable implements group.Reclaimer.
func (m *machine) Reclaimable() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// state is what must be equal on all replicas.
type state struct {
	last, count, hash uint64
}

func (m *machine) state() (state, []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return state{m.last, m.count, m.hash}, slices.Clone(m.live)
}

// watcher tells the oracle who leads.
type watcher struct {
	n  *life
	id transport.GroupID
	p  placing // of which the replica was begun
}

// Leadership implements group.Observer.
func (o watcher) Leadership(term uint64, leader transport.NodeID, self bool) {
	if self && o.p.survivors != nil {
		o.n.begins(o.id, o.p.settings)
		return
	}
	if self {
		o.n.w.oracle.leads(o.n, o.id, term)
	}
}

func drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
