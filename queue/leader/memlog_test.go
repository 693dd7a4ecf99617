package leader

import (
	"strings"
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// A log in memory gives back what died without waiting for more to come: nothing
// may come, while memory is low.
func TestMemLogShrinks(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	body := strings.Repeat("x", 100<<10)
	for range 100 {
		r.publish(a, body)
	}
	size := func() int64 {
		r.log.mu.Lock()
		defer r.log.mu.Unlock()
		return r.log.bytes
	}
	if n := size(); n < 100*int64(len(body)) {
		t.Fatalf("%d bytes for 100 messages of %d", n, len(body))
	}
	last := r.batch(a, fsm.Purge{})
	await(r, a.ID, func(m *wire.Answer) bool { return m.UpTo >= last })
	if n := size(); n > collectMin {
		t.Errorf("%d bytes are left after a purge", n)
	}
	r.publish(a, "works on")
}

// An entry in memory has no more than it needs, and what it came in is given back.
func TestMemLogCopiesOutOfLargeBuffers(t *testing.T) {
	lent := append(make([]byte, 0, 100<<10), 1, 2, 3)
	given := false
	m := &MemLog{replica: NewReplica(), entries: map[uint64][]byte{}}
	m.Propose(fsm.EncodeEntry(lent[:0], &fsm.Entry{}), func(err error) { given = err == nil })
	data, err := m.Read(1)
	if err != nil || cap(data) > 1<<10 || !given {
		t.Errorf("an entry of %d bytes in %d, %v; given back: %v", len(data), cap(data), err, given)
	}
}
