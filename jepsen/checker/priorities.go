package checker

import (
	"strconv"

	"github.com/warrenmq/warren/jepsen/history"
)

// Priorities finds messages that were drained from one of the queues, to which nothing comes any more,
// after one of a lower priority on the same connection. While others publish and consume, a
// history does not tell what was there to be chosen from.
func Priorities(queues ...string) Checker {
	return Checker{Name: "priorities", Ends: true, Check: func(ops []history.Op) Result { return priorities(ops, queues) }}
}

// priorityOf returns the priority under which a message was published, "" for none.
func priorityOf(messages map[string]*message, value string) string {
	if m := messages[value]; m != nil {
		return m.publish.Extra[history.Priority]
	}
	return ""
}

func priorities(ops []history.Op, queues []string) (r Result) {
	type way struct {
		queue         string
		process, life int
	}
	asked := map[string]bool{}
	for _, q := range queues {
		asked[q] = true
	}
	messages, _ := publishes(ops)
	last := map[way]history.Op{}
	drained := 0
	for _, o := range ops {
		if o.F != history.Drain || !o.Delivery() || !asked[o.Queue] {
			continue
		}
		drained++
		w := way{o.Queue, o.Process, o.Life}
		before, known := last[w]
		last[w] = o
		if !known {
			continue
		}
		high, err := strconv.Atoi(priorityOf(messages, o.Value))
		low, err2 := strconv.Atoi(priorityOf(messages, before.Value))
		if err == nil && err2 == nil && high > low {
			r.problem("%s of priority %d was drained from %s after %s of priority %d (%s; %s)", o.Value, high, o.Queue, before.Value, low, at(before), at(o))
		}
	}
	r.Summary = sprintf("%d messages drained", drained)
	return r
}
