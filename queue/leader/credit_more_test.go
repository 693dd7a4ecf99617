package leader

import (
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// expiring publishes a message with a time to live, and one with none.
func (w *world) expiring(n *modelNode) {
	short, none := pub("a while"), pub("at once")
	short.TTLMillis, none.TTLMillis = 20, 0
	w.send(n, short, none)
}

// purge empties the queue of what nobody holds.
func (w *world) purge(n *modelNode) { w.send(n, fsm.Purge{}) }

// get asks for one message. What is asked may be lost: the client's node would ask again.
func (w *world) get(n *modelNode) {
	w.receive(n, &wire.Get{Queue: 7, Origin: n.Origin, Req: 1, After: n.answered})
}

func (w *world) got(n *modelNode, m *wire.Got) {
	switch {
	case !m.Found:
	case m.Resync == n.resyncs:
		w.delivered(n, []wire.Item{m.Item})
	default:
		w.calm = false
		w.resync(n, 0)
	}
}

// redrive begins one that drops messages, or decides on the next ones.
func (w *world) redrive(*modelNode) {
	var c fsm.Command = fsm.StartRedrive{Spec: dlx.RedriveSpec{Discard: true}}
	w.l.replica.View(func(m *fsm.Machine) {
		job := m.Redriving()
		if !job.Searching() {
			return
		}
		take := fsm.TakeRedrive{Number: job.Number, After: job.Cursor, Through: job.Tail}
		for x, ok := m.Queue().NextLive(job.Cursor); ok && x.ID <= job.Tail && len(take.Items) < 2; x, ok = m.Queue().NextLive(x.ID) {
			take.Items = append(take.Items, fsm.RedriveItem{ID: x.ID, Attempt: x.Attempt})
			take.Through = x.ID
		}
		c = take
	})
	w.l.Propose(c, false, nil)
}

func unsettled(n *modelNode) (ids []queue.MessageID) {
	for id, h := range n.held {
		if h.settled == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
