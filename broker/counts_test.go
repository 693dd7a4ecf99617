package broker

import (
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/stats"
)

// What clients do shows in the counters of each object.
func TestCountsOfObjects(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declareFanout("twice")
	c.declare("a", nil)
	c.declare("b", nil)
	for _, q := range []string{"a", "b"} {
		if err := c.conn.Bind(t.Context(), Binding{Source: "twice", Destination: q}); err != nil {
			t.Fatal(err)
		}
	}
	c.put("a", "1", nil)
	for range 3 {
		tag, _, err := c.publish("twice", "", "2", nil)
		if err != nil {
			t.Fatal(err)
		}
		c.await("confirm", func() bool { _, ok := c.confirmed[tag]; return ok })
	}
	c.consume("a", 0)
	ds := c.take(4)
	c.settle(fsm.Ack, ds[0], ds[1])
	c.settle(fsm.RequeueFailed, ds[2])
	c.settle(fsm.Ack, ds[0]) // it is settled
	c.take(1)
	for _, noAck := range []bool{true, false} {
		d, _, err := c.ch.Get(t.Context(), "b", noAck)
		if d == nil || err != nil {
			t.Fatal(d, err)
		}
		if noAck {
			c.ch.Took(d)
		}
	}
	c.declare("empty", nil)
	if d, _, err := c.ch.Get(t.Context(), "empty", false); d != nil || err != nil {
		t.Fatal(d, err)
	}
	c.ch.Flush()

	view := b.cat.View()
	id := func(name string) uint64 { return view.Queue("/", name).ID }
	want := map[stats.Key]stats.Set{
		{Kind: stats.Queue, ID: id("a")}:     {stats.Publish: 4, stats.Deliver: 5, stats.Redeliver: 1, stats.Ack: 2},
		{Kind: stats.Queue, ID: id("b")}:     {stats.Publish: 3, stats.Get: 1, stats.GetNoAck: 1},
		{Kind: stats.Queue, ID: id("empty")}: {stats.GetEmpty: 1},
		{Kind: stats.Led, ID: id("a")}:       {stats.Unacked: 2},
		{Kind: stats.Led, ID: id("b")}:       {stats.Ready: 1, stats.Unacked: 1},
		{Kind: stats.Led, ID: id("empty")}:   {},
		ExchangeKey("/", "twice"):            {stats.PublishIn: 3, stats.PublishOut: 6},
		ExchangeKey("/", ""):                 {stats.PublishIn: 1, stats.PublishOut: 1},
	}
	all := stats.Set{stats.Publish: 4, stats.Confirm: 4, stats.Deliver: 5, stats.Redeliver: 1, stats.Ack: 3, stats.Get: 1, stats.GetNoAck: 1, stats.GetEmpty: 1}
	want[stats.Key{Kind: stats.Channel, ID: c.ch.id}] = all
	all[stats.Ready], all[stats.Unacked] = 1, 3
	want[stats.Key{Kind: stats.VHost, Name: "/"}] = all
	want[stats.Key{Kind: stats.Node}] = all
	read := func() map[stats.Key]stats.Set {
		got := map[stats.Key]stats.Set{}
		b.Sample(func(k stats.Key, s *stats.Set) { got[k] = *s })
		return got
	}
	c.await("settlements", func() bool {
		return read()[stats.Key{Kind: stats.Led, ID: id("a")}] == want[stats.Key{Kind: stats.Led, ID: id("a")}]
	})
	got := read()
	for k, s := range want {
		if got[k] != s {
			t.Errorf("%+v:\n got %v\nwant %v", k, got[k], s)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d objects, want %d: %v", len(got), len(want), got)
	}
	for r := range b.Rows {
		if r.ID == id("a") && (r.Consumers != 1 || r.Ready != 0 || r.Unacked != 2 || r.Bytes != 2 || r.UnackedBytes != 2 || r.Session == 0) {
			t.Errorf("%+v", r)
		}
	}
}

// What a deleted virtual host has counted stays in the node's figures, and in nothing else.
func TestCountsOfDeletedVhost(t *testing.T) {
	b := newBroker(t)
	dial(t, b).declare("q", nil)
	old := b.traffics.of("gone", 7)
	old.received.Add(5)
	for range 3 {
		var node stats.Set
		b.Sample(func(k stats.Key, s *stats.Set) {
			if k.Name == "gone" {
				t.Error("it is still there")
			}
			if k.Kind == stats.Node {
				node = *s
			}
		})
		if node[stats.Publish] != 5 || b.Traffic().Received != 5 {
			t.Errorf("the node has forgotten: %v", node)
		}
	}
	b.exchanges.of("/", "never declared").in.Add(1)
	b.Sample(func(k stats.Key, _ *stats.Set) {
		if k.Kind == stats.Exchange {
			t.Errorf("%+v", k)
		}
	})
	if len(b.traffics.ending) != 0 || len(b.traffics.live) != 1 {
		t.Errorf("%d live, %d ending", len(b.traffics.live), len(b.traffics.ending))
	}
}
