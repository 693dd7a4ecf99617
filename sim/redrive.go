package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// morgue is the queue that redrives take from.
const morgue = "morgue"

// call is what one node asks another, over a link that is as good as that of messages.
func (n *node) call(_ context.Context, to string, method uint8, req []byte) ([]byte, error) {
	for _, other := range n.w.nodes {
		if other.id != to || !n.alive(to) || method != broker.MethodInquire {
			continue
		}
		other.mu.Lock()
		b, up, life := other.b, other.up, other.life
		other.mu.Unlock()
		if up {
			ctx, cancel := context.WithTimeout(life, time.Second)
			defer cancel()
			return b.AnswerInquiry(ctx, req)
		}
	}
	return nil, errors.New("not reached")
}

// undertaker redrives what is in the morgue, and looks into queues, until the load ends.
func (w *World) undertaker() {
	for w.loading() {
		if !w.sleep(w.between(5*time.Millisecond, 150*time.Millisecond)) {
			return
		}
		n := w.nodes[w.rand(len(w.nodes))]
		b := n.broker()
		if b == nil {
			continue
		}
		n.mu.Lock()
		life, work := n.life, n.work
		work.Add(1)
		n.mu.Unlock()
		w.undertake(life, b)
		work.Done()
	}
}

func (w *World) undertake(ctx context.Context, b *broker.Broker) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	r := broker.Redrive{Rate: uint32(w.rand(2) * 200)}
	switch w.rand(8) {
	case 0:
		_, _ = b.StopRedrive(ctx, w.admin, "/", morgue)
		return
	case 1, 2:
		q := w.state.specs[w.rand(len(w.state.specs))]
		_, _ = b.Peek(ctx, w.admin, "/", q.name, broker.Peek{
			State: []string{"ready", "delayed", "unacked", "outbox", "parked"}[w.rand(5)], Count: 1 + w.rand(20), Offset: w.rand(3),
		})
		return
	case 3:
		r.To, r.Queue, r.Filter.Reasons = "queue", "d", []string{"rejected"}
	case 4:
		// A queue that is full most of the time, where there is one.
		r.To, r.Queue, r.Filter.Reasons = "queue", []string{"nowhere", "full"}[w.rand(2)], []string{"rejected"}
	case 5:
		r = broker.Redrive{Discard: true, Filter: broker.Filter{IDs: []uint64{uint64(w.rand(50))}}}
	case 6:
		r.To = "exchange"
	case 7:
		r.To = "first"
	}
	// It may be refused, or nobody may answer: what it did is seen in the log.
	_, _ = b.StartRedrive(ctx, w.admin, "/", morgue, r)
}

// redriven notes a new outbox item of a redrive.
func (o *oracle) redriven(g *group, q *oracleQueue, it dlx.Item) {
	if q.m.Name() != morgue {
		o.problem(q, "a redrive that nobody asked for: %+v", it)
	}
	for _, leg := range it.Legs {
		o.legs[legKey{q.id, leg.Target, leg.Seq}] = bodyAt(g, it.Ref)
	}
}

// renewed notes what of a redrive is under way to a target: it may be sent again under another sequence.
func (o *oracle) renewed(g *group, q *oracleQueue, target uint64) {
	for _, p := range q.m.Outbox().Pending(target, 0, math.MaxInt) {
		if p.Reason == dlx.Redrive {
			o.legs[legKey{q.id, target, p.Seq}] = bodyAt(g, p.Ref)
		}
	}
}

// explainRedrive tells whether a redrive took the message away: it was on its way and
// has arrived, or is thrown away.
func (o *oracle) explainRedrive(c fsm.Command, id queue.MessageID, leaving map[queue.MessageID]bool) bool {
	switch c := c.(type) {
	case fsm.TransferDone, fsm.TargetGone, fsm.Route, fsm.Plan:
		return leaving[id] // of Route and Plan: it might have stayed, and does not
	case fsm.TakeRedrive:
		for _, it := range c.Items {
			if it.ID == id {
				return true
			}
		}
	}
	return false
}

// notRedriven names the redrives that go on. One with a rate spends its time also on messages that it finds
// with consumers, and may end later than the queue is empty.
func (w *World) notRedriven() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []string
	for _, g := range w.sortedGroups() {
		q := w.oracle.queues[g.id]
		if r := q.m.Redriving(); r.Number > 0 && (r.EndedMillis == 0 || q.m.LeavingLen() > 0) {
			left = append(left, fmt.Sprintf("redrive %d of queue %d (%s): %+v, %d leaving", r.Number, q.id, q.m.Name(), r, q.m.LeavingLen()))
		}
	}
	return strings.Join(left, "; ")
}

// checkRemoved looks at queues whose messages outlive them.
func (w *World) checkRemoved() {
	for _, q := range w.oracle.queues {
		if n := q.m.Counters().Closed; n > 0 && q.m.Settings().DeadLetterOnRemoval {
			w.problem("queue %d (%s) was removed with %d messages", q.id, q.m.Name(), n)
		}
		if n := q.m.UndecidedLen(); n > 0 {
			w.problem("queue %d (%s): %d expired messages wait to be decided on", q.id, q.m.Name(), n)
		}
	}
}
