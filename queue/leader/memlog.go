package leader

import (
	"sync"

	"github.com/hashicorp/raft"
)

// MemLog is the log of a transient queue: entries live in this process and are
// applied as they are proposed.
type MemLog struct {
	replica *Replica

	mu      sync.Mutex
	last    uint64
	entries map[uint64][]byte
	fresh   int // bytes appended since the last collection
	kept    int // bytes that were left by it
}

// collectMin is the least that has to be appended before dead entries are
// looked for.
const collectMin = 1 << 20

// NewMemLog returns an empty log that applies to r.
func NewMemLog(r *Replica) *MemLog {
	return &MemLog{replica: r, entries: map[uint64][]byte{}}
}

// Propose implements Log. It is called by one leader at a time.
func (m *MemLog) Propose(data []byte, _ func(error)) {
	m.mu.Lock()
	m.last++
	index := m.last
	m.entries[index] = data
	m.fresh += len(data)
	collect := m.fresh > max(collectMin, m.kept)
	m.mu.Unlock()
	m.replica.Apply(index, data)
	if collect {
		m.collect()
	}
}

// Read implements Log.
func (m *MemLog) Read(index uint64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.entries[index]
	if !ok {
		return nil, raft.ErrLogNotFound
	}
	return data, nil
}

// HasLease implements Log.
func (m *MemLog) HasLease() bool { return true }

// collect drops the entries that no message needs.
func (m *MemLog) collect() {
	_, pins := m.replica.Snapshot()()
	m.mu.Lock()
	defer m.mu.Unlock()
	live := make(map[uint64][]byte, len(m.entries)/2)
	m.fresh, m.kept = 0, 0
	for _, p := range pins {
		for i := p.First; i <= p.Last; i++ {
			if data, ok := m.entries[i]; ok {
				live[i] = data
				m.kept += len(data)
			}
		}
	}
	m.entries = live
}
