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

// TestRoomThatTheLinkDoesNotTake: room that a full link did not take is granted later, although the consumer has none left and so nothing to do.
func TestRoomThatTheLinkDoesNotTake(t *testing.T) {
	r := newStreamRig(t)
	s := r.s
	s.leader = "leader"
	c := &Consumer{no: 1, attached: true, roomMessages: consumerMessages - 1, roomBytes: consumerBytes - 16<<20}
	c.stream.Store(s)
	s.consumers[1] = c
	r.down = true
	c.Written(1, 16<<20)
	if !s.retry() || r.trouble == 0 {
		t.Error("nobody looks after what the link did not take")
	}
	r.down = false
	if s.retry() {
		t.Error("looked after when all is told")
	}
	w := sent[*wire.Window](r)
	if len(w) != 1 || w[0].Bytes != 16<<20 || c.roomBytes != consumerBytes || len(sent[*wire.Resync](r)) > 0 {
		t.Errorf("granted %v; room %d", w, c.roomBytes)
	}
}

// TestDetachThatTheLinkDoesNotTake: a leader learns of the end of the last consumer, too, when the link has room again.
func TestDetachThatTheLinkDoesNotTake(t *testing.T) {
	r := newStreamRig(t)
	s := r.s
	s.leader = "leader"
	c := &Consumer{no: 1, attached: true, roomMessages: consumerMessages, roomBytes: consumerBytes}
	c.stream.Store(s)
	s.consumers[1] = c
	r.down = true
	c.detach()
	if !s.retry() || r.trouble == 0 {
		t.Error("nobody looks after what the link did not take")
	}
	r.down = false
	s.retry()
	if again := sent[*wire.Resync](r); len(again) != 1 || len(again[0].Consumers) != 0 {
		t.Errorf("the leader was told %v", again)
	}
	if s.retry() {
		t.Error("looked after when all is told")
	}
}
