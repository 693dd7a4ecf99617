package leader

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue/wire"
)

// TestNoRoomOnALink: a node whose link has no room gets nothing until it has, the consumers of others go on meanwhile, and nothing comes flagged.
func TestNoRoomOnALink(t *testing.T) {
	a, b := node(1), node(2)
	var room atomic.Bool
	r := newRigWith(t, plain(), func(cfg *Config) {
		cfg.Room = func(node string) bool { return node != a.ID || room.Load() }
	}, a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.attach(a, 1, 0)
	r.attach(b, 1, 2)
	r.publish(a, "1", "2", "3")
	if got := r.bodies(r.items(b, 2)); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the other node got %v", got)
	}
	r.l.Receive(a.ID, &wire.Get{Queue: 7, Origin: a.Origin, Req: 9})
	time.Sleep(3 * roomRetryMax)
	r.mu.Lock()
	for _, s := range r.out {
		switch s.m.(type) {
		case *wire.Deliver, *wire.Got:
			t.Errorf("%T to %s, which has no room", s.m, s.to)
		}
	}
	r.mu.Unlock()
	room.Store(true)
	if got := r.items(a, 1); bodyOf(t, got[0]) != "3" || got[0].Redelivered {
		t.Errorf("got %v", got)
	}
	if g := await[*wire.Got](r, a.ID, nil); g.Found {
		t.Errorf("the get found %+v, which the consumer has room for", g)
	}
}

// TestStepsAreBounded: a step hands a node no more than its link takes after it has been asked, whatever room consumers have.
func TestStepsAreBounded(t *testing.T) {
	const messages, size = 40, 256 << 10
	a := node(1)
	var room atomic.Bool
	var r *rig
	most := 0
	r = newRigWith(t, plain(), func(cfg *Config) {
		handed, send := 0, cfg.Send
		cfg.Send = func(to string, m wire.Message) { // on the leader's goroutine, as Room
			if d, ok := m.(*wire.Deliver); ok {
				for _, it := range d.Items {
					handed += len(it.Message)
				}
				most = max(most, handed)
			}
			send(to, m)
		}
		cfg.Room = func(string) bool {
			handed = 0
			return room.Load()
		}
	}, a)
	r.answerRoll(a)
	for no := range wire.ConsumerNo(messages) {
		r.attach(a, no+1, 0)
	}
	body := strings.Repeat("x", size)
	for range messages {
		r.publish(a, body)
	}
	room.Store(true)
	for _, it := range r.items(a, messages) {
		if it.Redelivered {
			t.Errorf("message %d is flagged", it.ID)
		}
	}
	r.l.Stop()
	if limit := stepBytesMax + 2*size; most == 0 || most > limit {
		t.Errorf("%d bytes at once, want %d at most", most, limit)
	}
}
