package broker

import (
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// loginOf logs a user in whose password is the name.
func loginOf(b *Broker, t *testing.T, name string) (User, error) {
	t.Helper()
	return b.Login(t.Context(), "PLAIN", []byte("\x00"+name+"\x00"+name), Caller{Loopback: true})
}

// TestNobodyIsRefusedByAnOldCopy: whoever was given a user, a password, a virtual host or a permission through another node may use it here although this
// node's copy of the catalog does not have it yet. Without an up-to-date copy nobody is told that there is none; with one, whoever has nothing is refused.
func TestNobodyIsRefusedByAnOldCopy(t *testing.T) {
	user := func(name string) catalog.Command {
		return &catalog.PutUser{User: auth.User{Name: name, PasswordHash: auth.HashPassword(name)}}
	}
	other := &catalog.PutUser{User: auth.User{Name: "new", PasswordHash: auth.HashPassword("old")}}
	none, readOnly := &catalog.PutPermission{Vhost: "/", User: "guest"}, &catalog.PutPermission{Vhost: "/", User: "guest", Read: ".*"}
	permission := func(vhost, user string) catalog.Command {
		return &catalog.PutPermission{Vhost: vhost, User: user, Configure: ".*", Write: ".*", Read: ".*"}
	}
	opened := func(b *Broker, t *testing.T, name, vhost string) error {
		c, err := b.Open(t.Context(), User{Name: name}, vhost, ConnInfo{})
		if err == nil {
			c.Close(t.Context())
		}
		return err
	}
	for _, tc := range []struct {
		name    string
		before  []catalog.Command // what the old copy has
		given   []catalog.Command
		use     func(b *Broker, t *testing.T, guests *client) error
		refused Kind // with an up-to-date copy if it was not given
		unsure  Kind // while the catalog cannot be reached
	}{
		{"user", nil, []catalog.Command{user("new")}, func(b *Broker, t *testing.T, _ *client) error {
			_, err := loginOf(b, t, "new")
			return err
		}, AccessRefused, Unavailable},
		{"password", []catalog.Command{other}, []catalog.Command{user("new")}, func(b *Broker, t *testing.T, _ *client) error {
			_, err := loginOf(b, t, "new")
			return err
		}, AccessRefused, TimedOut},
		{"certificate", nil, []catalog.Command{user("new")}, func(b *Broker, t *testing.T, _ *client) error {
			_, err := b.LoginExternal(t.Context(), "new", nil, Caller{Loopback: true})
			return err
		}, AccessRefused, Unavailable},
		{"token", nil, []catalog.Command{user("new")}, func(b *Broker, t *testing.T, _ *client) error {
			_, err := b.LoginToken(t.Context(), "BEARER", Token{User: "new"}, nil, true)
			return err
		}, AccessRefused, Unavailable},
		{"vhost", nil, []catalog.Command{&catalog.PutVhost{Vhost: catalog.Vhost{Name: "v"}}, permission("v", "guest")}, func(b *Broker, t *testing.T, _ *client) error {
			return opened(b, t, "guest", "v")
		}, NotAllowed, TimedOut},
		{"permission to enter", []catalog.Command{user("new")}, []catalog.Command{permission("/", "new")}, func(b *Broker, t *testing.T, _ *client) error {
			return opened(b, t, "new", "/")
		}, NotAllowed, TimedOut},
		{"permission to declare", []catalog.Command{none}, []catalog.Command{permission("/", "guest")}, func(_ *Broker, t *testing.T, guests *client) error {
			_, err := guests.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "q", Durable: true})
			return err
		}, AccessRefused, TimedOut},
		{"permission to look", []catalog.Command{none}, []catalog.Command{permission("/", "guest")}, func(_ *Broker, t *testing.T, guests *client) error {
			return guests.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "amq.topic", Passive: true})
		}, AccessRefused, TimedOut},
		{"permission to look into a queue", []catalog.Command{none}, []catalog.Command{permission("/", "guest")}, func(b *Broker, t *testing.T, _ *client) error {
			_, err := b.Peek(t.Context(), User{Name: "guest"}, "/", "looked", Peek{State: "ready", Count: 1})
			return err
		}, AccessRefused, TimedOut},
		{"permission to send back", []catalog.Command{readOnly}, []catalog.Command{permission("/", "guest")}, func(b *Broker, t *testing.T, _ *client) error {
			_, err := b.PlanRedrive(t.Context(), User{Name: "guest"}, "/", "looked", Redrive{})
			return err
		}, AccessRefused, TimedOut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			late, guests, _ := lateRig(t)
			guests.declare("looked", nil)
			for _, cmd := range tc.before {
				propose(t, late.b, cmd)
			}
			old := late.View()
			refuses := func(when string, want Kind) {
				t.Helper()
				late.b.lastFresh.Store(0)
				if err := tc.use(late.b, t, guests); err == nil || kindOfRefusal(err) != want {
					t.Errorf("%s: %v", when, err)
				}
			}
			refuses("not given", tc.refused)
			for _, cmd := range tc.given {
				propose(t, late.b, cmd)
			}
			late.hold(old)
			late.away = true
			refuses("given, and the catalog out of reach", tc.unsure)
			late.away = false
			if err := tc.use(late.b, t, guests); err != nil {
				t.Errorf("given: %v", err)
			}
		})
	}
}
