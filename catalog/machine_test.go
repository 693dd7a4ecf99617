package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
)

// script runs commands on a machine of its own.
type script struct {
	t testing.TB
	m *machine
	i uint64 // index of the newest entry
}

func newScript(t testing.TB) *script {
	s := &script{t: t, m: newMachine(func(*applied) {})}
	s.ok(&Found{ClusterID: "c", Admin: auth.User{Name: "guest"}})
	return s
}

func (s *script) view() *View { return s.m.view.Load() }

// do applies one command under the request id of its index.
func (s *script) do(c Command) (Result, error) {
	s.t.Helper()
	if err := c.validate(); err != nil {
		return Result{}, err
	}
	s.i++
	var id requestID
	binary.BigEndian.PutUint64(id[:], s.i)
	return s.m.apply(s.i, encodeEntry(id, c)).result(s.view())
}

func (s *script) ok(c Command) Result {
	s.t.Helper()
	r, err := s.do(c)
	if err != nil {
		s.t.Fatalf("%T %+v: %v", c, c, err)
	}
	return r
}

// refused applies a command and wants a reply text.
func (s *script) refused(c Command, want string) {
	s.t.Helper()
	_, err := s.do(c)
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok || e.ReplyText() != want {
		s.t.Errorf("%T: %v, want %q", c, err, want)
	}
}

const n1, n2, n3 = NodeID("n1/a"), NodeID("n2/b"), NodeID("n3/c")

func declare(name string) *DeclareQueue {
	return &DeclareQueue{Queue: Queue{Vhost: "/", Name: name, Durable: true, Kind: Replicated, Members: []NodeID{n1, n2}, Preferred: n1}}
}

func declareX(name string, typ exchange.Type, args ...amqp.Field) *DeclareExchange {
	return &DeclareExchange{Exchange: Exchange{Vhost: "/", Name: name, Type: typ, Durable: true, Arguments: args}}
}

func autoDelete(name string) *DeclareExchange {
	c := declareX(name, exchange.Fanout)
	c.Exchange.AutoDelete = true
	return c
}

func bind(source, queue, key string) *Bind {
	return &Bind{Binding{Vhost: "/", Source: source, Destination: queue, Key: key}}
}

func chain(source, destination string) *Bind {
	return &Bind{Binding{Vhost: "/", Source: source, Destination: destination, ToExchange: true}}
}

func (s *script) routes(name string, keys ...string) string {
	s.t.Helper()
	found, err := s.view().Route("/", name, keys, nil, nil)
	if err != nil {
		return err.(*amqp.Error).ReplyText()
	}
	var names []string
	for _, q := range found {
		names = append(names, q.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (s *script) wantRoutes(want, name string, keys ...string) {
	s.t.Helper()
	if got := s.routes(name, keys...); got != want {
		s.t.Errorf("%q with %q routes to %q, want %q", name, keys, got, want)
	}
}

func TestRouting(t *testing.T) {
	s := newScript(t)
	for _, q := range []string{"a", "b", "c"} {
		s.ok(declare(q))
	}
	s.wantRoutes("a", "", "a")
	s.wantRoutes("", "", "nobody")
	s.wantRoutes("a b", "", "a", "b", "a", "nobody")
	s.wantRoutes("NOT_FOUND - no exchange 'x' in vhost '/'", "x", "a")
	if _, err := s.view().Route("other", "", []string{"a"}, nil, nil); err == nil {
		t.Error("routed in a vhost that is not there")
	}

	s.ok(declareX("x", exchange.Direct, amqp.Field{Name: argAlternate, Value: "ae"}))
	s.ok(bind("x", "a", "k"))
	s.ok(bind("x", "a", "k2"))
	s.ok(bind("x", "b", "k"))
	s.wantRoutes("a b", "x", "k")
	s.wantRoutes("a b", "x", "k", "k2", "k")
	s.wantRoutes("", "x", "other") // the alternate exchange does not exist
	s.ok(declareX("ae", exchange.Fanout, amqp.Field{Name: argAlternate, Value: "x"}))
	s.wantRoutes("", "x", "other") // a cycle of alternates ends
	s.ok(bind("ae", "c", ""))
	s.wantRoutes("c", "x", "other")
	s.wantRoutes("a b", "x", "k") // not used when the exchange routes itself
	s.wantRoutes("a b", "x", "k", "other")

	// A ring of exchanges, entered anywhere, delivers once.
	for _, x := range []string{"r1", "r2", "r3"} {
		s.ok(declareX(x, exchange.Fanout))
		s.ok(bind(x, "q"+x, "").withQueue(s))
	}
	s.ok(chain("r1", "r2"))
	s.ok(chain("r2", "r3"))
	s.ok(chain("r3", "r1"))
	for _, x := range []string{"r1", "r2", "r3"} {
		s.wantRoutes("qr1 qr2 qr3", x, "anything")
	}
	s.ok(&DeleteQueue{Vhost: "/", Name: "qr2"})
	s.wantRoutes("qr1 qr3", "r1", "")
}

// withQueue declares the binding's queue first.
func (b *Bind) withQueue(s *script) *Bind {
	s.t.Helper()
	s.ok(declare(b.Binding.Destination))
	return b
}

func TestDeclareAgainReturnsTheFirst(t *testing.T) {
	s := newScript(t)
	r := s.ok(declare("q"))
	if !r.Changed || r.Queue.ID != r.Index || r.Queue.State != Running || r.Queue.Settings != r.Index {
		t.Fatalf("declared %+v, queue %+v", r, r.Queue)
	}
	other := declare("q")
	other.Queue.AutoDelete = true
	again := s.ok(other)
	if again.Changed || again.Queue != r.Queue {
		t.Fatalf("declared again %+v", again)
	}
	s.ok(declareX("x", exchange.Topic))
	if s.ok(declareX("x", exchange.Direct)).Changed || s.view().Exchange("/", "x").Type != exchange.Topic {
		t.Error("declaring an exchange again changed it")
	}
}

func TestRefusals(t *testing.T) {
	s := newScript(t)
	s.ok(declare("q"))
	s.ok(declareX("x", exchange.Topic))
	s.refused(bind("nox", "q", ""), "NOT_FOUND - no exchange 'nox' in vhost '/'")
	s.refused(bind("x", "noq", ""), "NOT_FOUND - no queue 'noq' in vhost '/'")
	s.refused(chain("x", "nox"), "NOT_FOUND - no exchange 'nox' in vhost '/'")
	s.refused(bind("", "q", ""), "ACCESS_REFUSED - operation not permitted on the default exchange")
	s.refused(bind("x", "q", "#.#.#"), "PRECONDITION_FAILED - Topic binding key '#.#.#' uses 3 '#' wildcards, at most 2 are allowed")
	s.refused(&DeleteExchange{Vhost: "/", Name: "amq.topic"}, "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed")
	s.ok(bind("x", "q", ""))
	s.refused(&DeleteExchange{Vhost: "/", Name: "x", IfUnused: true}, "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use")
	s.refused(&DeclareQueue{Queue: Queue{Vhost: "v", Name: "q", Kind: Replicated, Members: []NodeID{n1}, Preferred: n1}}, "NOT_FOUND - vhost v not found")
	s.refused(&QueueGone{ID: s.view().Queue("/", "q").ID}, "PRECONDITION_FAILED - queue 'q' in vhost '/' is not closing")
	s.refused(&PutPermission{Vhost: "v", User: "guest"}, "NOT_FOUND - vhost v not found")
	s.refused(&PutPermission{Vhost: "/", User: "who"}, "NOT_FOUND - user 'who' not found")
	s.ok(&PutVhost{Vhost: Vhost{Name: "p", Protected: true}})
	s.refused(&DeleteVhost{Name: "p"}, "PRECONDITION_FAILED - vhost 'p' is protected from deletion")
	id := s.view().Queue("/", "q").ID
	s.refused(&UpdateMembers{ID: id, Members: []NodeID{n3}, Preferred: n3, IfSettings: 1}, "PRECONDITION_FAILED - queue 'q' in vhost '/' has changed meanwhile")
	for name, c := range map[string]Command{
		"no members":          &DeclareQueue{Queue: Queue{Vhost: "/", Name: "z", Kind: Replicated}},
		"member twice":        &DeclareQueue{Queue: Queue{Vhost: "/", Name: "z", Kind: Replicated, Members: []NodeID{n1, n1}, Preferred: n1}},
		"foreign preferred":   &DeclareQueue{Queue: Queue{Vhost: "/", Name: "z", Kind: Replicated, Members: []NodeID{n1}, Preferred: n2}},
		"no kind":             &DeclareQueue{Queue: Queue{Vhost: "/", Name: "z", Members: []NodeID{n1}, Preferred: n1}},
		"replicated, owned":   &DeclareQueue{Queue: Queue{Vhost: "/", Name: "z", Kind: Replicated, Exclusive: true, Members: []NodeID{n1}, Preferred: n1}},
		"long name":           declare(strings.Repeat("x", 256)),
		"no exchange type":    declareX("z", 0),
		"bad node":            &RegisterNode{ID: "n1"},
		"value of no type":    declareX("z", exchange.Direct, amqp.Field{Name: "a", Value: struct{}{}}),
		"queue without name":  &DeleteQueue{Vhost: "/"},
		"permission, bad":     &PutPermission{Vhost: "/", User: "guest", Read: "("},
		"user without a name": &PutUser{},
	} {
		if _, err := s.do(c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestAutoDeleteExchangesFollowTheirBindings(t *testing.T) {
	s := newScript(t)
	s.ok(declare("q"))
	// q <- x3 <- x2 <- x1, all auto-delete; keep is bound to x3 as well.
	for _, x := range []string{"x1", "x2", "x3"} {
		s.ok(autoDelete(x))
	}
	s.ok(declareX("keep", exchange.Fanout))
	s.ok(bind("x3", "q", ""))
	s.ok(chain("x2", "x3"))
	s.ok(chain("x1", "x2"))
	s.ok(chain("keep", "x3"))
	s.wantRoutes("q", "x1", "")
	s.ok(&DeleteQueue{Vhost: "/", Name: "q"})
	for _, x := range []string{"x1", "x2", "x3"} {
		if s.view().Exchange("/", x) != nil {
			t.Errorf("%s is still there", x)
		}
	}
	if keep := s.view().Exchange("/", "keep"); keep == nil || keep.bindings != 0 {
		t.Errorf("keep is %+v", keep)
	}
	// A ring of auto-delete exchanges goes with one of its bindings and ends.
	s.ok(autoDelete("r1"))
	s.ok(autoDelete("r2"))
	s.ok(chain("r1", "r2"))
	s.ok(chain("r2", "r1"))
	s.ok(&Unbind{chain("r1", "r2").Binding})
	if s.view().Exchange("/", "r1") != nil || s.view().Exchange("/", "r2") != nil {
		t.Error("the ring is still there")
	}
	// One that was never bound stays.
	s.ok(autoDelete("fresh"))
	s.ok(&Unbind{bind("fresh", "q", "").Binding})
	if s.view().Exchange("/", "fresh") == nil {
		t.Error("an exchange that never had a binding is gone")
	}
	check(t, s.view())
}

func TestQueueLife(t *testing.T) {
	s := newScript(t)
	first := s.ok(declare("q"))
	if r := s.ok(&DeleteQueue{Vhost: "/", Name: "q", ID: first.ID + 1}); r.Changed {
		t.Fatal("deleted another queue of the same name")
	}
	s.ok(&DeleteQueue{Vhost: "/", Name: "q"})
	if s.view().Queue("/", "q") != nil || s.view().QueueByID(first.ID).State != Closing {
		t.Fatal("the name is not free or the queue not closing")
	}
	second := s.ok(declare("q"))
	if !second.Changed || second.ID == first.ID {
		t.Fatalf("declared a successor: %+v", second)
	}
	if r := s.ok(&DeleteQueue{Vhost: "/", Name: "q", ID: first.ID}); r.Changed {
		t.Fatal("a late delete hit the successor")
	}
	s.ok(&QueueGone{ID: first.ID})
	if r := s.ok(&QueueGone{ID: first.ID}); r.Changed || s.view().QueueByID(first.ID) != nil {
		t.Fatal("still listed after QueueGone")
	}
	r := s.ok(&UpdateMembers{ID: second.ID, Members: []NodeID{n2, n3}, Preferred: n3, IfSettings: second.Queue.Settings})
	if got := s.view().Queue("/", "q"); got.Settings != r.Index || got.Preferred != n3 || second.Queue.Preferred != n1 {
		t.Fatalf("members after update: %+v", got)
	}
	check(t, s.view())
}

func TestRegistrations(t *testing.T) {
	s := newScript(t)
	inc := s.ok(&RegisterNode{ID: n1, AMQPAddr: "h:1"}).ID
	s.ok(&RegisterNode{ID: n2})
	transient := func(name string, inc uint64, exclusive bool) *DeclareQueue {
		c := &DeclareQueue{Queue: Queue{Vhost: "/", Name: name, Kind: Transient, Members: []NodeID{n1}, Preferred: n1}, NodeIncarnation: inc}
		if exclusive {
			c.Queue.Exclusive, c.Queue.Owner = true, Owner{Node: n1, Incarnation: inc, Connection: 7}
		}
		return c
	}
	s.ok(transient("t", inc, false))
	s.ok(transient("e", inc, true))
	closing := s.ok(transient("c", inc, false))
	s.ok(&DeleteQueue{Vhost: "/", Name: "c"})
	s.ok(declare("durable"))
	s.ok(autoDelete("x"))
	s.ok(bind("x", "t", ""))
	s.ok(bind("amq.fanout", "e", ""))
	before := s.view()
	again := s.ok(&RegisterNode{ID: n1, AMQPAddr: "h:2"})
	v := s.view()
	if v.Queue("/", "t") != nil || v.Queue("/", "e") != nil || v.QueueByID(closing.ID) != nil || v.Queue("/", "durable") == nil {
		t.Error("wrong queues after a new registration")
	}
	if v.Exchange("/", "x") != nil || v.Exchange("/", "amq.fanout").bindings != 0 {
		t.Error("bindings of gone queues are still there")
	}
	if n := v.Node(n1); n.Number != 1 || n.Incarnation != again.ID || n.AMQPAddr != "h:2" || v.NodeByNumber(1) != n {
		t.Errorf("registered again: %+v", n)
	}
	if got := slices.Sorted(v.QueuesChangedSince(before)); len(got) != 3 {
		t.Errorf("changed queues %v", got)
	}
	s.refused(transient("late", inc, false), "RESOURCE_ERROR - node 'n1/a' has registered anew since the queue was asked for")

	// A new storage under the same name replaces the old one.
	s.ok(&RegisterNode{ID: "n1/new"})
	v = s.view()
	if !v.Node(n1).Superseded || v.NodeByName("n1").ID != "n1/new" || v.Node("n1/new").Number != 3 {
		t.Error("the old storage was not replaced")
	}
	s.refused(&RegisterNode{ID: n1}, "PRECONDITION_FAILED - node 'n1/a' was replaced by a newer storage of the same name")
	s.refused(&RemoveNode{ID: n1}, "PRECONDITION_FAILED - node 'n1/a' still has replicas of queues")
	id := v.Queue("/", "durable").ID
	s.ok(&UpdateMembers{ID: id, Members: []NodeID{"n1/new", n2}, Preferred: n2})
	s.ok(&RemoveNode{ID: n1})
	if s.view().Node(n1) != nil || s.view().NodeByNumber(1) != nil {
		t.Error("the removed node is still there")
	}
	s.ok(&RegisterNode{ID: "n4/d"})
	if got := s.view().Node("n4/d").Number; got != 4 {
		t.Errorf("a number was given twice: %d", got)
	}
	check(t, s.view())
}

func TestVhostsAndUsers(t *testing.T) {
	s := newScript(t)
	s.ok(&PutVhost{Vhost: Vhost{Name: "v", Description: "first"}})
	for i := range systemExchanges {
		if s.view().Exchange("v", systemExchanges[i].name) == nil {
			t.Errorf("exchange %q is missing", systemExchanges[i].name)
		}
	}
	s.ok(&PutUser{auth.User{Name: "u", Tags: []string{"management"}}})
	s.ok(&PutPermission{Vhost: "v", User: "u", Read: ".*"})
	if r := s.ok(&PutVhost{Vhost: Vhost{Name: "v", Description: "second"}}); r.Changed || s.view().Vhost("v").Description != "second" {
		t.Error("settings were not replaced")
	}
	q := declare("q")
	q.Queue.Vhost = "v"
	id := s.ok(q).ID
	s.ok(&Bind{Binding{Vhost: "v", Source: "amq.topic", Destination: "q", Key: "#"}})
	s.ok(&DeleteVhost{Name: "v"})
	v := s.view()
	if v.Vhost("v") != nil || v.Permission("v", "u") != nil || v.Queue("v", "q") != nil || v.QueueByID(id).State != Closing {
		t.Error("something of the vhost is left")
	}
	s.ok(&PutVhost{Vhost: Vhost{Name: "v"}})
	if n := len(slices.Collect(s.view().Bindings("v"))); n != 0 || s.view().Exchange("v", "amq.topic").bindings != 0 {
		t.Errorf("the new vhost has %d bindings", n)
	}
	s.ok(&PutPermission{Vhost: "v", User: "u", Read: ".*"})
	s.ok(&DeleteUser{Name: "u"})
	if s.view().User("u") != nil || s.view().Permission("v", "u") != nil {
		t.Error("something of the user is left")
	}
	if s.ok(&DeletePermission{Vhost: "v", User: "u"}).Changed || s.ok(&DeleteUser{Name: "u"}).Changed || s.ok(&DeleteVhost{Name: "gone"}).Changed {
		t.Error("deleting what is not there changed something")
	}
	check(t, s.view())
}

func TestTopicPermissions(t *testing.T) {
	s := newScript(t)
	put := func(user, exchange string) *PutTopicPermission {
		return &PutTopicPermission{Vhost: "v", User: user, Exchange: exchange, Write: "^a"}
	}
	s.refused(put("guest", "x"), "NOT_FOUND - vhost v not found")
	s.ok(&PutVhost{Vhost: Vhost{Name: "v"}})
	s.refused(put("u", "x"), "NOT_FOUND - user 'u' not found")
	s.ok(&PutUser{auth.User{Name: "u"}})
	for _, user := range []string{"guest", "u"} {
		for _, exchange := range []string{"x", "y", "xx"} {
			if !s.ok(put(user, exchange)).Changed {
				t.Error("a new entry is no change")
			}
		}
	}
	left := func() int { return len(slices.Collect(s.view().TopicPermissions())) }
	if s.ok(put("u", "x")).Changed || left() != 6 {
		t.Errorf("%d entries, want 6", left())
	}
	s.ok(&DeleteTopicPermission{"v", "u", "x"})
	if s.view().TopicPermission("v", "u", "x") != nil || s.view().TopicPermission("v", "u", "xx") == nil || s.ok(&DeleteTopicPermission{"v", "u", "x"}).Changed {
		t.Error("the wrong entry was deleted")
	}
	s.ok(&DeleteTopicPermission{Vhost: "v", User: "u"})
	if left() != 3 {
		t.Errorf("%d entries, want the 3 of the other user", left())
	}
	s.ok(put("u", "y"))
	s.ok(&DeleteUser{Name: "u"})
	if left() != 3 {
		t.Errorf("%d entries after the user is gone, want 3", left())
	}
	s.ok(&DeleteVhost{Name: "v"})
	if left() != 0 {
		t.Errorf("%d entries after the vhost is gone", left())
	}
	for _, bad := range []Command{
		&PutTopicPermission{Vhost: "v", User: "u", Exchange: "x", Read: "("}, &PutTopicPermission{Vhost: "v", User: "u"},
	} {
		if bad.validate() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestRetriesTakeEffectOnce(t *testing.T) {
	s := newScript(t)
	id := requestID{1: 9}
	entry := encodeEntry(id, declare("q"))
	s.i++
	first := s.m.apply(s.i, entry)
	s.ok(&DeleteQueue{Vhost: "/", Name: "q"})
	s.i++
	again := s.m.apply(s.i, entry)
	if again.outcome != first.outcome || s.view().Queue("/", "q") != nil {
		t.Fatalf("the retry returned %+v, first %+v", again.outcome, first.outcome)
	}
	if s.view().Revision() != s.i {
		t.Error("the revision stood still")
	}
	refusedID := requestID{1: 10}
	refused := encodeEntry(refusedID, bind("nox", "q", ""))
	s.i++
	s.m.apply(s.i, refused)
	s.ok(declareX("nox", exchange.Fanout))
	s.i++
	if _, err := s.m.apply(s.i, refused).result(s.view()); err == nil {
		t.Error("the retry of a refused command was not refused")
	}
	for i := range requestsMax {
		s.m.requests.add(requestID{2: byte(i), 3: byte(i >> 8), 4: 1}, outcome{})
	}
	if _, ok := s.m.requests.byID[id]; ok || len(s.m.requests.byID) != requestsMax {
		t.Errorf("the request log is not bounded: %d", len(s.m.requests.byID))
	}
}

func TestUnknownCommandsStopTheReplica(t *testing.T) {
	s := newScript(t)
	good := encodeEntry(requestID{}, declare("q"))
	for name, change := range map[string]func([]byte) []byte{
		"entry version":   func(b []byte) []byte { b[0] = 2; return b },
		"kind":            func(b []byte) []byte { b[17] = 200; return b },
		"command version": func(b []byte) []byte { b[18] = 2; return b },
		"cut off":         func(b []byte) []byte { return b[:len(b)-1] },
		"left over":       func(b []byte) []byte { return append(b, 0) },
		"empty":           func([]byte) []byte { return nil },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "entry 2") {
					t.Errorf("%s: panicked with %v", name, r)
				}
			}()
			s.m.apply(2, change(bytes.Clone(good)))
		}()
	}
	defer func() {
		if recover() == nil {
			t.Error("an entry was applied twice")
		}
	}()
	s.m.apply(1, good)
}
