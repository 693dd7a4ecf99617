package checker

import "github.com/warrenmq/warren/jepsen/history"

// Lost finds confirmed messages that are gone: neither acked by a consumer nor in any
// queue at the end. It also finds what nobody published, what was refused and came all
// the same, and messages whose content has changed.
func Lost() Checker { return Checker{Name: "nothing lost", Check: lost, Ends: true} }

func lost(ops []history.Op) (r Result) {
	messages, values := publishes(ops)
	acked, seen, drained := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, o := range ops {
		switch {
		case o.F == history.Ack:
			acked[o.Value] = true
		case o.Delivery():
			seen[o.Value] = true
			drained[o.Value] = drained[o.Value] || o.F == history.Drain
			if o.Error != "" {
				r.problem("%s from %s: %s (%s)", o.Value, o.Queue, o.Error, at(o))
			}
			if m := messages[o.Value]; m == nil {
				r.problem("%q came from %s and nobody published it (%s)", o.Value, o.Queue, at(o))
			} else if m.end == history.Fail {
				r.problem("%s was refused and came from %s (%s)", o.Value, o.Queue, at(o))
			}
		}
	}
	var confirmed, refused, unknown, came int
	for _, v := range values {
		switch m := messages[v]; m.end {
		case history.OK:
			confirmed++
			if !acked[v] && !drained[v] {
				r.problem("%s is lost: confirmed by %s for %s, delivered: %v, never acked, and in no queue at the end (%s)",
					v, m.publish.Node, m.publish.Queue, seen[v], at(m.publish))
			}
		case history.Fail:
			refused++
		default:
			unknown++
			if seen[v] {
				came++
			}
		}
	}
	r.Summary = sprintf("%d published: %d confirmed, %d refused, %d unknown of which %d came", len(values), confirmed, refused, unknown, came)
	r.figure("confirmed", float64(confirmed))
	r.figure("unknown", float64(unknown))
	return r
}
