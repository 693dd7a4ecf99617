package checker

import (
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

// passedOver is how much later than its successor a message may come to another channel: deliveries
// wait for their turn in clients, and on busy machines.
const passedOver = 10 * time.Second

// Order finds messages of one publishing channel that came out of one of the queues to one
// consuming channel in another order than they were published, among those of the same priority
// (history.Priority); and messages that came to any channel so long after a later one had come to another
// that they must have been passed over, while no living node was silent. What is marked as redelivered, and what comes back from a dead-letter queue, has no such order.
func Order(queues ...string) Checker {
	return Checker{Name: "order", Check: func(ops []history.Op) Result { return order(ops, queues) }}
}

func order(ops []history.Op, queues []string) (r Result) {
	type way struct {
		queue                  string
		process, life          int
		publisher, publishLife int
		priority               string
	}
	messages, _ := publishes(ops)
	asked := map[string]bool{}
	for _, q := range queues {
		asked[q] = true
	}
	last, newest := map[way]history.Op{}, map[way]history.Op{}
	silent := silences(ops)
	checked := 0
	for _, o := range ops {
		if !o.Delivery() || o.Redelivered || o.Deaths > 0 || !asked[o.Queue] {
			continue
		}
		id, err := history.ParseMessageID(o.Value)
		if err != nil {
			continue // Lost reports it
		}
		w := way{o.Queue, o.Process, o.Life, id.Process, id.Life, priorityOf(messages, o.Value)}
		all := w
		all.process, all.life = 0, 0
		before, known := newest[all]
		switch b, err := history.ParseMessageID(before.Value); {
		case !known || err == nil && b.Seq < id.Seq:
			newest[all] = o
		case o.Time-before.Time > passedOver && !during(silent, before.Time, o.Time):
			r.problem("%s was passed over in %s: it came %.1f s after %s (%s; %s)", o.Value, o.Queue, (o.Time - before.Time).Seconds(),
				before.Value, at(before), at(o))
			continue
		}
		if before, known := last[w]; known {
			checked++
			if b, err := history.ParseMessageID(before.Value); err == nil && b.Seq > id.Seq {
				r.problem("%s came from %s after %s (%s; %s)", o.Value, o.Queue, before.Value, at(before), at(o))
				continue
			}
		}
		last[w] = o
	}
	r.Summary = sprintf("%d pairs of first deliveries on one channel", checked)
	return r
}
