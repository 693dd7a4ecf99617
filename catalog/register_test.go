package catalog

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// start registers a process of a node that has met others, each named by its node and the
// number of its process.
func start(id NodeID, process uint64, met ...Process) *RegisterNode {
	return &RegisterNode{ID: id, Process: process, Met: met}
}

// transient sets up three nodes with processes 11, 12, 13 and exchanges that are not durable.
func transient(t *testing.T) *script {
	s := newScript(t)
	s.ok(start(n1, 11))
	s.ok(start(n2, 12, Process{n1, 11}))
	s.ok(start(n3, 13, Process{n1, 11}, Process{n2, 12}))
	s.ok(declare("q"))
	for _, name := range []string{"soft", "soft2"} {
		c := declareX(name, exchange.Fanout)
		c.Exchange.Durable = false
		s.ok(c)
	}
	d := declareX("softdelay", exchange.Delayed, amqp.Field{Name: "x-delayed-type", Value: "fanout"})
	d.Exchange.Durable, d.Members, d.Preferred = false, []NodeID{n1, n2}, n1
	s.ok(d)
	s.ok(bind("soft", "q", ""))
	s.ok(chain("soft", "soft2"))
	s.ok(chain("amq.topic", "soft"))
	s.ok(autoDelete("auto"))
	s.ok(chain("auto", "soft2"))
	return s
}

// left tells whether the exchanges are there, all or none of them.
func (s *script) left() bool {
	s.t.Helper()
	v := s.view()
	check(s.t, v)
	n := 0
	for _, name := range []string{"soft", "soft2", "softdelay", "auto"} {
		if v.Exchange("/", name) != nil {
			n++
		}
	}
	delays := slices.ContainsFunc(slices.Collect(v.AllQueues()), func(q *Queue) bool { return q.DelayOf != "" && q.State == Running })
	bound := v.Exchange("/", "amq.topic").bindings
	if n != 0 && n != 4 || delays != (n == 4) || bound != n/4 {
		s.t.Fatalf("%d exchanges, their queue %v, %d bindings to them", n, delays, bound)
	}
	return n == 4
}

func TestTransientExchangesOutlastARollingRestart(t *testing.T) {
	s := transient(t)
	for round := range uint64(3) {
		p := 11 + 10*round
		s.ok(start(n1, p+10, Process{n2, p + 1}, Process{n3, p + 2}))
		s.ok(start(n2, p+11, Process{n3, p + 2})) // one is enough
		s.ok(start(n3, p+12, Process{n1, p + 10}, Process{n2, p + 11}))
		if !s.left() {
			t.Fatalf("gone in round %d though some node was up all the time", round)
		}
	}
}

func TestTransientExchangesEndWithTheCluster(t *testing.T) {
	s := transient(t)
	// All new; the processes met are those that have not registered yet.
	s.ok(start(n2, 22, Process{n1, 21}))
	s.ok(start(n1, 21, Process{n2, 22}))
	if !s.left() {
		t.Fatal("gone though the third node may still run")
	}
	s.ok(start(n3, 23, Process{n1, 21}, Process{n2, 22}))
	if s.left() {
		t.Fatal("still there after all nodes had stopped")
	}
	if s.view().Exchange("/", "amq.topic") == nil || s.view().Queue("/", "q") == nil {
		t.Fatal("durable things went")
	}
}

func TestTransientExchangesWithoutTheThirdNode(t *testing.T) {
	for name, last := range map[string]Command{
		"it is removed":          &RemoveNode{ID: n3},
		"it is replaced":         start("n3/new", 33),
		"it comes back":          start(n3, 33, Process{n1, 21}),
		"it comes back, unaware": start(n3, 33),
	} {
		t.Run(name, func(t *testing.T) {
			s := transient(t)
			s.ok(start(n1, 21))
			s.ok(start(n2, 22, Process{n1, 21}))
			// Declared again, one of them stays.
			c := declareX("soft", exchange.Fanout)
			c.Exchange.Durable = false
			if r := s.ok(c); r.Changed {
				t.Fatal("made anew")
			}
			s.ok(last)
			v := s.view()
			check(t, v)
			if v.Exchange("/", "soft") == nil || v.Exchange("/", "soft2") != nil || v.Exchange("/", "softdelay") != nil {
				t.Fatal("wrong exchanges are left")
			}
		})
	}
}

func TestTransientExchangesOfASingleNode(t *testing.T) {
	s := newScript(t)
	s.ok(start(n1, 11))
	c := declareX("soft", exchange.Fanout)
	c.Exchange.Durable = false
	s.ok(c)
	// Nobody vouches for itself, for an unknown node, or without a number.
	s.ok(start(n1, 12, Process{n1, 11}, Process{n2, 5}, Process{n3, 0}))
	if s.view().Exchange("/", "soft") != nil {
		t.Fatal("still there")
	}
}
