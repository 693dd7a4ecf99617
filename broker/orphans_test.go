package broker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// stuckCatalog takes no changes while it is stuck, but what it was asked for by then it may take later.
type stuckCatalog struct {
	Catalog
	stuck    atomic.Bool
	late     atomic.Bool // declarations are taken and their outcome is not told
	refusals atomic.Int64
}

var errStuck = errors.New("no majority")

func (c *stuckCatalog) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	if c.stuck.Load() {
		c.refusals.Add(1)
		return catalog.Result{}, errStuck
	}
	res, err := c.Catalog.Propose(ctx, cmd)
	if _, declares := cmd.(*catalog.DeclareQueue); declares && err == nil && c.late.Load() {
		return catalog.Result{}, errStuck
	}
	return res, err
}

func stuckRig(t *testing.T) (*Broker, *stuckCatalog) {
	t.Helper()
	cat := &stuckCatalog{}
	return newBrokerBehind(t, func(c Catalog) Catalog { cat.Catalog = c; return cat }), cat
}

// exclusively declares exclusive queues.
func (c *client) exclusively(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if _, err := c.conn.DeclareQueue(c.t.Context(), QueueDeclare{Name: name, Exclusive: true}); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (b *Broker) deletesOrphans() bool {
	b.orphans.mu.Lock()
	defer b.orphans.mu.Unlock()
	return b.orphans.deletes
}

// gone waits until no queue of those names is there, nor anything at work for them.
func (c *client) gone(names ...string) {
	c.t.Helper()
	b := c.conn.b
	c.await("end of exclusive queues", func() bool {
		return !b.deletesOrphans() &&
			!slices.ContainsFunc(names, func(name string) bool { return b.cat.View().Queue("/", name) != nil })
	})
}

// TestExclusiveQueuesGoWhenTheCatalogCan: exclusive queues whose connection ended while the catalog had no majority go as soon as
// it has one, and the end of the connection waits for one of them only.
func TestExclusiveQueuesGoWhenTheCatalogCan(t *testing.T) {
	b, cat := stuckRig(t)
	c, other := dial(t, b), dial(t, b)
	names := []string{"a", "b", "c"}
	c.exclusively(names...)
	cat.stuck.Store(true)
	c.conn.Close(t.Context())
	c.await("more attempts", func() bool { return cat.refusals.Load() >= 3 })
	if b.cat.View().Queue("/", "b") == nil {
		t.Fatal("a queue went without the catalog")
	}
	cat.stuck.Store(false)
	other.gone(names...)
	other.exclusively(names...)
	other.conn.Close(t.Context())
	other.gone(names...)
}

// TestExclusiveQueuesGoAfterTheTimeOfTheEnd: what is not deleted when the end of a connection has taken as long as it may is
// deleted after it.
func TestExclusiveQueuesGoAfterTheTimeOfTheEnd(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.exclusively("a", "b", "c")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c.conn.Close(ended)
	c.gone("a", "b", "c")
}

// TestExclusiveQueueOfUnknownOutcome: a queue whose declarer was told of a failure belongs to its connection all the same, if the
// catalog makes it, and goes with it or after it.
func TestExclusiveQueueOfUnknownOutcome(t *testing.T) {
	b, cat := stuckRig(t)
	for _, open := range []bool{true, false} {
		c := dial(t, b)
		cat.late.Store(true)
		if !open {
			c.conn.Close(t.Context())
		}
		if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "q", Exclusive: true}); err == nil {
			t.Fatal("no failure")
		}
		cat.late.Store(false)
		if open {
			c.await("the queue is here", func() bool { return b.queues.get(b.cat.View().Queue("/", "q").ID) != nil })
			if q := b.cat.View().Queue("/", "q"); q == nil || b.deletesOrphans() {
				t.Error("it went before its connection")
			}
			c.conn.Close(t.Context())
		}
		c.gone("q")
	}
}

// TestOwnerlessQueueMayBeDeleted: an exclusive queue whose connection has ended is nobody's, also one of a node that has started anew.
func TestOwnerlessQueueMayBeDeleted(t *testing.T) {
	b, cat := stuckRig(t)
	c, other := dial(t, b), dial(t, b)
	c.exclusively("q")
	if _, err := other.conn.DeleteQueue(t.Context(), "q", false, false); err == nil {
		t.Error("deleted while its connection is open")
	}
	q := *b.cat.View().Queue("/", "q")
	if b.ownerless(&q) {
		t.Error("its connection is open")
	}
	cat.stuck.Store(true)
	c.conn.Close(t.Context())
	if !b.ownerless(&q) {
		t.Error("its connection has ended")
	}
	_, err := other.conn.DeleteQueue(t.Context(), "q", false, false)
	if e, ok := errors.AsType[*Error](err); !ok || e.Kind == ResourceLocked {
		t.Errorf("%v", err) // the catalog is still stuck
	}
	cat.stuck.Store(false)
	other.mustDelete("q")
	other.gone("q")

	q.Owner.Node = "n2/uuid"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := cat.Propose(ctx, &catalog.RegisterNode{ID: q.Owner.Node})
	if err != nil {
		t.Fatal(err)
	}
	q.Owner.Incarnation = res.ID
	if b.ownerless(&q) {
		t.Error("its node is there")
	}
	q.Owner.Incarnation--
	if !b.ownerless(&q) {
		t.Error("its node has started anew")
	}
}
