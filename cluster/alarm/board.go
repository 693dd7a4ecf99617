package alarm

import (
	"errors"
	"strings"
	"sync"
	"time"
)

// MessageKind is the mesh's message kind that carries a node's alarms.
const MessageKind = 3

// Set is a set of resources a node is short of.
type Set uint8

// The resources.
const (
	MemoryLow Set = 1 << iota
	DiskLow
)

const known = MemoryLow | DiskLow

// Reason is what clients are told: "low on memory & disk", "" for the empty set.
func (s Set) Reason() string {
	var names []string
	if s&MemoryLow != 0 {
		names = append(names, "memory")
	}
	if s&DiskLow != 0 {
		names = append(names, "disk")
	}
	if names == nil {
		return ""
	}
	return "low on " + strings.Join(names, " & ")
}

// Stale is how long a node's word that it is in alarm counts. The word is
// repeated at least each Repeat while the alarm lasts, and none ends one.
const (
	Repeat = 2 * time.Second
	Stale  = 10 * time.Second
)

const version = 1

// Encode returns the message that tells a node's alarms.
func Encode(s Set) []byte { return []byte{version, byte(s)} }

var errForm = errors.New("alarm: malformed message")

// Decode reads what Encode made. Resources it does not know are left out.
func Decode(b []byte) (Set, error) {
	if len(b) != 2 || b[0] != version {
		return 0, errForm
	}
	return Set(b[1]) & known, nil
}

// Board holds the alarms of all nodes. Its methods may be called from any
// goroutine.
type Board struct {
	now func() time.Time

	mu     sync.Mutex
	local  Set
	others map[string]word
}

type word struct {
	set   Set
	heard time.Time
}

// NewBoard returns a board without alarms that tells the time by now.
func NewBoard(now func() time.Time) *Board { return &Board{now: now, others: map[string]word{}} }

// SetLocal sets or clears resources of the local node and tells whether that
// changed anything.
func (b *Board) SetLocal(s Set, on bool) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.local
	if on {
		b.local |= s
	} else {
		b.local &^= s
	}
	return b.local != before
}

// Local returns the local node's alarms.
func (b *Board) Local() Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.local
}

// Heard notes what another node says of itself.
func (b *Board) Heard(node string, s Set) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s == 0 {
		delete(b.others, node)
		return
	}
	b.others[node] = word{s, b.now()}
}

// Of returns what another node is short of as far as that counts here: none if its word is stale.
func (b *Board) Of(node string) Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.others[node]
	if !ok || b.now().Sub(w.heard) > Stale {
		return 0
	}
	return w.set
}

// Forget drops the alarms of a node that is dead.
func (b *Board) Forget(node string) { b.Heard(node, 0) }

// All returns what any node is short of.
func (b *Board) All() Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.local
	for node, w := range b.others {
		if b.now().Sub(w.heard) > Stale {
			delete(b.others, node)
			continue
		}
		s |= w.set
	}
	return s
}
