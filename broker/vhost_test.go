package broker

import (
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
