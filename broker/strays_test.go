package broker

import (
	"testing"

	"github.com/warrenmq/warren/catalog"
)

// TestStrays: what a node is given for a queue that is gone, by its old copy of the catalog, is confirmed only if no other queue has the name.
func TestStrays(t *testing.T) {
	declared := &catalog.DeclareQueue{Queue: catalog.Queue{
		Vhost: "/", Name: "q", Durable: true, Kind: catalog.Replicated, Members: []catalog.NodeID{testNode}, Preferred: testNode,
	}}
	for name, tc := range map[string]struct {
		exchange  string
		mandatory bool
		then      []catalog.Command
		away      bool // the catalog's leader cannot be reached from then on
		refused   bool
	}{
		"deleted":                        {},
		"declared anew":                  {then: []catalog.Command{declared}, refused: true},
		"declared anew, one of two":      {exchange: "amq.fanout", then: []catalog.Command{declared}, refused: true},
		"deleted, one of two":            {exchange: "amq.fanout"},
		"deleted, mandatory":             {mandatory: true, refused: true},
		"deleted, one of two, mandatory": {exchange: "amq.fanout", mandatory: true},
		"the catalog is out of reach":    {away: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			late, c, _ := lateRig(t)
			late.follows = true
			c.declare("q", nil)
			c.declare("stays", nil)
			c.bind(Binding{Source: "amq.fanout", Destination: "q"})
			c.bind(Binding{Source: "amq.fanout", Destination: "stays"})
			old := late.View()
			late.hold(old)
			late.b.queues.dismiss(late.b.queues.get(old.Queue("/", "q").ID)) // its leader, elsewhere, knows already
			for _, cmd := range append([]catalog.Command{&catalog.DeleteQueue{Vhost: "/", Name: "q"}}, tc.then...) {
				if _, err := late.Catalog.Propose(t.Context(), cmd); err != nil {
					t.Fatal(err)
				}
			}
			tag, routed, err := c.publishes(&Publish{Exchange: tc.exchange, Key: "q", Body: []byte("m"), Mandatory: tc.mandatory})
			if err != nil || !routed {
				t.Fatalf("publish: routed %v, %v", routed, err)
			}
			late.away = tc.away
			late.hold(nil)
			late.b.queues.changed()
			c.await("confirm", func() bool { _, ok := c.confirmed[tag]; return ok })
			if got := c.confirmed[tag]; got.Refused != tc.refused || got.Deleted != tc.refused {
				t.Errorf("refused %v, as deleted %v, want %v", got.Refused, got.Deleted, tc.refused)
			}
			if cf := c.put("stays", "next", nil); cf.Refused || cf.Deleted {
				t.Error("another queue's message is refused")
			}
		})
	}
}
