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
