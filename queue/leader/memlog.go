package leader

import (
	"bytes"
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
	bytes   int64 // of the entries
}

// collectMin is how many bytes have to be dead before dead entries are looked
// for.
const collectMin = 1 << 20

// NewMemLog returns an empty log that applies to r.
func NewMemLog(r *Replica) *MemLog {
	return &MemLog{replica: r, entries: map[uint64][]byte{}}
}

// Propose implements Log. It is called by one leader at a time. Entries stay for as long as their messages, so one in a
// buffer that is much too large for it is copied.
func (m *MemLog) Propose(data []byte, done func(error)) {
	if cap(data) > 2*len(data) && cap(data) > collectMin/64 {
		data = bytes.Clone(data)
		defer done(nil)
	}
	m.mu.Lock()
	m.last++
	index := m.last
	m.entries[index] = data
	m.bytes += int64(len(data))
	held := m.bytes
	m.mu.Unlock()
	m.replica.Apply(index, data)
	// An entry that appends nothing can kill much: a purge, or the last of many
	// acknowledgements.
	if dead := m.replica.Reclaimable(); dead > collectMin && dead > held/2 {
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

// Bytes is how many bytes of entries are held.
func (m *MemLog) Bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// HasLease implements Log.
func (m *MemLog) HasLease() bool { return true }

// collect drops the entries that no message needs.
func (m *MemLog) collect() {
	_, pins := m.replica.Snapshot()()
	m.mu.Lock()
	defer m.mu.Unlock()
	live := make(map[uint64][]byte, len(m.entries)/2)
	m.bytes = 0
	for _, p := range pins {
		for i := p.First; i <= p.Last; i++ {
			if data, ok := m.entries[i]; ok {
				live[i] = data
				m.bytes += int64(len(data))
			}
		}
	}
	m.entries = live
}
