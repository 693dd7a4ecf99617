package catalog

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

func delayed(name, inner string) *DeclareExchange {
	c := declareX(name, exchange.Delayed, amqp.Field{Name: "x-delayed-type", Value: inner})
	c.Members, c.Preferred = []NodeID{n1, n2}, n1
	return c
}

func TestDelayedExchange(t *testing.T) {
	s := newScript(t)
	s.ok(declare("q"))
	s.ok(declare("dx")) // a queue of the exchange's name is another thing
	before := s.view()
	s.ok(delayed("dx", "topic"))
	s.ok(bind("dx", "q", "a.#"))
	v := s.view()
	id := v.Exchange("/", "dx").DelayQueue
	q := v.QueueByID(id)
	if q == nil || q.DelayOf != "dx" || q.Preferred != n1 || len(q.Members) != 2 || !slices.Contains(slices.Collect(v.QueuesChangedSince(before)), id) {
		t.Fatalf("queue %+v", q)
	}
	for named := range v.Queues("/") {
		if named == q {
			t.Error("the queue has a name")
		}
	}
	route := func(name, key string, delay any) (ids []uint64) {
		found, err := s.view().Route("/", name, []string{key}, amqp.Table{{Name: "x-delay", Value: delay}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range found {
			ids = append(ids, q.ID)
		}
		return ids
	}
	named := v.Queue("/", "q").ID
	for _, c := range []struct {
		key   string
		delay any
		want  []uint64
	}{
		{"a.b", int32(10), []uint64{id}},
		{"nowhere", int32(10), []uint64{id}},
		{"a.b", int32(-10), []uint64{named}},
		{"a.b", "no", []uint64{named}},
		{"nowhere", int32(0), nil},
	} {
		if got := route("dx", c.key, c.delay); !slices.Equal(got, c.want) {
			t.Errorf("%s after %v goes to %v, want %v", c.key, c.delay, got, c.want)
		}
	}
	s.ok(chain("amq.fanout", "dx"))
	s.ok(bind("amq.fanout", "q", ""))
	if got := route("amq.fanout", "a", int32(10)); !slices.Equal(slices.Sorted(slices.Values(got)), []uint64{named, id}) {
		t.Errorf("through a fanout to %v", got)
	}

	// Nobody deletes the queue but the exchange.
	s.ok(&DeleteQueue{ID: id})
	s.ok(&DeleteQueue{Vhost: "/", Name: "dx", ID: id})
	if s.view().QueueByID(id).State != Running || s.view().Queue("/", "dx") == nil {
		t.Fatal("a queue went")
	}
	s.ok(&UpdateMembers{ID: id, Members: []NodeID{n3}, Preferred: n3})
	check(t, s.view())
	s.ok(&DeleteExchange{Vhost: "/", Name: "dx"})
	v = s.view()
	check(t, v)
	if v.QueueByID(id).State != Closing || v.Queue("/", "dx") == nil {
		t.Fatal("the wrong queue is closing")
	}
	s.ok(&QueueGone{ID: id})
	s.ok(delayed("dy", "x-random"))
	id = s.view().Exchange("/", "dy").DelayQueue
	s.ok(&DeleteVhost{Name: "/"})
	if s.view().QueueByID(id).State != Closing {
		t.Error("the queue outlives its vhost")
	}
	check(t, s.view())
}

// TestDeclarationsInFlight: from level 2 on no queue gets a member that was forgotten or replaced while its declaration was on its way.
func TestDeclarationsInFlight(t *testing.T) {
	s := newScript(t)
	s.ok(&RegisterNode{ID: n1})
	s.ok(declare("below")) // n2 is not there
	s.ok(delayed("below", "fanout"))
	s.ok(&ActivateLevel{2})
	for _, id := range []NodeID{n2, n3} {
		s.ok(&RegisterNode{ID: id})
	}
	s.ok(declare("q"))
	s.ok(delayed("x", "fanout"))
	s.ok(&DeclareQueue{Queue: Queue{Vhost: "/", Name: "only", Durable: true, Kind: Replicated, Members: []NodeID{n3}, Preferred: n3}})
	s.ok(&DeleteQueue{Vhost: "/", Name: "only"})
	s.ok(&QueueGone{s.i - 1})
	s.ok(&ForgetNode{ID: n3})
	s.ok(&RegisterNode{ID: "n1/later"})
	before := s.view().QueueCount()
	on := func(name string, members ...NodeID) []Command {
		q := declare(name)
		q.Queue.Members, q.Queue.Preferred = members, members[0]
		x := delayed(name, "fanout")
		x.Members, x.Preferred = members, members[0]
		return []Command{q, x}
	}
	for _, c := range on("late", n2, n3) {
		s.refused(c, "RESOURCE_ERROR - node 'n3/c' has left the cluster since the queue was asked for")
	}
	for _, c := range on("late", n1, n2) {
		s.refused(c, "RESOURCE_ERROR - node 'n1/a' has left the cluster since the queue was asked for")
	}
	if n := s.view().QueueCount(); n != before {
		t.Errorf("%d queues, there were %d", n, before)
	}
	there := []Command{on("q", n3)[0], on("x", n3)[1]} // who finds it there places nothing
	for _, c := range append(there, on("late", n2, "n1/later")...) {
		s.ok(c)
	}
}

func TestDelayedExchangeIsChecked(t *testing.T) {
	s := newScript(t)
	bad := delayed("x", "topic")
	bad.Members = nil
	s.refused(bad, "PRECONDITION_FAILED - 0 members, want 1 to 15")
	s.refused(delayed("x", "x-delayed-message"), "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type")
	direct := declareX("x", exchange.Direct)
	direct.Members = []NodeID{n1}
	s.refused(direct, "PRECONDITION_FAILED - an exchange of type direct has no queue")
	q := declare("q")
	q.Queue.DelayOf = "x"
	s.refused(q, "PRECONDITION_FAILED - the queue of a delayed exchange comes with the exchange")
}
