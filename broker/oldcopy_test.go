package broker

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/queue/wire"
)

// TestOldCopyOfAQueue: whoever uses a queue by its name through a node whose copy of the catalog has a former one of that name, perhaps of
// somebody else's, uses the one that is there.
func TestOldCopyOfAQueue(t *testing.T) {
	for former, d := range map[string]QueueDeclare{
		"another's": {Name: "q", Exclusive: true},
		"a former":  {Name: "q", Durable: true},
	} {
		for name, use := range map[string]func(c *client) error{
			"consume": func(c *client) error {
				_, err := c.ch.Consume(c.t.Context(), Consume{Queue: "q", Tag: "tag"})
				return err
			},
			"get": func(c *client) error {
				_, _, err := c.ch.Get(c.t.Context(), "q", true)
				return err
			},
			"purge": func(c *client) error {
				_, err := c.conn.PurgeQueue(c.t.Context(), "q")
				return err
			},
			"passive": func(c *client) error {
				_, err := c.conn.DeclareQueue(c.t.Context(), QueueDeclare{Name: "q", Passive: true})
				return err
			},
			"peek": func(c *client) error {
				_, err := c.conn.b.Peek(c.t.Context(), User{Name: "guest"}, "/", "q", Peek{State: "ready", Count: 1})
				return err
			},
			"dead letters": func(c *client) error {
				_, err := c.conn.b.DeadLetters(c.t.Context(), User{Name: "guest"}, "/", "q")
				return err
			},
			"redrive": func(c *client) error {
				_, err := c.conn.b.StartRedrive(c.t.Context(), User{Name: "guest"}, "/", "q", Redrive{})
				return err
			},
			"release": func(c *client) error {
				_, err := c.conn.b.ReleaseParked(c.t.Context(), User{Name: "guest"}, "/", "q")
				return err
			},
			"find": func(c *client) error {
				info, err := c.conn.b.FindQueue(c.t.Context(), "/", "q")
				if err == nil && info.Error != "" {
					c.t.Errorf("%+v", info)
				}
				return err
			},
			"outbox": func(c *client) error {
				_, err := c.conn.b.Outbox(c.t.Context(), "/", "q")
				return err
			},
			"pause": func(c *client) error {
				if err := c.conn.pauseQueue(c.t.Context(), "q", true); err != nil {
					return err
				}
				if q := c.conn.b.cat.(*lateCatalog).Catalog.View().Queue("/", "q"); !q.Paused {
					c.t.Error("it is not paused")
				}
				return nil
			},
			"bind": func(c *client) error {
				return c.conn.Bind(c.t.Context(), Binding{Source: "amq.fanout", Destination: "q"})
			},
			"delete": func(c *client) error {
				_, err := c.conn.DeleteQueue(c.t.Context(), "q", false, false)
				if err == nil && c.conn.b.cat.(*lateCatalog).Catalog.View().Queue("/", "q") != nil {
					c.t.Error("it is still there")
				}
				return err
			},
		} {
			t.Run(name+" "+former, func(t *testing.T) {
				late, c, other := lateRig(t)
				late.follows = true
				if _, err := other.conn.DeclareQueue(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				old := late.View()
				late.hold(old)
				late.b.queues.dismiss(late.b.queues.get(old.Queue("/", "q").ID)) // its leader, elsewhere, knows already
				for _, cmd := range []catalog.Command{
					&catalog.DeleteQueue{Vhost: "/", Name: "q"},
					&catalog.DeclareQueue{Queue: catalog.Queue{
						Vhost: "/", Name: "q", Durable: true, Kind: catalog.Replicated, Members: []catalog.NodeID{testNode}, Preferred: testNode,
					}},
				} {
					if _, err := late.Catalog.Propose(t.Context(), cmd); err != nil {
						t.Fatal(err)
					}
				}
				time.AfterFunc(100*time.Millisecond, func() {
					late.hold(nil)
					late.b.queues.changed()
				})
				if err := use(c); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A purge through a node whose copy of the catalog has a former queue of the name is one of the queue that is there, also if its leader has been asked in vain
// for long: it is not answered for the former one.
func TestPurgeOfAFormerQueue(t *testing.T) {
	late, c, other := lateRig(t)
	other.declare("q", nil)
	old := late.View()
	late.hold(old)
	id := old.Queue("/", "q").ID
	late.b.queues.dismiss(late.b.queues.get(id)) // its leader, elsewhere, knows already
	var now uint64
	for _, cmd := range []catalog.Command{
		&catalog.DeleteQueue{Vhost: "/", Name: "q"},
		&catalog.DeclareQueue{Queue: catalog.Queue{
			Vhost: "/", Name: "q", Durable: true, Kind: catalog.Replicated, Members: []catalog.NodeID{testNode}, Preferred: testNode,
		}},
	} {
		res, err := late.Catalog.Propose(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		now = res.ID
	}
	time.AfterFunc(100*time.Millisecond, func() {
		late.hold(nil)
		late.b.queues.changed()
	})
	if _, err := c.conn.PurgeQueue(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	s := late.b.streamByID(now)
	if s == nil {
		t.Fatal("the queue that is there was not asked")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == 1 {
		t.Error("the queue that is there was not purged")
	}
}

// A get through a node whose copy of the catalog has a former queue, whose leader says that this has ended, fetches from the queue that is there.
func TestGetFromAFormerQueue(t *testing.T) {
	late, c, other := lateRig(t)
	other.declare("q", nil)
	old := late.View()
	if _, err := other.conn.DeleteQueue(t.Context(), "q", false, false); err != nil {
		t.Fatal(err)
	}
	other.declare("q", nil)
	other.put("q", "new", nil)
	q := old.Queue("/", "q")
	c.await("the end", func() bool { return late.b.hasLeft(q.ID) && late.b.streamByID(q.ID) == nil })
	late.hold(old)
	former := late.b.stream(q)
	asked := make(chan error, 1)
	go func() {
		d, _, err := c.ch.Get(t.Context(), "q", false)
		if err == nil && (d == nil || string(d.Body) != "new") {
			t.Errorf("got %v", d)
		}
		asked <- err
	}()
	var no uint64
	c.await("the question", func() bool {
		former.mu.Lock()
		defer former.mu.Unlock()
		for n := range former.requests {
			no = n
		}
		return no > 0
	})
	former.detachedMsg(&wire.Detached{Queue: former.id, No: wire.ConsumerNo(no), Gone: true})
	if err := <-asked; err != nil {
		t.Error(err)
	}
}
