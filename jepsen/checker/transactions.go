package checker

import (
	"strings"

	"github.com/warrenmq/warren/jepsen/history"
)

// Transactions finds transactions (history.Commit) that were done in part, by what the queues hold
// at the end, or twice with the same message. What they publish must not be consumed.
func Transactions() Checker {
	return Checker{Name: "all or nothing", Ends: true, Check: transactions}
}

// transaction is one in a history.
type transaction struct {
	begin      history.Op // its invoke
	end        history.Type
	took, made []string
	there      int // how many of made are in a queue at the end
}

// done tells whether it took place, as far as the queues show.
func (t *transaction) done() bool { return t.there == len(t.made) && len(t.made) > 0 }

func transactions(ops []history.Op) (r Result) {
	in := copies(ops)
	byIndex := map[int]*transaction{}
	var list []*transaction
	for _, o := range ops {
		switch {
		case o.F != history.Commit:
		case o.Type == history.Invoke:
			t := &transaction{begin: o, end: history.Info, took: strings.Fields(o.Extra[history.Took]), made: strings.Fields(o.Extra[history.Made])}
			for _, v := range t.made {
				if len(in[v]) > 0 {
					t.there++
				}
			}
			byIndex[o.Index] = t
			list = append(list, t)
		case byIndex[o.Of] != nil:
			byIndex[o.Of].end = o.Type
		}
	}
	var confirmed, undone, unknown, came int
	for _, t := range list {
		switch {
		case t.begin.Value == history.Rollback || t.end == history.Fail:
			undone++
			if t.there > 0 {
				r.problem("a transaction that was not committed has %d of its %d messages in a queue (%s)", t.there, len(t.made), at(t.begin))
			}
		case t.there > 0 && !t.done():
			r.problem("a transaction is done in part: %d of its %d messages are in a queue (%s)", t.there, len(t.made), at(t.begin))
		case t.end == history.OK:
			confirmed++
			if !t.done() {
				r.problem("a transaction was confirmed and none of its %d messages is in a queue (%s)", len(t.made), at(t.begin))
			}
		default:
			unknown++
			if t.done() {
				came++
			}
		}
	}
	takers(&r, ops, in, list)
	r.Summary = sprintf("%d confirmed, %d refused or rolled back, %d unknown of which %d took place", confirmed, undone, unknown, came) + r.Summary
	r.figure("transactions", float64(confirmed))
	return r
}

// takers looks at the messages that transactions took: gone if and only if one took place that took
// it, and taken a second time only by a client that got it flagged.
func takers(r *Result, ops []history.Op, in map[string]map[string]int, list []*transaction) {
	type holder struct {
		value         string
		process, life int
	}
	unflagged, delivered := map[holder]int{}, map[string]history.Op{}
	for _, o := range ops {
		if o.F == history.Deliver {
			delivered[o.Value] = o
			if !o.Redelivered {
				unflagged[holder{o.Value, o.Process, o.Life}]++
			}
		}
	}
	taken := map[string][]*transaction{}
	for _, t := range list {
		if !t.done() {
			continue
		}
		for _, v := range t.took {
			taken[v] = append(taken[v], t)
			if len(in[v]) > 0 {
				r.problem("%s was taken by a transaction that took place and is %s (%s)", v, where(in[v]), at(t.begin))
			}
		}
	}
	twice := 0
	messages, order := publishes(ops)
	for _, v := range order {
		first := 0
		for _, t := range taken[v] {
			// What a client loses with its node cut off may come to it again, flagged, and it may ack both.
			h := holder{v, t.begin.Process, t.begin.Life}
			if unflagged[h] > 0 {
				unflagged[h]--
				first++
			}
		}
		if len(taken[v]) > 1 {
			twice++
		}
		_, came := delivered[v]
		switch {
		case first > 1:
			r.problem("%s was taken %d times, %d of them without the flag (%s; %s)", v, len(taken[v]), first, at(taken[v][0].begin), at(taken[v][1].begin))
		case came && messages[v].end == history.OK && len(taken[v]) == 0 && len(in[v]) == 0:
			r.problem("%s is gone and no transaction took it (%s)", v, at(delivered[v]))
		}
	}
	r.Summary = sprintf("; %d messages were taken twice, the second time flagged", twice)
	r.figure("taken twice", float64(twice))
}
