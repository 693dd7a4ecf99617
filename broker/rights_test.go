package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// words are rights as the brought ones of a token: "write queue-or-exchange" for each thing that is allowed in "/", "key write x a.b" for keys of topic exchanges.
type words string

func (w words) Source() string { return "words" }

func (w words) Lasting() bool { return true }

func (w words) Enters(vhost string) bool { return vhost == "/" && w != "" }

func (w words) Allows(vhost string, a auth.Action, k auth.Kind, name string) bool {
	return w.Enters(vhost) && strings.Contains(string(w), ";"+a.String()+" "+auth.CheckedName(k, name)+";")
}

func (w words) Keys(_, exchange string) auth.Keys { return wordKeys{w, exchange} }

type wordKeys struct {
	w        words
	exchange string
}

func (k wordKeys) Allows(a auth.Action, key string) bool {
	return strings.Contains(string(k.w), ";key "+a.String()+" "+k.exchange+" "+key+";")
}

// byToken logs somebody in who is in no catalog.
func byToken(t *testing.T, b *Broker, name string, w words, tags ...string) User {
	t.Helper()
	u, err := b.LoginToken(t.Context(), "BEARER", Token{User: name, Until: time.Now().Add(time.Hour), Rights: w, Tags: tags}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestBroughtRights: what a login brings is all that counts, for who is in the catalog, too, and another login of the connection counts at once.
func TestBroughtRights(t *testing.T) {
	b := newBroker(t)
	dial(t, b).declare("q", nil)
	propose(t, b, &catalog.PutUser{User: auth.User{Name: "ann", Tags: []string{"administrator", "impersonator"}}})
	propose(t, b, &catalog.PutPermission{Vhost: "/", User: "ann", Configure: ".*", Write: ".*", Read: ".*"})
	if _, err := b.LoginToken(t.Context(), "BEARER", Token{User: "guest", Rights: words(";read q;")}, nil, false); kindOfRefusal(err) != AccessRefused {
		t.Errorf("guest from afar: %v", err)
	}
	for _, name := range []string{"ann", "nobody"} {
		if _, err := b.Open(t.Context(), byToken(t, b, name, ""), "/", ConnInfo{}); kindOfRefusal(err) != NotAllowed {
			t.Errorf("%s without rights: %v", name, err)
		}
		u := byToken(t, b, name, ";read q;write amq.default;write amq.topic;read amq.topic;key write amq.topic a;key read amq.topic b;write q;", "management")
		if !b.MayEnter(u, "/") || b.MayEnter(u, "v") || !b.Mark().MayEnter(u, "/") {
			t.Errorf("%s may enter the wrong virtual hosts", name)
		}
		conn, err := b.Open(t.Context(), u, "/", ConnInfo{})
		if err != nil {
			t.Fatal(err)
		}
		ch, err := conn.OpenChannel(t.Context(), &onceSink{confirmed: make(chan Confirm, 1), failed: make(chan *Error, 1)})
		if err != nil {
			t.Fatal(err)
		}
		publish := func(x, key string) error {
			_, err := ch.Publish(t.Context(), &Publish{Exchange: x, Key: key})
			return err
		}
		bind := func(key string) error {
			return conn.Bind(t.Context(), Binding{Source: "amq.topic", Destination: "q", Key: key})
		}
		declare := func(d QueueDeclare) error { _, err := conn.DeclareQueue(t.Context(), d); return err }
		deaths := func(queue string) error { _, err := b.DeadLetters(t.Context(), u, "/", queue); return err }
		get := func(queue string) error { _, _, err := ch.Get(t.Context(), queue, true); return err }
		for _, tc := range []struct {
			what    string
			err     error
			allowed bool
		}{
			{"declare", declare(QueueDeclare{Name: "other"}), false},
			{"declare an exchange", conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "x", Type: "fanout"}), false},
			{"get", get("q"), true},
			{"get from another", get("r"), false},
			{"publish", publish("", "q"), true},
			{"publish elsewhere", publish("amq.fanout", "q"), false},
			{"publish by a key", publish("amq.topic", "a"), true},
			{"publish by another", publish("amq.topic", "b"), false},
			{"bind a key", bind("b"), true},
			{"bind another", bind("a"), false},
			{"passive declare", declare(QueueDeclare{Name: "q", Passive: true}), true},
			{"passive declare of another", declare(QueueDeclare{Name: "r", Passive: true}), false},
			{"dead letters", deaths("q"), true},
			{"dead letters of another", deaths("r"), false},
		} {
			if (tc.err == nil) != tc.allowed || tc.err != nil && kindOfRefusal(tc.err) != AccessRefused {
				t.Errorf("%s, %s: %v", name, tc.what, tc.err)
			}
		}
		if err := publish("", "q"); err != nil {
			t.Error(err)
		}
		if conn.impersonator() {
			t.Errorf("%s has a tag that is not the token's", name)
		}
		if err := conn.UpdateUser(byToken(t, b, name, ";read r;", "impersonator")); err != nil {
			t.Fatal(err)
		}
		if err := publish("", "q"); kindOfRefusal(err) != AccessRefused || conn.MayRead("q") || !conn.MayRead("r") || !conn.impersonator() {
			t.Errorf("%s, after a narrower login: %v", name, err)
		}
		wantKind(t, conn.UpdateUser(byToken(t, b, name, "")), NotAllowed, "access to vhost '/' refused for user '"+name+"'")
		ch.Close(t.Context())
		conn.Close(t.Context())
	}
}

// TestBroughtRightsOutliveTheUser: who logs in by a token with rights has no user, so that nobody can delete it; but the virtual host, and the token ends.
func TestBroughtRightsOutliveTheUser(t *testing.T) {
	b := newBroker(t)
	propose(t, b, &catalog.PutUser{User: auth.User{Name: "ann"}})
	propose(t, b, &catalog.PutVhost{Vhost: catalog.Vhost{Name: "v"}})
	ends := make(chan *Error, 1)
	u := byToken(t, b, "ann", ";read q;")
	conn, err := b.Open(t.Context(), u, "/", ConnInfo{Kick: func(why *Error) { ends <- why }})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := b.DeleteUser(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	if why := conn.stranger(b.cat.View()); why != nil {
		t.Errorf("without a user: %v", why)
	}
	if _, err := b.Renew(u); err != nil {
		t.Error(err)
	}
	u.Until = time.Now()
	if _, err := b.Renew(u); kindOfRefusal(err) != ConnectionForced {
		t.Errorf("a token that has ended: %v", err)
	}
	propose(t, b, &catalog.DeleteVhost{Name: "/"})
	if why := <-ends; why.Text != "vhost '/' is deleted" {
		t.Errorf("without a virtual host: %v", why)
	}
}

// TestChecksCostNothing: a permission is looked up without an allocation: who publishes to exchanges by turns asks for each message.
func TestChecksCostNothing(t *testing.T) {
	b := newBroker(t)
	view, u := b.cat.View(), User{Name: "guest"}
	if n := testing.AllocsPerRun(100, func() {
		if permits(view, u, "/", auth.Write, exchangeResource("")) != nil || u.enters(view, "/") != nil || u.rights(view).keys("/", "amq.topic") != nil {
			t.Error("guest may not publish")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
