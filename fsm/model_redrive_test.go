package fsm

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

func (o *model) leaving(id queue.MessageID) bool {
	for _, x := range o.away {
		if x == id {
			return true
		}
	}
	for _, x := range o.undecided {
		if x == id {
			return true
		}
	}
	return false
}

// allAway are the live messages that are out of reach.
func (o *model) allAway() map[OutboxID]queue.MessageID {
	all := maps.Clone(o.away)
	maps.Copy(all, o.undecided)
	return all
}

// expire lets a message die, or puts it where it may stay.
func (o *model) expire(m *queue.Message) {
	s := &o.settings
	planned := o.planned(dlx.Expired) && !o.older(o.lastItem+1)
	if o.closed || planned || !s.DeadLetter || s.Delayed || !s.StopTTL && s.MaxHops == 0 {
		o.die(o.remove(m.ID), dlx.Expired)
		return
	}
	m.ExpiresAt = 0
	o.lastItem++
	o.out = append(o.out, dlx.Item{ID: o.lastItem, Ref: m.Ref, BodyBytes: m.BodyBytes, TimeMillis: o.time, Reason: dlx.Expired})
	o.undecided[o.lastItem] = m.ID
}

// depart takes a message that might have stayed from its place.
func (o *model) depart(it OutboxID) {
	if id, ok := o.undecided[it]; ok {
		delete(o.undecided, it)
		o.remove(id)
		o.counters.Died[dlx.Expired]++
	}
}

func (o *model) redriveCommand(c Command) {
	r := &o.redriving
	switch c := c.(type) {
	case StartRedrive:
		if !o.closed && (r.Number == 0 || r.EndedMillis > 0 && (c.Spec.Token == 0 || c.Spec.Token != r.Spec.Token)) {
			*r = dlx.Redriving{Number: r.Number + 1, Spec: c.Spec, StartedMillis: o.time, Tail: o.tail}
		}
	case StopRedrive:
		if c.Number == r.Number && r.EndedMillis == 0 {
			r.Stopped = true
		}
	case TakeRedrive:
		o.takeRedrive(&c)
	}
	o.endRedrive()
}

func (o *model) endRedrive() {
	r := &o.redriving
	if r.Number > 0 && r.EndedMillis == 0 && (r.Stopped || r.Cursor >= r.Tail) && len(o.away) == 0 {
		r.EndedMillis = max(o.time, 1)
	}
}

func (o *model) takeRedrive(c *TakeRedrive) {
	r := &o.redriving
	fits := c.Number == r.Number && r.Number > 0 && !r.Stopped && r.EndedMillis == 0 && c.After == r.Cursor && r.Cursor < r.Tail && c.Through > c.After
	for _, it := range c.Items {
		m := o.get(it.ID)
		if m == nil || o.leaving(it.ID) {
			continue
		}
		if !fits || it.ID <= c.After || it.ID > c.Through || it.ID > r.Tail || m.Attempt != it.Attempt || o.delays[it.ID] > 0 {
			if fits {
				r.Busy++
			}
			o.freed = append(o.freed, it.ID)
			continue
		}
		if r.Spec.Discard {
			o.remove(it.ID)
			o.counters.Purged++
			r.Moved++
			continue
		}
		var legs []dlx.Leg
		unknown := false
		for _, t := range it.Targets {
			unknown = unknown || o.next[t] == 0 && !o.gone[t] && o.catalogRev < o.floor
			if !o.gone[t] {
				legs = append(legs, dlx.Leg{Target: t, Seq: max(o.next[t], 1)})
			}
		}
		if unknown || len(legs) == 0 {
			r.Missing++
			o.freed = append(o.freed, it.ID)
			continue
		}
		for _, l := range legs {
			o.next[l.Target] = l.Seq + 1
		}
		o.lastItem++
		o.out = append(o.out, dlx.Item{ID: o.lastItem, Ref: m.Ref, BodyBytes: m.BodyBytes, TimeMillis: o.time, Reason: dlx.Redrive, State: dlx.Routed, Legs: legs})
		o.away[o.lastItem] = it.ID
	}
	if fits {
		r.Cursor = min(c.Through, r.Tail)
		r.NoOrigin, r.Missing, r.Busy = r.NoOrigin+c.Passed.NoOrigin, r.Missing+c.Passed.Missing, r.Busy+c.Passed.Busy
	}
}

// redriven ends an item that has left the outbox.
func (o *model) redriven(it dlx.Item, taken bool) {
	id, live := o.away[it.ID]
	delete(o.away, it.ID)
	switch {
	case taken:
		if live {
			o.remove(id)
		}
		o.counters.Redriven++
		o.redriving.Moved++
	case live:
		o.redriving.Returned++
		o.freed = append(o.freed, id)
	case buries(&o.settings):
		o.die(queue.Message{Ref: it.Ref, BodyBytes: it.BodyBytes}, dlx.QueueRemoved)
	default:
		o.counters.Closed++
	}
	o.endRedrive()
}

func (o *model) closeRedrive() {
	var ids []queue.MessageID
	for _, id := range o.away {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		o.remove(id)
	}
	clear(o.away)
	if r := &o.redriving; r.Number > 0 && r.EndedMillis == 0 {
		r.Stopped = true
	}
	o.endRedrive()
}

// redrive is a command of a redrive, mostly one that fits its state.
func (d *duel) redrive() Command {
	r := &d.o.redriving
	number := r.Number
	if d.n(0, 7, "another redrive") == 0 {
		number += uint64(d.n(0, 2, "number"))
	}
	switch d.n(0, 7, "redrive command") {
	case 0, 1:
		return StartRedrive{dlx.RedriveSpec{
			Token: uint64(d.n(0, 3, "token")), Discard: d.n(0, 3, "discard") == 0, To: dlx.RedriveTo(d.n(0, 3, "to")), Queue: "target",
			Filter: dlx.Filter{Reasons: []dlx.Reason{dlx.Expired}, Queue: "q", DiedBefore: 5, IDs: []uint64{1, 9}, MessageIDs: []string{"m"}, Header: "h", HeaderValue: "v", Retried: dlx.RetriedFilter(d.n(0, 2, "retried"))},
		}}
	case 2:
		return StopRedrive{number}
	}
	c := TakeRedrive{Number: number, After: r.Cursor, Passed: dlx.RedriveCounts{NoOrigin: uint64(d.n(0, 1, "no origin")), Missing: 1, Busy: 2}}
	if d.n(0, 7, "another place") == 0 {
		c.After = queue.MessageID(d.n(0, 9, "after"))
	}
	c.Through = c.After + queue.MessageID(d.n(0, 12, "width"))
	for _, m := range d.o.live {
		if d.n(0, 2, "take") == 0 {
			continue
		}
		it := RedriveItem{ID: m.ID, Attempt: m.Attempt}
		if d.n(0, 7, "other attempt") == 0 {
			it.Attempt++
		}
		for range d.n(0, 2, "targets") {
			if q := d.target(); !slices.Contains(it.Targets, q) {
				it.Targets = append(it.Targets, q)
			}
		}
		c.Items = append(c.Items, it)
	}
	return c
}

func redriveSpec() dlx.RedriveSpec {
	return dlx.RedriveSpec{Token: 9, Filter: dlx.Filter{Reasons: []dlx.Reason{dlx.Rejected}}}
}

// A redrive takes what was there when it began, puts it at no risk, and gives back what
// its target could not take.
func TestRedrive(t *testing.T) {
	g := newRig(t)
	g.publish("a", "b", "c", "d", "e")
	g.apply(g.run(Settle{Kind: RequeueFailed, Runs: []Run{{2, 1, 0}}}))
	res := g.apply(StartRedrive{redriveSpec()})
	if r := g.m.Redriving(); !res.RedriveChanged || r.Number != 1 || r.Tail != 5 || r.EndedMillis != 0 || r.Spec.Token != 9 {
		t.Fatalf("%+v", r)
	}
	g.publish("late")
	other := redriveSpec()
	other.Token = 10
	g.apply(StartRedrive{other})
	if r := g.m.Redriving(); r.Number != 1 || r.Spec.Token != 9 {
		t.Fatalf("a second redrive began: %+v", r)
	}
	item := func(id queue.MessageID, attempt uint32, targets ...uint64) RedriveItem {
		return RedriveItem{id, attempt, targets}
	}
	// 2 has been delivered since it was looked at, 4 has no target that lives.
	res = g.apply(TargetGone{Target: 9, Watermark: 0}, TakeRedrive{Number: 1, Through: 4, Items: []RedriveItem{item(1, 0, 7), item(2, 0, 7), item(3, 0, 7, 8), item(4, 0, 9)}})
	if !slices.Equal(res.Freed, ids(2, 4)) || len(res.Removed) > 0 || g.m.Outbox().Len() != 2 || g.m.Queue().Len() != 6 {
		t.Fatalf("freed %v, outbox %d", res.Freed, g.m.Outbox().Len())
	}
	if res = g.apply(TakeRedrive{Number: 1, Through: 5, Items: []RedriveItem{item(5, 0, 7)}}); !slices.Equal(res.Freed, ids(5)) {
		t.Fatalf("a decision on another state: freed %v", res.Freed)
	}
	// Nothing reaches what is on its way.
	g.apply(g.run(Settle{Kind: Ack, Runs: []Run{{1, 6, 0}}}, Purge{6, nil}, Tx{Ops: []Op{Settle{Kind: Ack, Runs: []Run{{1, 9, 0}}}}}), DropHeads{[]queue.IDRange{{First: 1, Last: 9}}})
	if got := g.bodies(); !slices.Equal(got, []string{"a", "c"}) {
		t.Fatalf("live: %v", got)
	}
	restored, err := Restore(g.m.Snapshot())
	if err != nil || !slices.Equal(restored.Leaving(), []queue.MessageID{1, 3}) {
		t.Fatalf("restored %v: %v", restored.Leaving(), err)
	}
	res = g.apply(TransferDone{Target: 7, UpTo: 1})
	if !slices.Equal(res.Removed, ids(1)) || g.m.Counters().Redriven != 1 {
		t.Fatalf("removed %v", res.Removed)
	}
	res = g.apply(TakeRedrive{Number: 1, After: 4, Through: 99}, TargetGone{Target: 7, Watermark: 1})
	if len(res.Freed) > 0 || g.m.Redriving().EndedMillis != 0 {
		t.Fatalf("one of two targets is gone: %+v", res)
	}
	res = g.apply(TargetGone{Target: 8, Watermark: 0})
	if r := g.m.Redriving(); !slices.Equal(res.Freed, ids(3)) || r.EndedMillis == 0 || r.Moved != 1 || r.Returned != 1 || r.Missing != 1 || r.Busy != 1 || r.Cursor != 5 {
		t.Fatalf("freed %v: %+v", res.Freed, r)
	}
	if got := g.bodies(); !slices.Equal(got, []string{"c"}) || g.m.Outbox().Len() != 0 {
		t.Fatalf("live: %v", got)
	}
}

func TestRedriveOfAClosedQueue(t *testing.T) {
	g := newRig(t)
	g.publish("a", "b", "c")
	g.apply(StartRedrive{redriveSpec()})
	g.apply(TakeRedrive{Number: 1, Through: 2, Items: []RedriveItem{{1, 0, []uint64{7}}, {2, 0, []uint64{8}}}})
	res := g.apply(Close{})
	if g.m.Queue().Len() != 0 || g.m.Outbox().Len() != 2 || g.m.Counters().Closed != 1 || !slices.Equal(res.Removed, []queue.IDRange{{First: 1, Last: 3}}) && len(res.Removed) == 0 {
		t.Fatalf("%+v, outbox %d", g.m.Counters(), g.m.Outbox().Len())
	}
	g.apply(TransferDone{Target: 7, UpTo: 1}, TargetGone{Target: 8, Watermark: 0})
	if c := g.m.Counters(); c.Redriven != 1 || c.Closed != 2 || g.m.Outbox().Len() != 0 {
		t.Fatalf("%+v", c)
	}
	if g.apply(StartRedrive{redriveSpec()}); g.m.Redriving().Number != 1 {
		t.Fatal("a closed queue began a redrive")
	}
}

// A queue that dead-letters what is left in it when it is removed does so with a message that
// was on its way back and found no place.
func TestRedriveOfARemovedQueue(t *testing.T) {
	g := newRig(t)
	g.apply(SetSettings{Revision: 1, Settings: queue.Settings{MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1, DeadLetter: true, DeadLetterOnRemoval: true}})
	g.publish("a", "b")
	g.apply(StartRedrive{redriveSpec()})
	g.apply(TakeRedrive{Number: 1, Through: 2, Items: []RedriveItem{{1, 0, []uint64{7}}, {2, 0, []uint64{8}}}})
	g.apply(Close{})
	g.apply(TransferDone{Target: 7, UpTo: 1}, TargetGone{Target: 8, Watermark: 0})
	items := g.m.Outbox().Unrouted(9)
	if c := g.m.Counters(); c.Redriven != 1 || c.Closed != 0 || len(items) != 1 || items[0].Reason != dlx.QueueRemoved {
		t.Fatalf("%+v, outbox %+v", c, items)
	}
}

// A request for a redrive that was answered too late is repeated. It does not begin a second
// one, which would take what came in since.
func TestRedriveIsNotRepeated(t *testing.T) {
	g := newRig(t)
	g.publish("a")
	spec := redriveSpec()
	spec.Discard = true
	g.apply(StartRedrive{spec})
	g.apply(TakeRedrive{Number: 1, Through: 1, Items: []RedriveItem{{ID: 1}}})
	g.publish("late")
	g.apply(StartRedrive{spec})
	if r := g.m.Redriving(); r.Number != 1 || r.EndedMillis == 0 {
		t.Fatalf("began again: %+v", r)
	}
	spec.Token++
	g.apply(StartRedrive{spec})
	if r := g.m.Redriving(); r.Number != 2 || r.Tail != 2 {
		t.Fatalf("another one: %+v", r)
	}
}

func TestRedriveDiscardsAndStops(t *testing.T) {
	g := newRig(t)
	g.publish("a", "b", "c")
	spec := redriveSpec()
	spec.Discard = true
	g.apply(StartRedrive{spec})
	res := g.apply(TakeRedrive{Number: 1, Through: 2, Items: []RedriveItem{{ID: 1}}})
	if !slices.Equal(res.Removed, ids(1)) || g.m.Counters().Purged != 1 || g.m.Redriving().Moved != 1 {
		t.Fatalf("%+v", res)
	}
	g.apply(StopRedrive{2})
	if g.m.Redriving().Stopped {
		t.Fatal("another redrive was stopped")
	}
	g.apply(StopRedrive{1})
	if r := g.m.Redriving(); !r.Stopped || r.EndedMillis == 0 {
		t.Fatalf("%+v", r)
	}
	if res := g.apply(TakeRedrive{Number: 1, After: 2, Through: 3, Items: []RedriveItem{{ID: 3}}}); !slices.Equal(res.Freed, ids(3)) {
		t.Fatalf("a stopped redrive took %+v", res)
	}
}

// What a redrive has sent to a full target comes back to its place when the redrive is stopped. What
// some target has taken does not: it goes on to the others.
func TestRedriveIsCalledBack(t *testing.T) {
	g := newRig(t)
	g.publish("a", "b", "c", "d")
	g.apply(StartRedrive{redriveSpec()})
	g.apply(TakeRedrive{Number: 1, Through: 4, Items: []RedriveItem{{1, 0, []uint64{7}}, {2, 0, []uint64{7}}, {3, 0, []uint64{7, 8}}, {4, 0, []uint64{7}}}})
	// As long as it goes on, a withdrawal only lets others pass.
	res := g.apply(TransferDone{Target: 7, UpTo: 2, Withdrawn: []uint64{2}})
	if p := g.m.Outbox().Pending(7, 0, 9); len(res.Freed) > 0 || !slices.Equal(res.Removed, ids(1)) || len(p) != 3 || p[0].Item != 3 || p[2].Item != 2 || p[2].Seq != 5 || p[0].Alone || !p[2].Alone {
		t.Fatalf("freed %v, pending %+v", res.Freed, p)
	}
	res = g.apply(StopRedrive{1})
	if r := g.m.Redriving(); !res.OutboxChanged || !g.m.CallsBack() || r.EndedMillis != 0 {
		t.Fatalf("%+v", r)
	}
	res = g.apply(TransferDone{Target: 8, UpTo: 1}, TransferDone{Target: 7, UpTo: 5, Withdrawn: []uint64{3, 4, 5}})
	if !slices.Equal(res.Freed, []queue.IDRange{{First: 4, Last: 4}, {First: 2, Last: 2}}) || g.m.Redriving().Returned != 2 {
		t.Fatalf("freed %v", res.Freed)
	}
	p := g.m.Outbox().Pending(7, 0, 9)
	if len(p) != 1 || p[0].Item != 3 || p[0].Seq != 6 || p[0].Alone {
		t.Fatalf("pending %+v", p)
	}
	restored, err := Restore(g.m.Snapshot())
	if err != nil || restored.Hash() != g.m.Hash() {
		t.Fatal(err)
	}
	res = g.apply(TransferDone{Target: 7, UpTo: 6})
	if r := g.m.Redriving(); !slices.Equal(res.Removed, ids(3)) || r.EndedMillis == 0 || r.Moved != 2 || r.Returned != 2 || g.m.CallsBack() {
		t.Fatalf("removed %v: %+v", res.Removed, r)
	}
	if got := g.bodies(); !slices.Equal(got, []string{"b", "d"}) {
		t.Fatalf("live: %v", got)
	}
}

// The queue is closed before the answer: the message has no place to come back to, and goes on.
func TestRedriveIsNotCalledBackIntoAClosedQueue(t *testing.T) {
	g := newRig(t)
	g.publish("a")
	g.apply(StartRedrive{redriveSpec()})
	g.apply(TakeRedrive{Number: 1, Through: 1, Items: []RedriveItem{{1, 0, []uint64{7}}}}, StopRedrive{1}, Close{})
	g.apply(TransferDone{Target: 7, UpTo: 1, Withdrawn: []uint64{1}})
	if p := g.m.Outbox().Pending(7, 0, 9); g.m.CallsBack() || len(p) != 1 || p[0].Seq != 2 {
		t.Fatalf("pending %+v", p)
	}
	g.apply(TransferDone{Target: 7, UpTo: 2})
	if c := g.m.Counters(); c.Redriven != 1 || c.Closed != 0 || g.m.Outbox().Len() != 0 {
		t.Fatalf("%+v", c)
	}
}

// TestRetriedFilterBytes: what a redrive wants of retries is in its flags, so that one that wants nothing has the bytes it always had.
func TestRetriedFilterBytes(t *testing.T) {
	encode := func(r dlx.RetriedFilter) []byte {
		return EncodeEntry(nil, &Entry{Commands: []Command{StartRedrive{dlx.RedriveSpec{Filter: dlx.Filter{Retried: r}}}}})
	}
	plain := encode(dlx.RetriedOrNot)
	var at int
	for r, flag := range []byte{0, 4, 8} {
		data := encode(dlx.RetriedFilter(r))
		if len(data) != len(plain) {
			t.Fatalf("%x, without the wish %x", data, plain)
		}
		for i := range data {
			if data[i] != plain[i] {
				at = i
			}
		}
		if data[at] != flag && r > 0 {
			t.Errorf("%d: flags %d, want %d", r, data[at], flag)
		}
		e, err := DecodeEntry(data)
		if err != nil || e.Commands[0].(StartRedrive).Spec.Filter.Retried != dlx.RetriedFilter(r) {
			t.Errorf("%d: %+v %v", r, e, err)
		}
	}
	for _, flags := range []byte{12, 16} {
		plain[at] = flags
		if _, err := DecodeEntry(plain); !errors.Is(err, ErrMalformed) {
			t.Errorf("flags %d: %v", flags, err)
		}
	}
}
