package broker

import (
	"context"
	"sync"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
)

// lateCatalog is a node's copy that can be held at an old view until it is asked to be up to
// date, and one where somebody is faster than the answer.
type lateCatalog struct {
	Catalog
	b *Broker

	mu       sync.Mutex
	held     *catalog.View
	declared int    // proposals of queues
	behind   func() // called once, when the next of them has been applied
}

func (c *lateCatalog) View() *catalog.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held != nil {
		return c.held
	}
	return c.Catalog.View()
}

func (c *lateCatalog) ReadIndex(ctx context.Context) error {
	err := c.Catalog.ReadIndex(ctx)
	c.hold(nil)
	return err
}

func (c *lateCatalog) hold(v *catalog.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = v
}

func (c *lateCatalog) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	res, err := c.Catalog.Propose(ctx, cmd)
	if _, queue := cmd.(*catalog.DeclareQueue); !queue {
		return res, err
	}
	c.mu.Lock()
	c.declared++
	f := c.behind
	c.behind = nil
	c.mu.Unlock()
	if f != nil {
		f()
	}
	return res, err
}

func lateRig(t *testing.T) (*lateCatalog, *client, *client) {
	late := &lateCatalog{}
	late.b = newBrokerBehind(t, func(c Catalog) Catalog {
		late.Catalog = c
		return late
	})
	return late, dial(t, late.b), dial(t, late.b)
}

func (c *client) mustDelete(queue string) {
	c.t.Helper()
	if _, err := c.conn.DeleteQueue(c.t.Context(), queue, false, false); err != nil {
		c.t.Error(err)
	}
}

func upTo(n int32) QueueDeclare {
	return QueueDeclare{Name: "q", Durable: true, Arguments: table("x-max-length", n)}
}

// A copy of the catalog that still has what was deleted is no reason to refuse a declaration; one
// that is up to date is.
func TestDeclarationIsNotRefusedByAnOldCopy(t *testing.T) {
	late, c, other := lateRig(t)
	declares := func(d QueueDeclare) {
		t.Helper()
		if _, err := c.conn.DeclareQueue(t.Context(), d); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
	refuses := func(d QueueDeclare, want Kind) {
		t.Helper()
		if _, err := c.conn.DeclareQueue(t.Context(), d); err == nil || kindOfRefusal(err) != want {
			t.Errorf("%+v: %v", d, err)
		}
	}
	other.declare("q", table("x-max-length", int32(1)))
	old := late.View()
	other.mustDelete("q")
	late.hold(old)
	declares(upTo(2))
	refuses(upTo(3), PreconditionFailed)
	if q := late.View().Queue("/", "q"); q == nil || !q.Arguments.Equal(upTo(2).Arguments) {
		t.Errorf("there is %+v", q)
	}
	// Somebody else's exclusive queue.
	if _, err := other.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "mine", Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	refuses(QueueDeclare{Name: "mine", Durable: true}, ResourceLocked)
	old = late.View()
	other.mustDelete("mine")
	late.hold(old)
	declares(QueueDeclare{Name: "mine", Durable: true})
	// An exchange.
	x := ExchangeDeclare{Name: "x", Type: "direct", Durable: true}
	if err := other.conn.DeclareExchange(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	old = late.View()
	if err := other.conn.DeleteExchange(t.Context(), "x", false); err != nil {
		t.Fatal(err)
	}
	late.hold(old)
	x.Type = "topic"
	if err := c.conn.DeclareExchange(t.Context(), x); err != nil {
		t.Error(err)
	}
	x.Type = "fanout"
	if err := c.conn.DeclareExchange(t.Context(), x); kindOfRefusal(err) != PreconditionFailed {
		t.Errorf("as another type: %v", err)
	}
}

// A queue that is deleted, or deleted and declared otherwise, before its declaration is answered
// was declared, and is not declared again.
func TestDeclarationIsDoneOnce(t *testing.T) {
	late, c, other := lateRig(t)
	// deletes waits until nobody here can tell of the queue.
	deletes := func() {
		id := late.View().Queue("/", "q").ID
		other.mustDelete("q")
		other.await("the replica's end", func() bool { return late.b.queues.get(id) == nil })
	}
	for name, after := range map[string]func(){
		"deleted":                        deletes,
		"deleted and declared otherwise": func() { deletes(); other.declare("q", table("x-max-length", int32(9))) },
	} {
		t.Run(name, func(t *testing.T) {
			late.mu.Lock()
			late.declared, late.behind = 0, after
			late.mu.Unlock()
			ok, err := c.conn.DeclareQueue(t.Context(), upTo(1))
			if err != nil || ok != (QueueOK{Name: "q"}) {
				t.Errorf("%+v: %v", ok, err)
			}
			var args amqp.Table
			want := 1
			if name != "deleted" {
				args, want = table("x-max-length", int32(9)), 2
			}
			q := late.View().Queue("/", "q")
			if (q != nil) != (args != nil) || q != nil && !q.Arguments.Equal(args) {
				t.Errorf("there is %+v", q)
			}
			late.mu.Lock()
			declared := late.declared
			late.mu.Unlock()
			if declared != want {
				t.Errorf("declared %d times", declared)
			}
			if q != nil {
				other.mustDelete("q")
			}
		})
	}
}
