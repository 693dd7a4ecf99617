package checker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/warrenmq/warren/jepsen/history"
)

// Chain says where messages that are published to From may be at the end.
type Chain struct {
	From string
	// To are the targets of From's dead letters: one that died is in each of them once.
	To []string
	// Stay are queues of which one may still have the message, once, instead.
	Stay []string
	// Consumed says that consumers ack messages of From: such a message may be nowhere.
	Consumed bool
	// Cause, when not empty, is what some client must have done to the message for it to be
	// in To, such as history.Reject.
	Cause string
}

// Places finds messages that are not in exactly one place: after all faults were healed and
// everything has moved, by what the drains of all queues brought out.
func Places(chains ...Chain) Checker {
	return Checker{Name: "exactly one place", Ends: true, Check: func(ops []history.Op) Result { return places(ops, chains) }}
}

// copies counts, for each message, how often it was drained from each queue.
func copies(ops []history.Op) map[string]map[string]int {
	type key struct{ value, queue string }
	flagged := map[key]bool{}
	n := map[string]map[string]int{}
	for _, o := range ops {
		if o.F != history.Drain || !o.Delivery() {
			continue
		}
		if n[o.Value] == nil {
			n[o.Value] = map[string]int{}
		}
		// The drain may have lost its connection: then the flag says that it is the same copy. Before
		// the drain a consumer may have had it, so that its only drain is flagged, too.
		k := key{o.Value, o.Queue}
		if o.Redelivered && (flagged[k] || n[o.Value][o.Queue] > 0) {
			continue
		}
		flagged[k] = flagged[k] || o.Redelivered
		n[o.Value][o.Queue]++
	}
	return n
}

func places(ops []history.Op, chains []Chain) (r Result) {
	messages, values := publishes(ops)
	in := copies(ops)
	done := map[[2]string]bool{} // what clients did: f, value
	for _, o := range ops {
		if o.F == history.Ack || o.F == history.Reject || o.F == history.Requeue {
			done[[2]string{o.F, o.Value}] = true
		}
	}
	var moved, stayed, gone, doubled, missing int
	for _, v := range values {
		m := messages[v]
		i := slices.IndexFunc(chains, func(c Chain) bool { return c.From == m.publish.Queue })
		if i < 0 || m.end == history.Fail {
			continue
		}
		c := chains[i]
		toAll, stays, total, most := len(c.To) > 0, 0, 0, 0
		for _, to := range c.To {
			toAll = toAll && in[v][to] == 1
			most = max(most, in[v][to])
		}
		for _, q := range c.Stay {
			stays += in[v][q]
		}
		for _, n := range in[v] {
			total += n
		}
		switch {
		case toAll && total == len(c.To):
			moved++
			if c.Cause != "" && !done[[2]string{c.Cause, v}] {
				r.problem("%s was dead-lettered from %s and nobody asked for it: no %s (%s)", v, c.From, c.Cause, at(m.publish))
			}
		case stays == 1 && total == 1:
			stayed++
		case total == 0 && (m.end != history.OK || c.Consumed && done[[2]string{history.Ack, v}]):
			gone++
		default:
			if most+stays > 1 {
				doubled++
			} else {
				missing++
			}
			r.problem("%s of %s is %s (%s)", v, c.From, where(in[v]), at(m.publish))
		}
	}
	r.Summary = sprintf("%d moved, %d stayed, %d consumed or never arrived", moved, stayed, gone)
	r.figure("moved", float64(moved))
	r.figure("doubled", float64(doubled))
	r.figure("missing", float64(missing))
	return r
}

// where lists the queues that have a message.
func where(in map[string]int) string {
	var list []string
	for queue, n := range in {
		list = append(list, fmt.Sprintf("%s %d times", queue, n))
	}
	if list == nil {
		return "nowhere"
	}
	slices.Sort(list)
	return "in " + strings.Join(list, ", ")
}
