package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue/leader"
)

// TestDeletedByForce: a queue whose only replica is damaged is deleted, which frees its name, and cannot end. By force it ends, and another of its name that has a
// leader ends as always.
func TestDeletedByForce(t *testing.T) {
	d := &diary{damaged: 1 << 62, alone: true, memGroups: &memGroups{logs: map[uint64]*leader.MemLog{}}}
	b := newBrokerTuned(t, func(c Catalog) Catalog { return c }, d, func(c *Config) { c.QueueTimeout = 400 * time.Millisecond })
	admin := User{Name: "guest"}
	force := func() error {
		_, err := b.ForceDropQueue(t.Context(), admin, "/", "hurt")
		return err
	}
	declare := func() uint64 {
		t.Helper()
		r, err := b.cat.Propose(t.Context(), &catalog.DeclareQueue{Queue: catalog.Queue{Vhost: "/", Name: "hurt", Durable: true, Kind: catalog.Replicated, Members: []catalog.NodeID{testNode}, Preferred: testNode}})
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	if err := force(); !isNotFound(err) {
		t.Errorf("without such a queue: %v", err)
	}
	first := declare()
	d.await(t, "start 0")
	if _, err := b.DropQueue(t.Context(), admin, "/", "hurt", false, false); err != nil {
		t.Fatal(err)
	}
	if q := b.cat.View().QueueByID(first); q == nil || q.State != catalog.Closing || b.cat.View().Queue("/", "hurt") != nil {
		t.Fatalf("it was deleted without its leader, and is %+v", q)
	}
	d.mu.Lock()
	d.damaged = 0
	d.mu.Unlock()
	second := declare()
	d.await(t, "start 0", "follow n1, led by n1")
	leads := func(id uint64) string { return b.leads(t.Context(), b.cat.View().QueueByID(id)) }
	if one, other := leads(first), leads(second); one != "" || !strings.Contains(other, "'n1' leads it") {
		t.Errorf("of the queues %q and %q", one, other)
	}
	if err := force(); err != nil {
		t.Error(err)
	}
	if v := b.cat.View(); v.QueueByID(first) != nil || v.QueueByID(second) != nil {
		t.Errorf("left are %+v and %+v", v.QueueByID(first), v.QueueByID(second))
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		d.mu.Lock()
		deleted := slices.Index(d.lines, "delete") >= 0
		d.mu.Unlock()
		if deleted {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the damaged replica stays")
		}
	}
}

// TestForceGivesUpWhatIsKept: a queue that is to keep its messages until they have a way is deleted by force if it has no leader, and only then.
func TestForceGivesUpWhatIsKept(t *testing.T) {
	keeps := table("x-dead-letter-exchange", "nowhere", "x-dead-letter-on-removal", true, "x-dead-letter-strategy", "at-least-once")
	d := &diary{alone: true, memGroups: &memGroups{logs: map[uint64]*leader.MemLog{}}}
	b := newBrokerTuned(t, func(c Catalog) Catalog { return c }, d, func(c *Config) { c.QueueTimeout = 400 * time.Millisecond })
	c, admin := dial(t, b), User{Name: "guest"}
	c.declare("hurt", keeps)
	c.put("hurt", "kept", nil)
	refused := func(how, want string, err error) {
		t.Helper()
		var e *Error
		if !errors.As(err, &e) || e.Kind != PreconditionFailed || !strings.Contains(e.Text, want) {
			t.Errorf("%s: %v", how, err)
		}
	}
	force := func() (uint32, error) { return b.ForceDropQueue(t.Context(), admin, "/", "hurt") }
	drop := func() error {
		_, err := b.DropQueue(t.Context(), admin, "/", "hurt", false, false)
		return err
	}
	refused("with a leader", "purge this one first", drop())
	_, err := force()
	refused("with a leader, by force", "purge this one first", err)
	id := b.cat.View().Queue("/", "hurt").ID
	b.queues.dismiss(b.queues.get(id))
	refused("without a leader", "delete it by force", drop())
	if n, err := force(); err != nil || n != 0 {
		t.Errorf("%d messages of which nobody can tell, %v", n, err)
	}
	if q := b.cat.View().QueueByID(id); q != nil {
		t.Errorf("left is %+v", q)
	}
}

// TestLeftoversEndByForce: what is left of a queue, and of a delayed exchange's, that were deleted with their vhost or by themselves ends by force if its only replica is
// damaged, each by its own name and nothing else with it.
func TestLeftoversEndByForce(t *testing.T) {
	d := &diary{damaged: 1 << 62, alone: true, memGroups: &memGroups{logs: map[uint64]*leader.MemLog{}}}
	b := newBrokerTuned(t, func(c Catalog) Catalog { return c }, d, func(c *Config) { c.QueueTimeout = 400 * time.Millisecond })
	ctx, admin, here := t.Context(), User{Name: "guest"}, []catalog.NodeID{testNode}
	propose := func(c catalog.Command) uint64 {
		t.Helper()
		r, err := b.cat.Propose(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	queue := func(vhost, name string) uint64 {
		t.Helper()
		return propose(&catalog.DeclareQueue{Queue: catalog.Queue{Vhost: vhost, Name: name, Durable: true, Kind: catalog.Replicated, Members: here, Preferred: testNode}})
	}
	delays := func(vhost, name string) uint64 {
		t.Helper()
		propose(&catalog.DeclareExchange{
			Exchange: catalog.Exchange{Vhost: vhost, Name: name, Type: exchange.Delayed, Durable: true, Arguments: table("x-delayed-type", "direct")},
			Members:  here, Preferred: testNode,
		})
		return b.cat.View().Exchange(vhost, name).DelayQueue
	}
	left := func(when string, ids ...uint64) {
		t.Helper()
		var got []uint64
		for q := range b.cat.View().AllQueues() {
			got = append(got, q.ID)
		}
		slices.Sort(got)
		if !slices.Equal(got, ids) {
			t.Fatalf("%s: left are %v, want %v", when, got, ids)
		}
	}
	none := func(how string, err error) {
		t.Helper()
		if !isNotFound(err) {
			t.Errorf("%s: %v", how, err)
		}
	}
	propose(&catalog.PutVhost{Vhost: catalog.Vhost{Name: "v"}})
	inV, delaysInV := queue("v", "same"), delays("v", "same")
	here1, delaysHere := queue("/", "same"), delays("/", "same")
	none("a delayed exchange that is there", b.ForceDropDelays(ctx, admin, "/", "same"))
	propose(&catalog.DeleteVhost{Name: "v"})
	if err := b.DropExchange(ctx, admin, "/", "same", false); err != nil {
		t.Fatal(err)
	}
	again := delays("/", "same")
	left("all that was deleted", inV, delaysInV, here1, delaysHere, again)
	var listed []string
	closing, err := b.Closings(ctx)
	for _, x := range closing {
		listed = append(listed, fmt.Sprintf("%d %s %s/%s %s %q", x.ID, x.VHost, x.Queue, x.DelayOf, x.State, x.Leader))
	}
	want := []string{fmt.Sprintf(`%d v same/ running ""`, inV), fmt.Sprintf(`%d v /same running ""`, delaysInV), fmt.Sprintf(`%d / /same running ""`, delaysHere)}
	if err != nil || !slices.Equal(listed, want) || b.Closing() != len(want) {
		t.Errorf("listed are %q, %v, and %d counted, want %q", listed, err, b.Closing(), want)
	}
	if err := b.ForceDropDelays(ctx, admin, "/", "same"); err != nil {
		t.Error(err)
	}
	left("the deleted exchange", inV, delaysInV, here1, again)
	none("of an exchange once more", b.ForceDropDelays(ctx, admin, "/", "same"))
	_, err = b.ForceDropQueue(ctx, admin, "v", "other")
	none("another queue of the vhost", err)
	if _, err := b.ForceDropQueue(ctx, admin, "v", "same"); err != nil {
		t.Error(err)
	}
	left("the queue of the vhost", delaysInV, here1, again)
	if err := b.ForceDropDelays(ctx, admin, "v", "same"); err != nil {
		t.Error(err)
	}
	left("the exchange of the vhost", here1, again)
	_, err = b.ForceDropQueue(ctx, admin, "v", "same")
	none("once more", err)
}
