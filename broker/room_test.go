package broker

import (
	"testing"

	"github.com/warrenmq/warren/queue/wire"
)

// The room of a consumer on a node whose clients leave too much unread: little, granted
// again as it reads, and all of it when the node is wide again.
func TestNarrowRoom(t *testing.T) {
	r := newStreamRig(t)
	s := r.s
	s.leader = "leader"
	c := &Consumer{no: 1, attached: true, roomMessages: consumerMessages, roomBytes: consumerBytes}
	c.stream.Store(s)
	lock := func(f func(*Consumer)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		f(c)
	}
	windows := func(messages, bytes int64) {
		t.Helper()
		var m, b int64
		for _, w := range sent[*wire.Window](r) {
			m, b = m+w.Messages, b+w.Bytes
		}
		if m != messages || b != bytes {
			t.Errorf("granted %d messages, %d bytes, want %d, %d", m, b, messages, bytes)
		}
	}
	lock(s.takeBackLocked)
	windows(0, 0)
	r.narrow = true
	lock(s.takeBackLocked)
	windows(narrowMessages-consumerMessages, narrowBytes-consumerBytes)
	lock(s.takeBackLocked)
	windows(0, 0)
	c.roomMessages, c.roomBytes = c.roomMessages-16, c.roomBytes-16000 // what the leader sent
	c.Written(2, 2000)
	windows(0, 0) // not worth a message
	c.Written(14, 14000)
	windows(16, 16000)
	if w := c.describe(); w.WindowMessages != narrowMessages || w.WindowBytes != narrowBytes {
		t.Errorf("a new leader is told of %d messages, %d bytes", w.WindowMessages, w.WindowBytes)
	}
	r.narrow = false
	c.roomMessages--
	c.roomBytes -= 100
	c.Written(1, 100)
	windows(consumerMessages-narrowMessages+1, consumerBytes-narrowBytes+100)
	if c.roomMessages != consumerMessages || c.roomBytes != consumerBytes || c.owedMessages != 0 || c.owedBytes != 0 {
		t.Errorf("room %d, %d, owed %d, %d", c.roomMessages, c.roomBytes, c.owedMessages, c.owedBytes)
	}
}
