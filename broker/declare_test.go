package broker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	away     bool   // the catalog's leader cannot be reached
	follows  bool   // a proposal that has ended is in the copy, as it is in a catalog's
	declared int    // proposals of queues
	behind   func() // called once, when the next of them has been applied
	read     func() // called once, when the copy was brought up to date
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
	if c.away {
		return context.DeadlineExceeded
	}
	err := c.Catalog.ReadIndex(ctx)
	c.hold(nil)
	c.mu.Lock()
	f := c.read
	c.read = nil
	c.mu.Unlock()
	if f != nil {
		f()
	}
	return err
}

func (c *lateCatalog) hold(v *catalog.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = v
}

func (c *lateCatalog) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	res, err := c.Catalog.Propose(ctx, cmd)
	if c.follows {
		c.hold(nil)
	}
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

// TestDeclareAfterANodeHasJoined: a queue gets the members that the cluster has for it, also from a node that has not heard of the newest.
func TestDeclareAfterANodeHasJoined(t *testing.T) {
	queue := QueueDeclare{Name: "q", Durable: true}
	for name, declare := range map[string]func(context.Context, *client){
		"queue":         func(ctx context.Context, c *client) { _, _ = c.conn.DeclareQueue(ctx, queue) },
		"defined queue": func(ctx context.Context, c *client) { _, _, _ = c.conn.b.DefineQueue(ctx, "/", queue) },
		"exchange": func(ctx context.Context, c *client) {
			_ = c.conn.DeclareExchange(ctx, ExchangeDeclare{Name: "x", Type: "x-delayed-message", Durable: true, Arguments: table("x-delayed-type", "fanout")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			late, c, _ := lateRig(t)
			atNewestLevel(t, late.b)
			late.hold(late.Catalog.View())
			for _, id := range []catalog.NodeID{secondNode, thirdNode} {
				if _, err := late.Propose(t.Context(), &catalog.RegisterNode{ID: id}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the queue has no majority here, and no leader
			defer cancel()
			declare(ctx, c)
			found := 0
			for q := range late.Catalog.View().AllQueues() {
				found++
				if len(q.Members) != 3 || q.Size != 0 {
					t.Errorf("the queue has members %v, size %d", q.Members, q.Size)
				}
			}
			if found != 1 {
				t.Errorf("%d queues", found)
			}
		})
	}
}

// fasterCatalog is one where somebody is faster with a command than the next one that is proposed.
type fasterCatalog struct {
	Catalog
	first atomic.Pointer[catalog.Command]
	asked atomic.Int32
}

// by has a command applied right before the next one.
func (c *fasterCatalog) by(cmd catalog.Command) { c.first.Store(&cmd) }

func (c *fasterCatalog) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	c.asked.Add(1)
	if first := c.first.Swap(nil); first != nil {
		if _, err := c.Catalog.Propose(ctx, *first); err != nil {
			return catalog.Result{}, err
		}
	}
	return c.Catalog.Propose(ctx, cmd)
}

// TestDeclareWhileANodeLeaves: a queue, and one of a delayed exchange, that would get a member which is forgotten while the declaration is on its way goes to the others.
func TestDeclareWhileANodeLeaves(t *testing.T) {
	for _, what := range []string{"queue", "exchange", "defined queue", "defined exchange"} {
		t.Run(what, func(t *testing.T) {
			var faster *fasterCatalog
			b := newBrokerBehind(t, func(c Catalog) Catalog {
				faster = &fasterCatalog{Catalog: c}
				return faster
			})
			atNewestLevel(t, b)
			for _, id := range []catalog.NodeID{secondNode, thirdNode} {
				if _, err := b.cat.Propose(t.Context(), &catalog.RegisterNode{ID: id}); err != nil {
					t.Fatal(err)
				}
			}
			c := dial(t, b)
			faster.by(&catalog.ForgetNode{ID: thirdNode})
			faster.asked.Store(0)
			queue := QueueDeclare{Name: "q", Durable: true}
			x := ExchangeDeclare{Name: "x", Type: "x-delayed-message", Durable: true, Arguments: table("x-delayed-type", "fanout")}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the queue has no majority here, and no leader
			defer cancel()
			var err error
			switch what {
			case "queue":
				_, _ = c.conn.DeclareQueue(ctx, queue)
			case "exchange":
				err = c.conn.DeclareExchange(ctx, x)
			case "defined queue":
				_, _, err = b.DefineQueue(ctx, "/", queue)
			default:
				_, _, err = b.DefineExchange(ctx, "/", x)
			}
			if err != nil {
				t.Error(err)
			}
			found := 0
			for q := range b.cat.View().AllQueues() {
				found++
				if slices.Contains(q.Members, thirdNode) || len(q.Members) != 2 || q.Size != 3 || q.FirstLeader != "" && q.FirstLeader != q.Preferred {
					t.Errorf("the queue is %+v", q)
				}
			}
			if found != 1 || faster.asked.Load() != 2 {
				t.Errorf("%d queues, after %d commands", found, faster.asked.Load())
			}
		})
	}
}

// TestNothingIsPlacedWhereANodeLeaves: a queue gets no member on a node that goes for good, alive or not, though it has too few then; it gets another one when there is a
// node for it. A node that is only drained is better than none.
func TestNothingIsPlacedWhereANodeLeaves(t *testing.T) {
	for state, want := range map[catalog.NodeState]int{catalog.NodeRegular: 3, catalog.NodeDraining: 3, catalog.NodeLeaving: 2} {
		t.Run(state.String(), func(t *testing.T) {
			b := newBroker(t)
			atNewestLevel(t, b)
			for _, id := range []catalog.NodeID{secondNode, thirdNode} {
				if _, err := b.cat.Propose(t.Context(), &catalog.RegisterNode{ID: id}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := b.cat.Propose(t.Context(), &catalog.SetNodeState{ID: thirdNode, State: state}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.DefineQueue(t.Context(), "/", QueueDeclare{Name: "q", Durable: true}); err != nil {
				t.Fatal(err)
			}
			size := map[int]uint64{3: 0, 2: 3}[want] // what it should have, if that is more
			if q := b.cat.View().Queue("/", "q"); len(q.Members) != want || q.Size != size || slices.Contains(q.Members, thirdNode) != (want == 3) {
				t.Errorf("the queue is %+v", q)
			}
		})
	}
}

// What is void is undefined, in RabbitMQ's words.
func TestUnlikeAVoid(t *testing.T) {
	c := dial(t, newBroker(t))
	c.declare("q", nil)
	_, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "q", Durable: true, Arguments: table("x-expires", nil)})
	wantKind(t, err, PreconditionFailed, "inequivalent arg 'x-expires' for queue 'q' in vhost '/': received the value 'undefined' of type 'void' but current is none")
}
