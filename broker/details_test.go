package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/stats"
)

// What a node tells of its queues follows their heads, their lengths and their owners.
func TestQueueDetails(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", nil)
	if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "mine", Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	view := b.cat.View()
	q, mine := view.Queue("/", "q").ID, view.Queue("/", "mine").ID
	detail := func(id uint64) QueueDetail {
		t.Helper()
		list := b.QueueDetails([]uint64{id, 999_999})
		if len(list) != 1 || list[0].ID != id || list[0].Session == 0 || list[0].Since > time.Now().UnixMilli() || list[0].Since < time.Now().Add(-time.Hour).UnixMilli() {
			t.Fatalf("%+v", list)
		}
		return list[0]
	}
	empty := detail(q)
	if empty.HeadTimestamp != nil || empty.Memory <= 0 || empty.Owner != nil {
		t.Errorf("%+v", empty)
	}
	if d := detail(mine); d.Owner != c.conn.info.Peer || d.OwnerLocal != c.conn.info.Local {
		t.Errorf("%+v", d)
	}
	stamped := func(at uint64) amqp.RawProperties {
		var p amqp.Properties
		p.SetTimestamp(amqp.Timestamp(at))
		return p.AppendTo(nil)
	}
	c.put("q", "first", stamped(1000))
	c.put("q", "second", stamped(1001))
	c.put("q", "third", nil)
	head := func(want uint64) {
		t.Helper()
		c.await("the head", func() bool {
			d := detail(q)
			return want == 0 && d.HeadTimestamp == nil || d.HeadTimestamp != nil && *d.HeadTimestamp == want
		})
	}
	head(1000)
	c.consume("q", 0)
	ds := c.take(3)
	head(1000) // held, but there
	c.settle(fsm.Ack, ds[0])
	head(1001)
	c.settle(fsm.Ack, ds[1])
	head(0)
	for range 3000 {
		if _, _, err := c.publish("", "mine", "0123456789", nil); err != nil {
			t.Fatal(err)
		}
	}
	c.await("memory", func() bool { return detail(mine).Memory > empty.Memory+30_000 })
}

// A queue whose consumer has as much as it may hold is blocked, and that is no use of it.
func TestBlocked(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", nil)
	id := b.cat.View().Queue("/", "q").ID
	blocked := func() (ms uint64) {
		b.Sample(func(k stats.Key, s *stats.Set) {
			if k == (stats.Key{Kind: stats.Led, ID: id}) {
				ms = s[stats.Blocked]
			}
		})
		return ms
	}
	c.consume("q", 1)
	c.put("q", "1", nil)
	ds := c.take(1)
	c.await("blocked", func() bool { return blocked() >= 20 })
	c.settle(fsm.Ack, ds[0])
	c.await("free again", func() bool {
		before := blocked()
		time.Sleep(5 * time.Millisecond)
		return blocked() == before
	})
}

// TestQueueMemory: what queues take grows with their messages, and of those in memory only by the messages themselves.
func TestQueueMemory(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("kept", nil)
	if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "fleeting"}); err != nil {
		t.Fatal(err)
	}
	c.put("kept", strings.Repeat("x", 1<<20), nil)
	before := b.QueueMemory()
	if before.Replicas == 0 || before.Leaders == 0 {
		t.Errorf("%+v", before)
	}
	c.put("fleeting", strings.Repeat("x", 1<<20), nil)
	if m := b.QueueMemory(); m.Messages-before.Messages < 1<<20 || m.Replicas < before.Replicas || m.Replicas > 1<<20 {
		t.Errorf("%+v, before %+v", m, before)
	}
}
