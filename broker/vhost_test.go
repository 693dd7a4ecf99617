package broker

import (
	"context"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

func propose(t *testing.T, b *Broker, cmd catalog.Command) {
	t.Helper()
	if _, err := b.cat.Propose(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
}

// Q06: a full vhost refuses new queues, not the ones it has; one that goes makes room.
func TestVhostQueueLimit(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("one", nil)
	c.declare("two", nil)
	propose(t, b, &catalog.PutVhostLimits{Vhost: "/", Limits: catalog.VhostLimits{Queues: auth.LimitOf(2)}})
	_, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "three", Durable: true})
	wantKind(t, err, PreconditionFailed, "cannot declare queue 'three': queue limit in vhost '/' (2) is reached")
	c.declare("two", nil)
	if _, err := c.conn.DeleteQueue(t.Context(), "one", false, false); err != nil {
		t.Fatal(err)
	}
	c.declare("three", nil)
}

// Q07: the vhost's default queue type is that of durable shared queues that name none.
func TestVhostDefaultQueueType(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("before", nil)
	propose(t, b, &catalog.PutVhost{Vhost: catalog.Vhost{Name: "/", DefaultQueueType: "quorum"}})
	for name, tc := range map[string]struct {
		d    QueueDeclare
		want any
	}{
		"durable":     {QueueDeclare{Durable: true}, "quorum"},
		"classic":     {QueueDeclare{Durable: true, Arguments: table("x-queue-type", "classic")}, "classic"},
		"exclusive":   {QueueDeclare{Exclusive: true}, nil},
		"transient":   {QueueDeclare{}, nil},
		"auto-delete": {QueueDeclare{Durable: true, AutoDelete: true}, nil},
	} {
		tc.d.Name = name
		for range 2 { // declared again as before, it is the same
			if _, err := c.conn.DeclareQueue(t.Context(), tc.d); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := b.cat.View().Queue("/", name).Arguments.Get("x-queue-type"); got != tc.want {
			t.Errorf("%s: type %v, want %v", name, got, tc.want)
		}
	}
}

// TestVhostIsChangedTwiceAtOnce: of two tools that change different settings of a vhost at the same time, through whatever nodes, both have
// their way.
func TestVhostIsChangedTwiceAtOnce(t *testing.T) {
	var meanwhile func()
	b := newBrokerBehind(t, func(c Catalog) Catalog { return &changing{c, &meanwhile} })
	atNewestLevel(t, b)
	put := func(s VhostSettings) {
		t.Helper()
		if _, err := b.PutVhost(t.Context(), "v", s); err != nil {
			t.Fatal(err)
		}
	}
	desc, typ, yes := "a description", "quorum", true
	put(VhostSettings{Description: &desc})
	for _, second := range []VhostSettings{{Tags: &[]string{"t"}}, {DefaultQueueType: &typ}, {Protected: &yes}, {}} {
		desc += "!"
		meanwhile = func() { put(VhostSettings{Description: &desc}) }
		put(second)
	}
	h := b.cat.View().Vhost("v")
	if h.Description != "a description!!!!" || len(h.Tags) != 1 || h.DefaultQueueType != "quorum" || !h.Protected {
		t.Errorf("%+v", h)
	}
}

// changing is a catalog in which somebody changes something before the next change.
type changing struct {
	Catalog
	meanwhile *func()
}

func (c *changing) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	if f := *c.meanwhile; f != nil {
		*c.meanwhile = nil
		f()
	}
	return c.Catalog.Propose(ctx, cmd)
}
