package leader

import (
	"fmt"
	"strings"

	"github.com/warrenmq/warren/fsm"
)

// inspect asks the leader's goroutine to describe itself.
type inspect struct{ reply chan string }

// describedMax bounds the holds that Describe lists.
const describedMax = 8

// Describe tells what the leader waits for, for people who look into a queue that
// does not move. It is "" if the leader ends meanwhile.
func (l *Leader) Describe() string {
	i := inspect{make(chan string, 1)}
	l.post(i)
	select {
	case s := <-i.reply:
		return s
	case <-l.done:
		return ""
	}
}

func (l *Leader) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "session %#x phase %d, ready %d, held %d (%d named), condemned %d, in flight %d, pending commands %d, gets %d, queries %d, mark %d tail %d",
		l.cfg.Session, l.phase, l.seen.n-int64(len(l.held)+len(l.limits.condemned)), len(l.held), l.named, len(l.limits.condemned),
		len(l.inFlight), len(l.pending.commands), len(l.gets), len(l.queries), l.seen.mark, l.seen.tail)
	n := 0
	for id, h := range l.held {
		if n++; n > describedMax {
			break
		}
		fmt.Fprintf(&b, "; message %d attempt %d at node %d consumer %d named %v", id, h.attempt, h.node, h.no, h.named)
	}
	for node, p := range l.peers {
		fmt.Fprintf(&b, "; node %d (%s) next %d pending %d resync %d", node, p.id, p.next, len(p.pending), p.resync)
	}
	for key, c := range l.consumers.byKey {
		fmt.Fprintf(&b, "; consumer %d.%d turn %d.%d active %v unacked %d of %d window %d/%d able %v", key.node, key.no, c.Turn.Session, c.Turn.No, c == l.consumers.active, c.unacked, c.Prefetch, c.window.messages, c.window.bytes, c.able)
	}
	l.replica.View(func(m *fsm.Machine) {
		for _, t := range m.Outbox().Targets() {
			fmt.Fprintf(&b, "; target %d next %d pending %d gone %v", t.Queue, t.Next, t.Pending, t.Gone)
		}
	})
	return b.String()
}
