package checker

import (
	"fmt"

	"github.com/warrenmq/warren/jepsen/history"
)

var sprintf = fmt.Sprintf

// Duplicates finds messages that came out of the same queue more than once without the
// redelivered flag. A message that has died and come back to the queue since begins anew.
func Duplicates() Checker {
	return Checker{Name: "no duplicate without redelivered", Check: duplicates}
}

func duplicates(ops []history.Op) (r Result) {
	type key struct {
		queue, value string
		deaths       int
	}
	unflagged := map[key]history.Op{}
	deliveries, flagged := 0, 0
	for _, o := range ops {
		if !o.Delivery() {
			continue
		}
		deliveries++
		if o.Redelivered {
			flagged++
			continue
		}
		k := key{o.Queue, o.Value, o.Deaths}
		if first, twice := unflagged[k]; twice {
			r.problem("%s came from %s twice without the flag, with %d deaths: %s; %s", o.Value, o.Queue, o.Deaths, at(first), at(o))
			continue
		}
		unflagged[k] = o
	}
	r.Summary = sprintf("%d deliveries, %d of them redelivered", deliveries, flagged)
	r.figure("deliveries", float64(deliveries))
	r.figure("redelivered", float64(flagged))
	return r
}
