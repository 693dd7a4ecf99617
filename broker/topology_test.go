package broker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
)

// TestTopologyWithoutAConnection declares, binds, lists and deletes for a user who has no connection, and is refused what a
// connection would be.
func TestTopologyWithoutAConnection(t *testing.T) {
	b := newBroker(t)
	ctx, guest, some := t.Context(), User{Name: "guest"}, User{Name: "some"}
	propose(t, b, &catalog.PutUser{User: auth.User{Name: "some"}})
	if _, err := b.PutPermission(ctx, "/", "some", "^mine", "^mine", "^mine"); err != nil {
		t.Fatal(err)
	}
	expect := func(what string, wantNew, isNew bool, err error) {
		t.Helper()
		if isNew != wantNew || err != nil {
			t.Errorf("%s: %t %v", what, isNew, err)
		}
	}
	refused := func(what string, kind Kind, words string, err error) {
		t.Helper()
		if !isKind(err, kind) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", what, err, words)
		}
	}
	x := ExchangeDeclare{Name: "x", Type: "topic", Durable: true}
	isNew, err := b.PutExchange(ctx, guest, "/", x)
	expect("declare", true, isNew, err)
	isNew, err = b.PutExchange(ctx, guest, "/", x)
	expect("again", false, isNew, err)
	x.Type = "direct"
	_, err = b.PutExchange(ctx, guest, "/", x)
	refused("unlike", PreconditionFailed, "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'direct' but current is 'topic'", err)
	_, err = b.PutExchange(ctx, some, "/", ExchangeDeclare{Name: "y", Type: "direct"})
	refused("foreign", AccessRefused, "configure access to exchange 'y' in vhost '/' refused for user 'some'", err)
	_, err = b.PutExchange(ctx, User{Name: "nobody"}, "/", x)
	refused("stranger", NotAllowed, "", err)
	_, err = b.PutExchange(ctx, guest, "none", x)
	refused("no vhost", NotAllowed, "not found", err)

	q := QueueDeclare{Name: "mine", Durable: true}
	isNew, err = b.PutQueue(ctx, some, "/", q)
	expect("queue", true, isNew, err)
	isNew, err = b.PutQueue(ctx, some, "/", q)
	expect("queue again", false, isNew, err)
	q.Durable = false
	_, err = b.PutQueue(ctx, some, "/", q)
	refused("queue unlike", PreconditionFailed, "inequivalent arg 'durable'", err)

	bd := Binding{Source: "x", Destination: "mine", Key: "a.*"}
	refused("bind", AccessRefused, "read access to exchange 'x'", b.PutBinding(ctx, some, "/", bd))
	if err := b.PutBinding(ctx, guest, "/", bd); err != nil {
		t.Fatal(err)
	}
	refused("bind nothing", NotFound, "no queue 'none'", b.PutBinding(ctx, guest, "/", Binding{Source: "x", Destination: "none"}))
	text := func(list []BindingInfo) (s string) {
		for _, i := range list {
			s += fmt.Sprintf("%s>%s(%s) ", i.Source, i.Destination, i.Key)
		}
		return s
	}
	for what, list := range map[string][]BindingInfo{"all": b.Bindings(""), "vhost": b.Bindings("/"), "to": b.BindingsTo("/", "mine", false)} {
		if got := text(list); got != ">mine(mine) x>mine(a.*) " {
			t.Errorf("%s: %s", what, got)
		}
	}
	if got := text(b.BindingsFrom("/", "x")) + text(b.BindingsFrom("/", "")) + text(b.BindingsTo("/", "x", true)); got != "x>mine(a.*) >mine(mine) " {
		t.Error(got)
	}
	refused("in use", PreconditionFailed, "in use", b.DropExchange(ctx, guest, "/", "x", true))
	if err := b.DropBinding(ctx, guest, "/", bd); err != nil || len(b.BindingsFrom("/", "x")) != 0 {
		t.Errorf("unbind: %v", err)
	}
	if err := b.DropExchange(ctx, guest, "/", "x", true); err != nil {
		t.Error(err)
	}
	refused("deleted", NotFound, "", b.DropExchange(ctx, guest, "/", "x", false))
	refused("system", AccessRefused, "deletion of system exchange 'amq.topic'", b.DropExchange(ctx, guest, "/", "amq.topic", false))
	refused("default", AccessRefused, "default exchange", b.DropExchange(ctx, guest, "/", "", false))
	if list := b.Exchanges("/"); len(list) != 7 || list[0].Name != "" || len(b.Exchanges("none")) != 0 {
		t.Errorf("exchanges %+v", list)
	}
	_, err = b.DropQueue(ctx, guest, "/", "none", false, false)
	refused("no queue", NotFound, "", err)
	if _, err = b.DropQueue(ctx, some, "/", "mine", true, true); err != nil {
		t.Error(err)
	}
}

// TestFetchOnce takes messages in each of the four ways.
func TestFetchOnce(t *testing.T) {
	b := newBroker(t)
	ctx, guest := t.Context(), User{Name: "guest"}
	c := dial(t, b)
	c.declare("dead", nil)
	c.declare("q", table("x-queue-type", "quorum", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead"))
	for i := range 5 {
		c.put("q", fmt.Sprint("body", i), nil)
	}
	fetch := func(want string, f Fetch) {
		t.Helper()
		f.BytesMax = max(f.BytesMax, 1)
		list, err := b.FetchOnce(ctx, guest, "/", "q", f)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, m := range list {
			failed := any(nil)
			if headers, ok, err := m.Properties.Headers(); ok && err == nil {
				failed, _ = headers.Get("x-delivery-count")
			}
			got += fmt.Sprintf("%s/%d +%d %v %v, ", m.Body, m.BodyBytes, m.Remaining, m.Redelivered, failed)
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	fetch("body0/5 +4 false <nil>, body1/5 +3 false <nil>, ", Fetch{Count: 2, Truncate: -1, BytesMax: 1 << 20, End: fsm.RequeueFailed})
	fetch("bo/5 +4 true 1, bo/5 +3 true 1, ", Fetch{Count: 2, Truncate: 2, BytesMax: 1 << 20, End: fsm.Ack})
	fetch("body2/5 +2 false <nil>, ", Fetch{Count: 9, Truncate: -1, End: fsm.Discard}) // one is too much already
	fetch("body3/5 +1 false <nil>, body4/5 +0 false <nil>, ", Fetch{Count: 9, Truncate: 9, BytesMax: 1 << 20, End: fsm.Ack})
	fetch("", Fetch{Count: 9})
	if d := c.eventually("dead"); string(d.Body) != "body2" {
		t.Errorf("dead letter %q", d.Body)
	}
	if _, err := b.FetchOnce(ctx, guest, "/", "none", Fetch{Count: 1}); !isKind(err, NotFound) {
		t.Error(err)
	}
	if _, err := b.FetchOnce(ctx, User{Name: "nobody"}, "/", "q", Fetch{Count: 1}); !isKind(err, NotAllowed) {
		t.Error(err)
	}
}

// TestOneOfManyMakesIt: of those who declare the same queue or exchange at the same time, one is told to have made it.
func TestOneOfManyMakesIt(t *testing.T) {
	b := newBroker(t)
	guest := User{Name: "guest"}
	for name, put := range map[string]func(name string) (bool, error){
		"queue": func(name string) (bool, error) {
			return b.PutQueue(t.Context(), guest, "/", QueueDeclare{Name: name, Durable: true})
		},
		"exchange": func(name string) (bool, error) {
			return b.PutExchange(t.Context(), guest, "/", ExchangeDeclare{Name: name, Type: "fanout", Durable: true})
		},
	} {
		for round := range 10 {
			var made atomic.Int32
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					switch created, err := put(fmt.Sprint("lock", round)); {
					case err != nil:
						t.Error(err)
					case created:
						made.Add(1)
					}
				})
			}
			wg.Wait()
			if n := made.Load(); n != 1 {
				t.Errorf("%s %d: %d have made it", name, round, n)
			}
		}
	}
}
