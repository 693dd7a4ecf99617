package dlx

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/queue"
)

func add(o *Outbox, n int) {
	for range n {
		o.Add(queue.Ref{Index: uint64(o.Last()) + 1, Offset: 5, Length: 100}, 90, Expired, 1000)
	}
}

func ignore(Item) {}

// Pending is a window over items of several pages, in the order of their routes.
func TestPendingWindows(t *testing.T) {
	var o Outbox
	add(&o, 3*pageSize)
	for id := o.Last(); id > 0; id-- {
		if !o.Route(id, []uint64{7}) {
			t.Fatalf("item %d was not routed", id)
		}
	}
	for _, c := range []struct {
		after uint64
		limit int
		first uint64
		n     int
	}{{0, 10, 1, 10}, {100, 3, 101, 3}, {uint64(o.Last()) - 2, 10, uint64(o.Last()) - 1, 2}, {uint64(o.Last()), 5, 0, 0}, {1 << 60, 5, 0, 0}, {0, 0, 0, 0}} {
		got := o.Pending(7, c.after, c.limit)
		if len(got) != c.n {
			t.Fatalf("after %d: %d items, want %d", c.after, len(got), c.n)
		}
		for i, p := range got {
			if seq := c.first + uint64(i); p.Seq != seq || uint64(p.Item) != uint64(o.Last())+1-seq || p.Ref.Index != uint64(p.Item) {
				t.Fatalf("after %d: %+v at %d", c.after, p, i)
			}
		}
	}
	o.Done(7, 500, nil, false, ignore)
	if got := o.Pending(7, 0, 1); got[0].Seq != 501 {
		t.Fatalf("first pending %+v", got)
	}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	if o.Pending(8, 0, 9) != nil {
		t.Fatal("an unknown target has items")
	}
}

func TestWaitingPagesThroughItems(t *testing.T) {
	var o Outbox
	add(&o, 10)
	for id := ItemID(2); id <= 10; id += 2 {
		o.Park(id, ParkCycle)
	}
	var ids []ItemID
	for after := ItemID(0); ; {
		items := o.Waiting(ParkedCycle, after, 2)
		if len(items) == 0 {
			break
		}
		for _, it := range items {
			ids = append(ids, it.ID)
			after = it.ID
		}
	}
	if !slices.Equal(ids, []ItemID{2, 4, 6, 8, 10}) {
		t.Fatalf("parked %v", ids)
	}
	if o.Count(Unrouted) != 5 || o.Count(ParkedCycle) != 5 || o.Count(Routed) != 0 || o.Parked(ParkCycle) != 5 || o.Parked(DropCycle) != 0 {
		t.Fatalf("%d unrouted, %d parked", o.Count(Unrouted), o.Count(ParkedCycle))
	}
	if o.Waiting(Routed, 0, 9) != nil || o.Release(HasTargets) != 0 || o.Park(2, ParkUnrouted) || o.Park(1, DropCycle) {
		t.Fatal("something happened that should not")
	}
}

// A routed item cannot be dropped: its target waits for its sequence.
func TestDropLeavesRoutedItems(t *testing.T) {
	var o Outbox
	add(&o, 2)
	o.Route(1, []uint64{7})
	if _, ok := o.Drop(1); ok {
		t.Fatal("a routed item was dropped")
	}
	if it, ok := o.Drop(2); !ok || it.ID != 2 {
		t.Fatalf("dropped %+v, %t", it, ok)
	}
	if _, ok := o.Drop(2); ok || o.Len() != 1 || o.Bytes() != 90 {
		t.Fatalf("%d items, %d bytes", o.Len(), o.Bytes())
	}
}

func TestFrozenOutboxStaysAsItWas(t *testing.T) {
	var o Outbox
	add(&o, pageSize+10)
	for id := ItemID(1); id <= 200; id++ {
		o.Route(id, []uint64{7, 8})
	}
	f := o.Freeze()
	before := slices.Collect(f.All)
	o.Done(7, 200, nil, false, ignore)
	o.Done(8, 100, nil, false, ignore)
	o.Gone(8, 150, nil, ignore)
	o.Park(300, ParkCycle)
	o.Drop(301)
	add(&o, 5)
	if !reflect.DeepEqual(slices.Collect(f.All), before) || f.Len() != pageSize+10 || f.Targets()[0].Pending != 200 {
		t.Fatal("the view changed")
	}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	again, err := Restore(o.Last(), o.Targets(), o.View().All)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Check(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(slices.Collect(again.View().All), slices.Collect(o.View().All)) {
		t.Fatal("the restored outbox differs")
	}
}

func TestRestoreRefusesDamage(t *testing.T) {
	one := Target{Queue: 7, Next: 5, Pending: 1}
	routed := Item{ID: 3, State: Routed, Legs: []Leg{{7, 4}}}
	for name, c := range map[string]struct {
		targets []Target
		items   []Item
		want    string
	}{
		"sequence 0":             {[]Target{{Queue: 7}}, nil, "target 7 with next 0"},
		"more pending than were": {[]Target{{Queue: 7, Next: 1, Pending: 1}}, nil, "1 pending"},
		"target twice":           {[]Target{{Queue: 7, Next: 1}, {Queue: 7, Next: 1}}, nil, "target 7"},
		"falling ids":            {nil, []Item{{ID: 3}, {ID: 2}}, "item 2 after 3"},
		"id above the last":      {nil, []Item{{ID: 30}}, "item 30"},
		"unknown state":          {nil, []Item{{ID: 3, State: 9}}, "state 9"},
		"routed without a leg":   {nil, []Item{{ID: 3, State: Routed}}, "0 legs"},
		"leg of an unrouted one": {[]Target{one}, []Item{{ID: 3, Legs: []Leg{{7, 4}}}}, "1 legs"},
		"leg to nobody":          {nil, []Item{routed}, "unknown target 7"},
		"another number pending": {[]Target{{Queue: 7, Next: 5}}, []Item{routed}, "1 pending, want 0"},
		"a hole":                 {[]Target{one}, []Item{{ID: 3, State: Routed, Legs: []Leg{{7, 3}}}}, "misses sequence"},
		"two legs to one target": {[]Target{{Queue: 7, Next: 5, Pending: 2}}, []Item{{ID: 3, State: Routed, Legs: []Leg{{7, 3}, {7, 4}}}}, "two legs"},
		"the same sequence":      {[]Target{{Queue: 7, Next: 5, Pending: 2}}, []Item{routed, {ID: 4, State: Routed, Legs: []Leg{{7, 4}}}}, "misses sequence"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Restore(20, c.targets, slices.Values(c.items))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Restore(20, []Target{one}, slices.Values([]Item{routed})); err != nil {
		t.Fatal(err)
	}
}

// A part of a transaction is routed when it comes and never again.
func TestRelay(t *testing.T) {
	var o Outbox
	ref := queue.Ref{Index: 1, Offset: 5, Length: 100}
	if id, ok := o.Relay(ref, 90, 1000, []uint64{7, 8}); id != 1 || !ok {
		t.Fatalf("item %d %t", id, ok)
	}
	var left []Item
	o.Gone(7, 0, nil, func(it Item) { left = append(left, it) })
	if len(left) != 0 || o.Count(Routed) != 1 {
		t.Fatalf("left with a target to come: %+v", left)
	}
	o.Gone(8, 0, nil, func(it Item) { left = append(left, it) })
	if len(left) != 1 || left[0].Reason != Transaction || o.Len() != 0 {
		t.Fatalf("left %+v", left)
	}
	if _, ok := o.Relay(ref, 90, 1000, []uint64{7, 8}); ok || o.Len() != 0 {
		t.Fatal("a part for closed targets was added")
	}
	if id, ok := o.Relay(ref, 90, 1000, []uint64{7, 9}); id != 2 || !ok || len(o.Pending(9, 0, 5)) != 1 {
		t.Fatalf("item %d %t", id, ok)
	}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestWords(t *testing.T) {
	var got []string
	for r := range Redrive + 2 {
		got = append(got, r.String())
	}
	for s := range ParkedCycle + 2 {
		got = append(got, s.String())
	}
	if want := "[unknown rejected expired maxlen delivery_limit transaction queue_removed redrive unknown unrouted routed parked-unrouted parked-cycle unknown]"; fmt.Sprint(got) != want {
		t.Fatalf("got %v, want %s", got, want)
	}
}

// What a client says of a letter goes with it: into views, through a restore, and away with it.
func TestExplain(t *testing.T) {
	var o Outbox
	add(&o, 3)
	o.Explain(2, "why")
	o.Explain(3, "")
	o.Explain(9, "nobody")
	before := o.Freeze()
	o.Explain(1, "later")
	if it, _ := o.Item(2); it.Detail != "why" || o.Bytes() != 3*90+3+5 {
		t.Fatalf("%+v, %d bytes", it, o.Bytes())
	}
	for it := range before.All {
		if want := map[ItemID]string{2: "why"}[it.ID]; it.Detail != want {
			t.Errorf("item %d in a view: %q", it.ID, it.Detail)
		}
	}
	o.Route(2, []uint64{7, 8})
	if p := o.Pending(7, 0, 9); len(p) != 1 || p[0].Detail != "why" {
		t.Errorf("%+v", p)
	}
	now := o.View()
	again, err := Restore(now.Last(), now.Targets(), now.All)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []*Outbox{&o, again} {
		var left []Item
		o.Done(7, 1, nil, false, ignore)
		o.Done(8, 1, nil, false, func(it Item) { left = append(left, it) })
		if len(left) != 1 || left[0].Detail != "why" || o.Bytes() != 2*90+5 {
			t.Errorf("left %+v, %d bytes", left, o.Bytes())
		}
		if err := o.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestMovedToAForgottenTarget: a letter that is being called back has been taken by the queue that its target goes on as, which was deleted and forgotten
// since. Nothing goes there, and nothing is to be called back from there.
func TestMovedToAForgottenTarget(t *testing.T) {
	o := &Outbox{}
	id := o.Add(queue.Ref{Index: 1, Length: 1}, 1, Rejected, 1)
	o.Route(id, []uint64{7, 9})
	var left []Item
	note := func(it Item) { left = append(left, it) }
	o.Done(9, 1, nil, false, note)
	o.Gone(9, 1, nil, note)
	o.Forget(9)
	o.Withdraw(7, 1)
	if !o.Moved(7, 0, nil, 9, false, note) || len(left) != 1 || o.Len() != 0 {
		t.Errorf("%d letters left, %d are there", len(left), o.Len())
	}
	if err := o.Check(); err != nil {
		t.Error(err)
	}
}
