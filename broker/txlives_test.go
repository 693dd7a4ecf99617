package broker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// A transaction whose messages were routed to a queue that goes on in another life before the commit brings them to that, whichever queue coordinates.
func TestTxOfAQueueThatGoesOn(t *testing.T) {
	for _, body := range []string{"m", "a longer one, so that its queue coordinates"} {
		b := newBroker(t)
		do := func(cmd catalog.Command) catalog.Result {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r, err := b.cat.Propose(ctx, cmd)
			if err != nil {
				t.Fatalf("%T: %v", cmd, err)
			}
			return r
		}
		atNewestLevel(t, b)
		lost := []catalog.NodeID{"n2/uuid", "n3/uuid"}
		for _, n := range lost {
			do(&catalog.RegisterNode{ID: n})
		}
		members := append(slices.Clone(lost), testNode)
		made := do(&catalog.DeclareQueue{Queue: catalog.Queue{Vhost: "/", Name: "q", Durable: true, Kind: catalog.Replicated, Members: members, Preferred: testNode}})
		c := dial(t, b)
		c.declare("other", nil)
		c.ch.TxSelect()
		for _, queue := range []string{"q", "other"} {
			text := "other"
			if queue == "q" {
				text = body
			}
			if _, routed, err := c.publish("", queue, text, nil); err != nil || !routed {
				t.Fatal(routed, err)
			}
		}
		for _, n := range lost {
			do(&catalog.NodeDown{ID: n, Incarnation: b.cat.View().Node(n).Incarnation, AtMillis: 1})
		}
		now := do(&catalog.RecoverQueue{ID: made.ID, Survivors: []catalog.NodeID{testNode}, Lost: lost, IfSettings: b.cat.View().QueueByID(made.ID).Settings})
		for end := time.Now().Add(30 * time.Second); b.queues.leader(now.ID) == nil; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nobody leads it")
			}
		}
		if err := c.ch.TxCommit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		reader := dial(t, b)
		if d := reader.eventually("q"); string(d.Body) != body {
			t.Errorf("got %q", d.Body)
		}
		if d := reader.eventually("other"); string(d.Body) != "other" {
			t.Errorf("got %q", d.Body)
		}
	}
}
