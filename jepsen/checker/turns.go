package checker

import "github.com/warrenmq/warren/jepsen/history"

// Turns finds what a single active consumer must not see, over all consumers of the queues. The
// first deliveries of messages, whoever gets them, are in the order of their publishing channel:
// a consumer that takes over begins with what the one before it left. And a consumer gets nothing
// that is new after another one has got later messages, unless a node was silent meanwhile, whose clients
// may see late what it had been given before.
func Turns(queues ...string) Checker {
	return Checker{Name: "one consumer at a time", Check: func(ops []history.Op) Result { return turns(ops, queues) }}
}

func turns(ops []history.Op, queues []string) (r Result) {
	type way struct {
		queue         string
		process, life int // of the publisher
	}
	type message struct{ queue, value string }
	asked := map[string]bool{}
	for _, q := range queues {
		asked[q] = true
	}
	silent := silences(ops)
	first := map[way]history.Op{} // the latest message of those that came for the first time
	fresh := map[way]history.Op{} // the same of those without the flag
	active := map[string]history.Op{}
	seen := map[message]bool{}
	takeovers, late := 0, 0
	for _, o := range ops {
		if !o.Delivery() || !asked[o.Queue] {
			continue
		}
		id, err := history.ParseMessageID(o.Value)
		if err != nil {
			continue // Lost reports it
		}
		w := way{o.Queue, id.Process, id.Life}
		if m := (message{o.Queue, o.Value}); !seen[m] {
			seen[m] = true
			if before, known := first[w]; known && later(before, id) {
				r.problem("%s came from %s for the first time after %s, which was behind it (%s; %s)", o.Value, o.Queue, before.Value, at(before), at(o))
			} else {
				first[w] = o
			}
			if a, known := active[o.Queue]; known && (a.Process != o.Process || a.Life != o.Life) {
				takeovers++
			}
			active[o.Queue] = o
		}
		if o.Redelivered {
			continue
		}
		if before, known := fresh[w]; !known || !later(before, id) {
			fresh[w] = o
		} else if before.Process != o.Process || before.Life != o.Life {
			late++
			if !during(silent, before.Time, o.Time) {
				r.problem("%s came from %s as a new one after another consumer had %s, and no node was silent (%s; %s)", o.Value, o.Queue, before.Value, at(before), at(o))
			}
		}
	}
	r.Summary = sprintf("%d messages, %d takeovers, %d seen late by one that had been the active one", len(seen), takeovers, late)
	r.figure("takeovers", float64(takeovers))
	return r
}

// later tells whether a delivered message was published behind id, on the same channel.
func later(o history.Op, id history.MessageID) bool {
	got, err := history.ParseMessageID(o.Value)
	return err == nil && got.Seq > id.Seq
}
