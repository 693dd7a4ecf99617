package broker

import (
	"testing"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/queue"
)

// What is left of a queue when its vhost is deleted finds no way into another vhost of that name.
func TestFormerVhostHasNoRoute(t *testing.T) {
	b := newBroker(t)
	const vhost = "again"
	begin := func() *catalog.Queue {
		t.Helper()
		if _, err := b.PutVhost(t.Context(), vhost, VhostSettings{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.PutPermission(t.Context(), vhost, "guest", ".*", ".*", ".*"); err != nil {
			t.Fatal(err)
		}
		conn, err := b.Open(t.Context(), User{Name: "guest"}, vhost, ConnInfo{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"work", "dead"} {
			if _, err := conn.DeclareQueue(t.Context(), QueueDeclare{Name: name, Durable: true}); err != nil {
				t.Fatal(err)
			}
		}
		return b.cat.View().Queue(vhost, "work")
	}
	routes := func(h *hosted) (letters, ways int) {
		targets, _ := h.routeDead(vhost, "", &mover.Letter{Keys: []string{"dead"}})
		way := h.wayOfDead(vhost, "", &queue.Settings{DeadLetter: true, DeadLetterRoutingKey: "dead", DeadLetterKeySet: true})
		return len(targets), len(way.Targets)
	}
	former := b.queues.get(begin().ID)
	if n, w := routes(former); n != 1 || w != 1 {
		t.Fatalf("%d targets, a way to %d", n, w)
	}
	if err := b.DeleteVhost(t.Context(), vhost); err != nil {
		t.Fatal(err)
	}
	now := b.queues.get(begin().ID)
	if n, w := routes(former); n != 0 || w != 0 {
		t.Errorf("of the former vhost: %d targets, a way to %d", n, w)
	}
	if n, w := routes(now); n != 1 || w != 1 {
		t.Errorf("of the new vhost: %d targets, a way to %d", n, w)
	}
}
