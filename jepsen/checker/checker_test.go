package checker

import (
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

// op is an operation of a history written by hand.
func op(process int, t history.Type, f, queue, value string) history.Op {
	return history.Op{Process: process, Type: t, F: f, Queue: queue, Value: value}
}

// lines numbers operations and gives each a second.
func lines(ops ...history.Op) []history.Op {
	for i := range ops {
		ops[i].Index = i + 1
		if ops[i].Time == 0 {
			ops[i].Time = time.Duration(i+1) * time.Second
		}
	}
	return ops
}

func published(queue, value string, end history.Type) []history.Op {
	return []history.Op{
		op(0, history.Invoke, history.Publish, queue, value),
		op(0, end, history.Publish, queue, value),
	}
}

func flagged(o history.Op) history.Op { o.Redelivered = true; return o }

func join(parts ...[]history.Op) (ops []history.Op) {
	for _, p := range parts {
		ops = append(ops, p...)
	}
	return lines(ops...)
}

func one(o ...history.Op) []history.Op { return o }

var (
	deliver = func(value string) history.Op { return op(1, history.OK, history.Deliver, "q", value) }
	ack     = func(value string) history.Op { return op(1, history.OK, history.Ack, "q", value) }
	reject  = func(value string) history.Op { return op(1, history.OK, history.Reject, "q", value) }
	drain   = func(queue, value string) history.Op {
		return op(history.Final, history.OK, history.Drain, queue, value)
	}
)

// elsewhere is a delivery to another channel at that second.
func elsewhere(second int, value string) history.Op {
	o := op(2, history.OK, history.Deliver, "q", value)
	o.Time = time.Duration(second) * time.Second
	return o
}

// state is what a node says of its replica of q.
func state(node, applied, digest string) history.Op {
	return history.Op{Process: history.Final, Type: history.OK, F: history.State, Node: node, Queue: "q", Value: digest, Extra: map[string]string{"applied": applied}}
}

// TestCheckers: good histories pass, and each kind of bad one is found.
func TestCheckers(t *testing.T) {
	chain := Chain{From: "q", To: []string{"dead"}, Stay: []string{"q"}, Consumed: true, Cause: history.Reject}
	fan := Chain{From: "q", To: []string{"dead", "dead2"}}
	died := func(o history.Op, n int) history.Op { o.Deaths = n; return o }
	m1 := published("q", "0.1.1", history.OK)
	m2 := published("q", "0.1.2", history.OK)
	for _, tc := range []struct {
		name    string
		checker Checker
		ops     []history.Op
		want    string // in the first problem; "": valid
	}{
		{"acked and drained", Lost(), join(m1, m2, one(deliver("0.1.1"), ack("0.1.1"), drain("q", "0.1.2"))), ""},
		{"a confirmed message is lost", Lost(), join(m1, m2, one(deliver("0.1.1"), ack("0.1.1"))), "0.1.2 is lost"},
		{"delivered, not acked and gone", Lost(), join(m1, one(deliver("0.1.1"))), "0.1.1 is lost"},
		{"unknown and gone", Lost(), join(published("q", "0.1.1", history.Info)), ""},
		{"refused and gone", Lost(), join(published("q", "0.1.1", history.Fail)), ""},
		{"refused and delivered", Lost(), join(published("q", "0.1.1", history.Fail), one(deliver("0.1.1"))), "refused and came"},
		{"never published", Lost(), join(one(deliver("9.9.9"))), "nobody published"},
		{"a body has changed", Lost(), join(m1, one(func() history.Op { o := drain("q", "0.1.1"); o.Error = "bad body"; return o }())), "bad body"},

		{"replicas hold the same", States(), lines(state("node1", "7", "aa"), state("node2", "7", "aa")), ""},
		{"replicas hold other things", States(), lines(state("node1", "7", "aa"), state("node2", "7", "bb")), "node1 after entry 7 aa; node2 after entry 7 bb"},
		{"a replica is behind for ever", States(), lines(state("node1", "7", "aa"), state("node2", "8", "aa")), "the replicas of q differ"},

		{"flagged duplicate", Duplicates(), join(m1, one(deliver("0.1.1"), flagged(deliver("0.1.1")))), ""},
		{"unflagged duplicate", Duplicates(), join(m1, one(deliver("0.1.1"), deliver("0.1.1"))), "twice without the flag"},
		{"unflagged in the drain", Duplicates(), join(m1, one(deliver("0.1.1"), drain("q", "0.1.1"))), "twice without the flag"},
		{"back after a death", Duplicates(), join(m1, one(deliver("0.1.1"), died(deliver("0.1.1"), 2))), ""},

		{"in order", Order("q"), join(m1, m2, one(deliver("0.1.1"), deliver("0.1.2"))), ""},
		{"out of order", Order("q"), join(m1, m2, one(deliver("0.1.2"), deliver("0.1.1"))), "0.1.1 came from q after 0.1.2"},
		{"another channel is slower", Order("q"), join(m1, m2, one(deliver("0.1.2"), elsewhere(9, "0.1.1"))), ""},
		{"passed over", Order("q"), join(m1, m2, one(deliver("0.1.2"), elsewhere(40, "0.1.1"))), "0.1.1 was passed over in q: it came 35.0 s after 0.1.2"},
		{"behind a frozen node", Order("q"), join(m1, m2, one(deliver("0.1.2"), op(history.Nemesis, history.Invoke, history.Fault, "", "pause"), elsewhere(40, "0.1.1"))), ""},
		{"requeued behind", Order("q"), join(m1, m2, one(deliver("0.1.2"), flagged(deliver("0.1.1")))), ""},
		{"another publisher", Order("q"), join(m1, one(deliver("3.1.2"), deliver("0.1.1"))), ""},
		{"another queue", Order("other"), join(m1, m2, one(deliver("0.1.2"), deliver("0.1.1"))), ""},

		{"dead-lettered once", Places(chain), join(m1, one(reject("0.1.1"), drain("dead", "0.1.1"))), ""},
		{"dead-lettered twice", Places(chain), join(m1, one(reject("0.1.1"), drain("dead", "0.1.1"), drain("dead", "0.1.1"))), "dead 2 times"},
		{"the drain was interrupted", Places(chain), join(m1, one(reject("0.1.1"), drain("dead", "0.1.1"), flagged(drain("dead", "0.1.1")))), ""},
		{"still in the source", Places(chain), join(m1, one(reject("0.1.1"), drain("dead", "0.1.1"), drain("q", "0.1.1"))), "dead 1 times, q 1 times"},
		{"in one target of two", Places(fan), join(m1, one(drain("dead", "0.1.1"))), "dead 1 times"},
		{"in both targets", Places(fan), join(m1, one(drain("dead", "0.1.1"), drain("dead2", "0.1.1"))), ""},
		{"unknown in one of two", Places(fan), join(published("q", "0.1.1", history.Info), one(drain("dead2", "0.1.1"))), "dead2 1 times"},
		{"nowhere", Places(fan), join(m1), "nowhere"},
		{"acked is nowhere", Places(chain), join(m1, one(ack("0.1.1"))), ""},
		{"in a queue of another chain", Places(chain), join(m1, one(drain("strange", "0.1.1"))), "strange 1 times"},
		{"dead without a cause", Places(chain), join(m1, one(drain("dead", "0.1.1"))), "nobody asked"},

		{"counts agree", Counts(), join(one(op(history.Final, history.OK, history.Count, "q", "1"), drain("q", "0.1.1"))), ""},
		{"counts disagree", Counts(), join(one(op(history.Final, history.OK, history.Count, "q", "2"), drain("q", "0.1.1"))), "q has 2 messages"},
		{"counted and empty", Counts(), join(one(op(history.Final, history.OK, history.Count, "q", "1"))), "0 came out"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			expect(t, tc.checker, tc.ops, tc.want)
		})
	}
}

// expect checks a history and looks for want in the first problem; "": there is none.
func expect(t *testing.T, c Checker, ops []history.Op, want string) {
	t.Helper()
	r := Run([]Checker{c}, ops, true)[0]
	switch {
	case want == "" && !r.Valid:
		t.Errorf("found %q", r.Problems)
	case want != "" && r.Valid:
		t.Errorf("found nothing, want %q", want)
	case want != "" && !strings.Contains(r.Problems[0], want):
		t.Errorf("found %q, want %q", r.Problems[0], want)
	}
}

// TestUnended: what is judged by the end is not judged without one.
func TestUnended(t *testing.T) {
	ops := lines(published("q", "0.1.1", history.OK)...)
	r := Run([]Checker{Lost(), Duplicates()}, ops, false)
	if !r[0].Skipped || !r[0].Valid || r[1].Skipped {
		t.Errorf("results %+v", r)
	}
}
