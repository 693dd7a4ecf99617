package deep

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/transport"
)

// pace is how a round's clients propose.
type pace struct {
	pause   time.Duration // most between two bursts
	padding int           // less than so many bytes in an entry
}

// paces are drawn from for each round. Most of what a simulation costs is the number of its entries, so only some rounds are
// busy; the others have longer entries, for as many segments and snapshots, and all have the same faults.
var paces = []pace{{60 * time.Millisecond, 1200}, {240 * time.Millisecond, 4800}, {240 * time.Millisecond, 4800}, {960 * time.Millisecond, 9600}}

// drowsy are those of a run in which groups sleep.
var drowsy = []pace{{240 * time.Millisecond, 200}, {10 * time.Second, 100}, {30 * time.Second, 100}, {60 * time.Second, 100}}

// sleepAfter is how long a group is idle in such a run until it sleeps.
const sleepAfter = time.Second

// pace draws one.
func (w *world) pace() pace {
	if w.cfg.Sleepy {
		return drowsy[w.paces.IntN(len(drowsy))]
	}
	if w.cfg.Calm {
		return pace{4 * time.Second, 1200}
	}
	return paces[w.paces.IntN(len(paces))]
}

// client proposes wherever somebody believes to lead, at a pace until stop is closed.
func (w *world) client(number int, r *rand.Rand, p pace, stop <-chan struct{}) {
	for sent := 0; ; {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(1 + r.Int64N(int64(p.pause)))):
		}
		all := w.all()
		id := all[r.IntN(len(all))]
		for _, n := range w.members(id) {
			l := w.nodes[n].running()
			if l == nil || !w.usable(id) {
				continue
			}
			if g, ok := l.host.Group(id); ok && g.IsLeader() {
				for range 1 + r.IntN(4) {
					sent++
					w.propose(l, g, id, fmt.Sprintf("c%d-%d", number, sent), r.IntN(p.padding))
				}
			}
		}
	}
}

func (w *world) propose(l *life, g *group.Group, id transport.GroupID, text string, padding int) {
	w.report.proposed.Add(1)
	if w.cfg.Lie == LieConfirm {
		w.oracle.confirmed(id, text)
	}
	g.Propose([]byte(text+"|"+strings.Repeat(".", padding)), func(at any, err error) {
		w.oracle.answered(l, id, text, at, err)
	})
}

// mark commits one entry more and tells whether that was confirmed within the limit.
func (w *world) mark(id transport.GroupID, limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, n := range w.members(id) {
			l := w.nodes[n].running()
			if l == nil {
				continue
			}
			g, ok := l.host.Group(id)
			if !ok || !g.IsLeader() {
				continue
			}
			done := make(chan error, 1)
			w.marks++
			text := fmt.Sprintf("mark-%d", w.marks)
			g.Propose([]byte(text+"|"), func(at any, err error) {
				w.oracle.answered(l, id, text, at, err)
				done <- err
			})
			select {
			case err := <-done:
				if err == nil {
					return true
				}
			case <-time.After(time.Until(end)):
			}
		}
	}
	return false
}
