package broker

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/policy"
)

func TestStateOf(t *testing.T) {
	three := []catalog.NodeID{"a/1", "b/2", "c/3"}
	for _, tc := range []struct {
		members []catalog.NodeID
		wanted  []catalog.NodeID
		online  int
		want    string
	}{
		{three, nil, 3, "running"},
		{three, nil, 2, "running"},
		{three, nil, 1, "minority"},
		{three, nil, 0, "down"},
		{three[:2], nil, 1, "minority"},
		{three[:1], nil, 1, "running"},
		{three[:1], nil, 0, "down"},
		{three, three[:1], 1, "running"}, // the others may be learners yet
		{three, three[:1], 0, "down"},
	} {
		if got := stateOf(&catalog.Queue{Members: tc.members, Wanted: tc.wanted}, tc.online); got != tc.want {
			t.Errorf("%d of %v online, wanted %v: %s, want %s", tc.online, tc.members, tc.wanted, got, tc.want)
		}
	}
}

// TestWithoutMajority: what cannot be reached is counted, with the queue of a delayed exchange, and without what lives in memory.
func TestWithoutMajority(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("durable", amqp.Table{{Name: "x-queue-type", Value: "quorum"}})
	if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "memory", Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	if n := b.WithoutMajority(); n != 0 {
		t.Errorf("%d queues without a majority, want none", n)
	}
	b.cfg.Online = func(string) bool { return false }
	if n := b.WithoutMajority(); n != 1 {
		t.Errorf("%d queues without a majority, want one", n)
	}
	// Nobody can tell of dead letters of those that may have some.
	if list := b.UnknownOutboxes(); len(list) != 0 {
		t.Errorf("dead letters of %v are unknown: it has none", list)
	}
	b.cfg.Online = func(string) bool { return true }
	c.declare("letters", amqp.Table{{Name: "x-queue-type", Value: "quorum"}, {Name: "x-dead-letter-exchange", Value: "dlx"}})
	if list := b.UnknownOutboxes(); len(list) != 0 {
		t.Errorf("dead letters of %v are unknown: it is online", list)
	}
	b.cfg.Online = func(string) bool { return false }
	if list := b.UnknownOutboxes(); len(list) != 1 || list[0].Queue != "letters" || list[0].VHost != "/" {
		t.Errorf("dead letters of %v are unknown, want those of letters", list)
	}
}

// TestOutlineQueuesLooksAtEachNodeOnce: an outline of many queues is what each one's would be, without a question for each member of each.
func TestOutlineQueuesLooksAtEachNodeOnce(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	const queues = 20
	for i := range queues {
		c.declare(fmt.Sprint("q", i), amqp.Table{{Name: "x-queue-type", Value: "quorum"}})
	}
	if _, err := b.PutPolicy(t.Context(), policy.Spec{VHost: "/", Name: "limit", Pattern: "^q1", ApplyTo: policy.All, Definition: amqp.Table{{Name: "max-length", Value: int64(5)}}}); err != nil {
		t.Fatal(err)
	}
	asked := 0
	b.cfg.Online = func(string) bool {
		asked++
		return true
	}
	names := append(b.QueueNames("/"), QueueName{ID: 1 << 40, Name: "gone"})
	var got []QueueInfo
	b.OutlineQueues(names, true, func(i int, info *QueueInfo) {
		if info == nil {
			if names[i].Name != "gone" {
				t.Errorf("%s is gone", names[i].Name)
			}
			return
		}
		got = append(got, *info)
	})
	if asked != 1 || len(got) != queues {
		t.Errorf("%d queues, nodes looked at %d times", len(got), asked)
	}
	policies := 0
	for i := range got {
		if one, ok := b.OutlineQueue(names[i].ID); !ok || !reflect.DeepEqual(one, got[i]) {
			t.Errorf("%+v, alone %+v", got[i], one)
		}
		if got[i].Policy == "limit" {
			policies++
		}
	}
	if policies != 11 {
		t.Errorf("the policy is on %d queues", policies)
	}
	b.OutlineQueues(names, false, func(_ int, info *QueueInfo) {
		if info != nil && (info.Policy != "" || info.State != "running") {
			t.Errorf("%+v", info)
		}
	})
	// Of a queue that was deleted and declared anew meanwhile it is the new one that is described.
	for _, name := range []string{"q0", "q1"} {
		if _, err := c.conn.DeleteQueue(t.Context(), name, false, false); err != nil {
			t.Fatal(err)
		}
	}
	c.declare("q0", nil)
	b.OutlineQueues([]QueueName{names[0], names[1]}, false, func(i int, info *QueueInfo) {
		switch {
		case i == 0 && (info == nil || info.Name != "q0" || info.Type != "classic" || info.ID == names[0].ID):
			t.Errorf("in place of q0: %+v", info)
		case i == 1 && info != nil:
			t.Errorf("deleted: %+v", info)
		}
	})
}
