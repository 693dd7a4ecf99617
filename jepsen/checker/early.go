package checker

import (
	"strconv"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

const (
	// grid is what machine time, in whole milliseconds, may take off a delay.
	grid = 2 * time.Millisecond
	// clockBound is how far a leader's time may be ahead of most of the clocks (ADR 5: 500 ms and
	// half a round trip). It matters in runs with wrong clocks only.
	clockBound = 700 * time.Millisecond
)

// Early finds messages that came before their time: those published with a history.Due, when they
// come from another queue than they were published to; and of the queues in retry those that come
// again on the connection on which they were returned, before that time is over.
func Early(retry map[string]time.Duration) Checker {
	return Checker{Name: "not before its time", Check: func(ops []history.Op) Result { return early(ops, retry) }}
}

// visit is a delivery from a queue on a connection.
type visit struct {
	queue, value  string
	process, life int
}

func early(ops []history.Op, retry map[string]time.Duration) (r Result) {
	messages, _ := publishes(ops)
	tolerance, silent := grid, silences(ops)
	for _, f := range faults(ops) {
		if f.name == "clock" {
			tolerance = clockBound
		}
	}
	returned := map[visit]history.Op{} // the delivery after which it was returned
	last := map[visit]history.Op{}
	var due, again int
	var late time.Duration
	for _, o := range ops {
		v := visit{o.Queue, o.Value, o.Process, o.Life}
		if o.F == history.Requeue && retry[o.Queue] > 0 {
			returned[v] = last[v]
		}
		if !o.Delivery() {
			continue
		}
		m := messages[o.Value]
		if m != nil && m.publish.Queue != o.Queue && m.publish.Extra[history.Due] != "" {
			due++
			ms, err := strconv.Atoi(m.publish.Extra[history.Due])
			wait := time.Duration(ms) * time.Millisecond
			if passed := o.Time - m.publish.Time; err != nil || passed < wait-tolerance {
				r.problem("%s was to come after %v and came from %s after %v (%s; %s)", o.Value, wait, o.Queue, passed, at(m.publish), at(o))
			} else {
				late = max(late, passed-wait)
			}
		}
		// A node that was silent may tell its client of an attempt that was given up meanwhile.
		if before, known := returned[v]; known && !during(silent, before.Time, o.Time) {
			again++
			if passed := o.Time - before.Time; passed < retry[o.Queue]-tolerance {
				r.problem("%s came from %s again %v after it had come to be returned, not %v (%s; %s)", o.Value, o.Queue, passed, retry[o.Queue], at(before), at(o))
			}
		}
		delete(returned, v)
		last[v] = o
	}
	r.Summary = sprintf("%d with a time, the last one %.1f s late; %d returned ones", due, late.Seconds(), again)
	r.figure("latest s", late.Seconds())
	return r
}
