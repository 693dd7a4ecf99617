package checker

import (
	"math"
	"strconv"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

const (
	// grid is what machine time, in whole milliseconds, may take off a delay.
	grid = 2 * time.Millisecond
	// clockBound is by how much the times of two leaders may differ beyond that, in runs with wrong clocks: by half the round trip of the fastest
	// recent answer (ADR 5).
	clockBound = 20 * time.Millisecond
	// fewClocksBound is that from when a clock is wrong while another fault goes on: a leader that has heard only one other node may have been behind, and
	// the next one is not.
	fewClocksBound = 700 * time.Millisecond
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

// tolerances tells how much too early a message may come at a time of the run.
func tolerances(ops []history.Op) func(at time.Duration) time.Duration {
	spans, bound, few := faults(ops), time.Duration(0), time.Duration(math.MaxInt64)
	for _, c := range spans {
		if c.name != "clock" {
			continue
		}
		bound = clockBound
		for _, f := range spans {
			if f.name != "clock" && f.begin <= c.end+aftermath && c.begin <= f.end+aftermath {
				few = min(few, max(c.begin, f.begin))
			}
		}
	}
	return func(at time.Duration) time.Duration {
		if at >= few {
			return grid + fewClocksBound
		}
		return grid + bound
	}
}

func early(ops []history.Op, retry map[string]time.Duration) (r Result) {
	messages, _ := publishes(ops)
	tolerance, silent := tolerances(ops), silences(ops)
	returned := map[visit]history.Op{} // the delivery after which it was returned
	last := map[visit]history.Op{}
	var due, again int
	var late, ahead time.Duration
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
			ahead = max(ahead, wait-(o.Time-m.publish.Time))
			if passed := o.Time - m.publish.Time; err != nil || passed < wait-tolerance(o.Time) {
				r.problem("%s was to come after %v and came from %s after %v (%s; %s)", o.Value, wait, o.Queue, passed, at(m.publish), at(o))
			} else {
				late = max(late, passed-wait)
			}
		}
		// A node that was silent may tell its client of an attempt that was given up meanwhile.
		if before, known := returned[v]; known && !during(silent, before.Time, o.Time) {
			again++
			ahead = max(ahead, retry[o.Queue]-(o.Time-before.Time))
			if passed := o.Time - before.Time; passed < retry[o.Queue]-tolerance(o.Time) {
				r.problem("%s came from %s again %v after it had come to be returned, not %v (%s; %s)", o.Value, o.Queue, passed, retry[o.Queue], at(before), at(o))
			}
		}
		delete(returned, v)
		last[v] = o
	}
	r.Summary = sprintf("%d with a time, the last one %.1f s late, the first one %d ms early; %d returned ones", due, late.Seconds(), ahead.Milliseconds(), again)
	r.figure("latest s", late.Seconds())
	return r
}
