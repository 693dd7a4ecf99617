package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/policy"
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
	s.refused(bind("x", "q", "#.#.#"), "PRECONDITION_FAILED - topic binding key '#.#.#' has 3 '#' words, the maximum is 2")
	s.refused(&DeleteExchange{Vhost: "/", Name: "amq.topic"}, "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed")
	s.ok(bind("x", "q", ""))
	s.refused(&DeleteExchange{Vhost: "/", Name: "x", IfUnused: true}, "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use")
	s.refused(&DeclareQueue{Queue: Queue{Vhost: "v", Name: "q", Kind: Replicated, Members: []NodeID{n1}, Preferred: n1}}, "NOT_FOUND - vhost v not found")
	s.refused(&QueueGone{ID: s.view().Queue("/", "q").ID}, "PRECONDITION_FAILED - queue 'q' in vhost '/' is not closing")
	s.refused(&PutPermission{Vhost: "v", User: "guest"}, "NOT_FOUND - vhost v not found")
	s.refused(&PutPermission{Vhost: "/", User: "who"}, "NOT_FOUND - user 'who' not found")
	s.ok(&PutVhost{Vhost{Name: "p", Protected: true}})
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
	s.ok(&PutVhost{Vhost{Name: "v", Description: "first"}})
	for i := range systemExchanges {
		if s.view().Exchange("v", systemExchanges[i].name) == nil {
			t.Errorf("exchange %q is missing", systemExchanges[i].name)
		}
	}
	s.ok(&PutUser{auth.User{Name: "u", Tags: []string{"management"}}})
	s.ok(&PutPermission{Vhost: "v", User: "u", Read: ".*"})
	if r := s.ok(&PutVhost{Vhost{Name: "v", Description: "second"}}); r.Changed || s.view().Vhost("v").Description != "second" {
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
	s.ok(&PutVhost{Vhost{Name: "v"}})
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
	s.ok(&PutVhost{Vhost{Name: "v"}})
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

// check recounts a view.
func check(t interface{ Fatalf(string, ...any) }, v *View) {
	bySource, byDestination := 0, 0
	counts := make(map[string]int)
	for b := range v.bySource.all() {
		bySource++
		counts[string(key(b.Vhost, b.Source))]++
		if other, _ := v.byDestination.get(b.destinationKey()); other != b {
			t.Fatalf("binding %+v is in one index only", b)
		}
		if v.Exchange(b.Vhost, b.Source) == nil || b.ToExchange && v.Exchange(b.Vhost, b.Destination) == nil ||
			!b.ToExchange && v.Queue(b.Vhost, b.Destination) == nil {
			t.Fatalf("binding %+v lacks an end", b)
		}
	}
	for range v.byDestination.all() {
		byDestination++
	}
	if bySource != byDestination {
		t.Fatalf("%d bindings by source, %d by destination", bySource, byDestination)
	}
	for x := range v.exchanges.all() {
		if (x.Type == exchange.Delayed) != (x.DelayQueue != 0) || x.DelayQueue != 0 && v.QueueByID(x.DelayQueue) == nil {
			t.Fatalf("exchange %+v lacks its queue", x)
		}
		if alternate := searchAlternate(v, x); x.Alternate() != alternate {
			t.Fatalf("exchange %+v has the alternate %q, want %q", x, x.Alternate(), alternate)
		}
		if x.bindings != counts[string(key(x.Vhost, x.Name))] || v.Vhost(x.Vhost) == nil {
			t.Fatalf("exchange %+v counts %d bindings, has %d", x, x.bindings, counts[string(key(x.Vhost, x.Name))])
		}
	}
	running := 0
	for q := range v.queuesByID.all() {
		if q.DelayOf != "" {
			if x := v.Exchange(q.Vhost, q.DelayOf); (x != nil && x.DelayQueue == q.ID) != (q.State == Running) {
				t.Fatalf("queue %+v belongs to exchange %+v", q, x)
			}
			if v.Queue(q.Vhost, q.Name) == q {
				t.Fatalf("queue %+v has a name", q)
			}
			continue
		}
		if named := v.Queue(q.Vhost, q.Name); (named == q) != (q.State == Running) {
			t.Fatalf("queue %+v under its name is %+v", q, named)
		}
		if q.State == Running {
			running++
		}
	}
	if running != v.queues.len() || v.nodes.len() != v.nodesByNumber.len() {
		t.Fatalf("%d running queues, %d names; %d nodes, %d numbers", running, v.queues.len(), v.nodes.len(), v.nodesByNumber.len())
	}
}

// searchAlternate finds the alternate exchange of x without what the machine keeps.
func searchAlternate(v *View, x *Exchange) string {
	if a, ok := x.Arguments.Get(argAlternate); ok {
		return a.(string)
	}
	for _, p := range v.Policies(x.Vhost).List(false) {
		if p.Matches(policy.Exchange, x.Name) {
			a, _ := p.Definition.Get(argAlternate)
			s, _ := a.(string)
			return s
		}
	}
	return ""
}

func snapshotBytes(t interface{ Fatalf(string, ...any) }, m *machine) []byte {
	var b bytes.Buffer
	if err := (&snapshot{view: m.view.Load(), requests: m.requests.save()}).write(&b); err != nil {
		t.Fatalf("write: %v", err)
	}
	return b.Bytes()
}

// randomCommand draws a command over few names, so that commands meet.
func randomCommand(t *rapid.T) Command {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	vhost := func() string { return pick("vhost", "/", "/", "v\x00w") }
	x := func() string { return pick("exchange", "x1", "x2", "x3", "amq.topic") }
	queue := func() string { return pick("queue", "q1", "q2", "q3") }
	binding := func() Binding {
		b := Binding{Vhost: vhost(), Source: x(), Destination: queue(), Key: pick("key", "", "a", "a.b", "#")}
		if rapid.Bool().Draw(t, "e2e") {
			b.Destination, b.ToExchange = x(), true
		}
		if rapid.IntRange(0, 3).Draw(t, "args") == 0 {
			b.Arguments = amqp.Table{{Name: "h", Value: int32(1)}, {Name: "x-match", Value: "any"}}
		}
		return b
	}
	node := func() NodeID { return NodeID(pick("node", "n1/a", "n1/b", "n2/a")) }
	id := func() uint64 { return uint64(rapid.IntRange(0, 40).Draw(t, "id")) }
	limit := func() auth.Limit {
		if rapid.Bool().Draw(t, "limited") {
			return auth.LimitOf(rapid.Int64Range(-2, 3).Draw(t, "limit"))
		}
		return auth.Limit{}
	}
	switch rapid.IntRange(0, 24).Draw(t, "command") {
	case 0:
		c := &RegisterNode{ID: node(), AMQPAddr: pick("addr", "h:1", "h:2"), Process: id() / 10}
		for range rapid.IntRange(0, 2).Draw(t, "met") {
			c.Met = append(c.Met, Process{node(), id() / 10})
		}
		return c
	case 1:
		return &PutVhost{Vhost{Name: vhost(), Tags: []string{"t"}}}
	case 2:
		return &DeleteVhost{Name: vhost()}
	case 3:
		return &PutUser{auth.User{Name: pick("user", "u1", "u2"), Tags: []string{"management"}}}
	case 4:
		return &DeleteUser{Name: pick("user", "u1", "u2")}
	case 5:
		return &PutPermission{Vhost: vhost(), User: pick("user", "u1", "guest"), Read: ".*"}
	case 6:
		return &DeletePermission{Vhost: vhost(), User: pick("user", "u1", "guest")}
	case 7, 8:
		c := &DeclareExchange{Exchange: Exchange{Vhost: vhost(), Name: x(), Type: rapid.SampledFrom([]exchange.Type{1, 2, 3, 4}).Draw(t, "type"), AutoDelete: rapid.Bool().Draw(t, "auto"), Durable: rapid.Bool().Draw(t, "durable")}}
		if rapid.Bool().Draw(t, "ae") {
			c.Exchange.Arguments = amqp.Table{{Name: argAlternate, Value: x()}}
		}
		if rapid.IntRange(0, 3).Draw(t, "delayed") == 0 {
			c.Exchange.Arguments = append(c.Exchange.Arguments, amqp.Field{Name: "x-delayed-type", Value: c.Exchange.Type.String()})
			c.Exchange.Type, c.Members, c.Preferred = exchange.Delayed, []NodeID{n1, n2}, n1
		}
		return c
	case 9:
		return &DeleteExchange{Vhost: vhost(), Name: pick("exchange", "x1", "x2", "x3"), IfUnused: rapid.Bool().Draw(t, "unused")}
	case 10, 11:
		return &Bind{binding()}
	case 12:
		return &Unbind{binding()}
	case 13, 14:
		c := &DeclareQueue{Queue: Queue{Vhost: vhost(), Name: queue(), Kind: Replicated, Members: []NodeID{n1, n2}, Preferred: n2}}
		if rapid.Bool().Draw(t, "transient") {
			c.Queue.Kind, c.Queue.Members = Transient, []NodeID{node()}
			c.Queue.Preferred, c.NodeIncarnation = c.Queue.Members[0], id()
		}
		return c
	case 15:
		return &DeleteQueue{Vhost: vhost(), Name: queue(), ID: id() / 8}
	case 16:
		return &QueueGone{ID: id()}
	case 17:
		return &PutVhostLimits{Vhost: vhost(), Limits: VhostLimits{limit(), limit()}, Replace: rapid.Bool().Draw(t, "replace")}
	case 18:
		return &DeleteVhostLimits{Vhost: vhost(), Name: pick("limit", "", "max-connections", "max-queues")}
	case 19:
		return &PutUserLimits{User: pick("user", "u1", "guest"), Limits: auth.UserLimits{Connections: limit(), Channels: limit()}}
	case 20:
		return &DeleteUserLimits{User: pick("user", "u1", "guest"), Name: pick("limit", "", "max-connections", "max-channels")}
	case 21, 22:
		p := policy.Spec{
			VHost: vhost(), Name: pick("policy", "p1", "p2"), Operator: rapid.Bool().Draw(t, "operator"), Pattern: pick("pattern", "", "1", "^amq"),
			ApplyTo: policy.ApplyTo(rapid.IntRange(1, 6).Draw(t, "apply to")), Priority: int64(rapid.IntRange(-1, 1).Draw(t, "priority")),
			Definition: amqp.Table{{Name: "max-length", Value: int64(3)}},
		}
		if !p.Operator && rapid.Bool().Draw(t, "alternate") {
			p.Definition = append(p.Definition, amqp.Field{Name: argAlternate, Value: x()})
		}
		return &PutPolicy{p}
	case 23:
		return &DeletePolicy{Vhost: vhost(), Name: pick("policy", "p1", "p2"), Operator: rapid.Bool().Draw(t, "operator")}
	}
	return &UpdateMembers{ID: id(), Members: []NodeID{n3}, Preferred: n3}
}

// TestMachineProperties applies random commands and holds that: indexes agree with a
// recount; a refused command changes nothing; two replicas are byte for byte equal, also if one
// was restored in the middle; old views never change; changed queues are all told; and
// routing agrees with a search over the bindings.
func TestMachineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		silent := func(*applied) {}
		a, b := newMachine(silent), newMachine(silent)
		entries := [][]byte{encodeEntry(requestID{15: 1}, &Found{ClusterID: "c", Admin: auth.User{Name: "guest"}})}
		for i := range rapid.IntRange(1, 40).Draw(t, "n") {
			c := randomCommand(t)
			if c.validate() == nil {
				entries = append(entries, encodeEntry(requestID{15: byte(i % 30), 1: 1}, c))
			}
		}
		cut := rapid.IntRange(0, len(entries)-1).Draw(t, "cut")
		var old *View
		var oldBytes []byte
		for i, e := range entries {
			index := uint64(2*i + 1) // other entries of the log are not the machine's
			before := a.view.Load()
			out := a.apply(index, e)
			v := a.view.Load()
			check(t, v)
			if out.outcome.code != 0 && (v.queues != before.queues || v.bySource != before.bySource || v.exchanges != before.exchanges) {
				t.Fatalf("refused with %q and changed something", out.outcome.text)
			}
			b.apply(index, e)
			if i == cut {
				raw := snapshotBytes(t, b)
				b = newMachine(silent)
				if err := (fsm{b}).Restore(io.NopCloser(bytes.NewReader(raw))); err != nil {
					t.Fatalf("restore: %v", err)
				}
				check(t, b.view.Load())
				old = a.view.Load()
				oldBytes = viewBytes(t, old)
			}
		}
		if x, y := snapshotBytes(t, a), snapshotBytes(t, b); !bytes.Equal(x, y) {
			t.Fatalf("replicas differ: %x and %x", x, y)
		}
		last := a.view.Load()
		if !bytes.Equal(viewBytes(t, old), oldBytes) {
			t.Fatalf("an old view has changed")
		}
		compareChanges(t, old, last)
		compareRoutes(t, last)
	})
}

func viewBytes(t interface{ Fatalf(string, ...any) }, v *View) []byte {
	m := newMachine(func(*applied) {})
	m.view.Store(v)
	return snapshotBytes(t, m)
}

func compareChanges(t *rapid.T, old, now *View) {
	told := maps.Collect(func(yield func(uint64, bool) bool) {
		for id := range now.QueuesChangedSince(old) {
			if !yield(id, true) {
				return
			}
		}
	})
	for _, v := range []*View{old, now} {
		for q := range v.AllQueues() {
			if old.QueueByID(q.ID) != now.QueueByID(q.ID) && !told[q.ID] {
				t.Fatalf("queue %d changed and was not told", q.ID)
			}
		}
	}
}

// compareRoutes routes from every exchange and compares with a search.
func compareRoutes(t *rapid.T, v *View) {
	headers := amqp.Table{{Name: "h", Value: int16(1)}}
	for x := range v.exchanges.all() {
		if x.Name == "" {
			continue
		}
		got, err := v.Route(x.Vhost, x.Name, []string{"a.b"}, headers, nil)
		if err != nil {
			t.Fatalf("route: %v", err)
		}
		want := make(map[uint64]bool)
		searchRoutes(v, x, headers, make(map[string]bool), want)
		if len(got) != len(want) {
			t.Fatalf("%q routes to %d queues, want %d", x.Name, len(got), len(want))
		}
		for _, q := range got {
			if !want[q.ID] {
				t.Fatalf("%q routes to %q", x.Name, q.Name)
			}
		}
		compareFixed(t, v, x)
	}
}

// compareFixed checks that what is said to hold for all messages does for some.
func compareFixed(t *rapid.T, v *View, x *Exchange) {
	for _, anyKey := range []bool{false, true} {
		fixed, ok := v.FixedRoute(x.Vhost, x.Name, "a.b", anyKey)
		if !ok {
			continue
		}
		for _, keys := range [][]string{{"a.b"}, {"c"}, {"c", "a.b"}} {
			for _, h := range []amqp.Table{nil, {{Name: "h", Value: int16(1)}}, {{Name: exchange.HeaderDelay, Value: int32(9)}}} {
				if !anyKey && !slices.Equal(keys, []string{"a.b"}) {
					continue
				}
				m := Message{Message: exchange.Message{Keys: keys, Headers: h, Random: rapid.Uint64().Draw(t, "random")}}
				got, err := v.RouteMessage(x.Vhost, x.Name, &m, nil)
				if err != nil || !sameQueues(got, fixed) {
					t.Fatalf("%q with %v and %v: %v, said to be fixed: %v (%v)", x.Name, keys, h, got, fixed, err)
				}
			}
		}
	}
}

func sameQueues(a, b []*Queue) bool {
	for _, q := range a {
		if !slices.Contains(b, q) {
			return false
		}
	}
	return len(a) == len(b)
}

func searchRoutes(v *View, x *Exchange, headers amqp.Table, visited map[string]bool, found map[uint64]bool) {
	if visited[x.Name] {
		return
	}
	visited[x.Name] = true
	matched := false
	for b := range v.BindingsFrom(x.Vhost, x.Name) {
		single := exchange.New(x.Type, x.Arguments).Add(b.routing())
		if len(single.Match(nil, "a.b", headers)) == 0 {
			continue
		}
		matched = true
		if b.ToExchange {
			searchRoutes(v, v.Exchange(b.Vhost, b.Destination), headers, visited, found)
		} else {
			found[v.Queue(b.Vhost, b.Destination).ID] = true
		}
	}
	if ae := v.Exchange(x.Vhost, x.Alternate()); !matched && x.Alternate() != "" && ae != nil {
		searchRoutes(v, ae, headers, visited, found)
	}
}

func TestChangesBeyondTheBound(t *testing.T) {
	s := newScript(t)
	start := s.view()
	id := s.ok(declare("q")).ID
	var middle *View
	for i := range 3 * changesMax {
		s.ok(&UpdateMembers{ID: id, Members: []NodeID{n1, n2, n3}, Preferred: n1})
		if i == 3*changesMax-10 {
			middle = s.view()
			s.ok(declare("late"))
		}
	}
	if got := slices.Collect(s.view().QueuesChangedSince(start)); len(got) != 2 {
		t.Errorf("since the start: %v", got)
	}
	if got := slices.Collect(s.view().QueuesChangedSince(middle)); len(got) != 2 {
		t.Errorf("since the middle: %v", got)
	}
	if got := slices.Collect(s.view().QueuesChangedSince(s.view())); len(got) != 0 {
		t.Errorf("since now: %v", got)
	}
	if len(s.view().changes) > changesMax {
		t.Errorf("%d changes are kept", len(s.view().changes))
	}
}

func TestDamagedSnapshots(t *testing.T) {
	s := newScript(t)
	s.ok(declare("q"))
	s.ok(bind("amq.topic", "q", "a.*"))
	s.ok(&RegisterNode{ID: n1})
	raw := snapshotBytes(t, s.m)
	if _, _, err := readSnapshot(bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		if _, _, err := readSnapshot(bytes.NewReader(raw[:i])); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		bad := bytes.Clone(raw)
		bad[i] ^= 0x10
		if _, _, err := readSnapshot(bytes.NewReader(bad)); err == nil {
			t.Fatalf("flipped a bit at %d: accepted", i)
		}
	}
}

// crashingStore stops writing after a number of writes, as a process that is killed does.
type crashingStore struct {
	*raft.InmemStore
	left int
}

func (s *crashingStore) write(f func() error) error {
	if s.left <= 0 {
		panic("killed")
	}
	s.left--
	return f()
}

func (s *crashingStore) Set(k, v []byte) error {
	return s.write(func() error { return s.InmemStore.Set(k, v) })
}

func (s *crashingStore) SetUint64(k []byte, v uint64) error {
	return s.write(func() error { return s.InmemStore.SetUint64(k, v) })
}

// TestVoteIsOneRecord votes twice as raft does, with a crash after each number of writes: term and
// candidate found afterwards always belong together.
func TestVoteIsOneRecord(t *testing.T) {
	for writes := range 4 {
		disk := &crashingStore{InmemStore: raft.NewInmemStore(), left: writes}
		func() {
			defer func() { _ = recover() }() // the crash
			s := &guardedStore{durable: disk}
			_ = s.SetUint64(keyLastVoteTerm, 5)
			_ = s.Set(keyLastVoteCand, []byte("n1"))
			_ = s.SetUint64(keyLastVoteTerm, 6)
			if got, err := s.GetUint64(keyLastVoteTerm); err != nil || got != 6 {
				t.Errorf("the staged term reads as %d, %v", got, err)
			}
			_ = s.Set(keyLastVoteCand, []byte("n2"))
		}()
		after := &guardedStore{durable: disk}
		term, _ := after.GetUint64(keyLastVoteTerm)
		candidate, _ := after.Get(keyLastVoteCand)
		got := fmt.Sprintf("%d %s", term, candidate)
		if want := []string{"0 ", "5 n1", "6 n2", "6 n2"}[writes]; got != want {
			t.Errorf("after %d writes: %q, want %q", writes, got, want)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, c := range []Command{
		&Found{ClusterID: "c", Admin: auth.User{Name: "u", Tags: []string{"t"}}}, &RegisterNode{ID: n1}, &RemoveNode{ID: n1},
		&PutVhost{Vhost{Name: "v"}}, &DeleteVhost{}, &PutUser{auth.User{Name: "u"}}, &DeleteUser{}, &PutPermission{}, &DeletePermission{}, &PutTopicPermission{}, &DeleteTopicPermission{},
		&PutVhostLimits{Vhost: "/", Limits: VhostLimits{Queues: auth.LimitOf(-3)}}, &DeleteVhostLimits{}, &PutUserLimits{User: "guest"}, &DeleteUserLimits{},
		declareX("x", exchange.Topic, amqp.Field{Name: "a", Value: amqp.Table{{Name: "b", Value: 1.5}}}), &DeleteExchange{},
		bind("x", "q", "k"), &Unbind{}, declare("q"), &DeleteQueue{}, &QueueGone{}, &UpdateMembers{Members: []NodeID{n1}},
	} {
		f.Add(encodeEntry(requestID{1}, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, c, err := decodeEntry(b)
		if err != nil {
			return
		}
		again := encodeEntry(id, c)
		id2, c2, err := decodeEntry(again)
		if err != nil || id2 != id || !bytes.Equal(encodeEntry(id2, c2), again) {
			t.Fatalf("%T does not survive: %v", c, err)
		}
		if c.validate() != nil {
			return
		}
		m := newMachine(func(*applied) {})
		m.apply(1, encodeEntry(requestID{9}, &Found{ClusterID: "c", Admin: auth.User{Name: "guest"}}))
		m.apply(2, b)
		check(t, m.view.Load())
	})
}

func FuzzReadSnapshot(f *testing.F) {
	s := newScript(f)
	s.ok(declare("q"))
	s.ok(bind("amq.headers", "q", "a.*"))
	s.ok(&RegisterNode{ID: n1})
	f.Add(snapshotBytes(f, s.m))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum keeps most inputs out: mend it.
		if len(b) > 4 {
			b = binary.BigEndian.AppendUint32(bytes.Clone(b[:len(b)-4]), crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		_, _, _ = readSnapshot(bytes.NewReader(b)) // must not panic
	})
}

func FuzzDecodeCalls(f *testing.F) {
	for _, m := range []interface{ fields(*fields) }{&position{id: n1, leader: n2, term: 3, last: 4}, &joinRequest{Node: n1, Forwarded: true}} {
		var out fields
		m.fields(&out)
		f.Add(out.buf)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []interface{ fields(*fields) }{new(position), new(joinRequest)} {
			in := fields{buf: b, reading: true}
			m.fields(&in)
			if in.end() != nil {
				continue
			}
			var out, again fields
			m.fields(&out)
			in = fields{buf: out.buf, reading: true}
			m.fields(&in)
			if m.fields(&again); in.end() != nil || !bytes.Equal(again.buf, out.buf) {
				t.Fatalf("%T does not survive", m)
			}
		}
		_, _ = decodeIndex(b)
	})
}
