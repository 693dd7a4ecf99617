package fsm

import (
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

func deadLettering(s *queue.Settings) { s.DeadLetter, s.DeadLetterExchange = true, "dlx" }

// reasons lists outbox items as the ids' reasons, in order.
func (g *rig) reasons() (list []dlx.Reason) {
	g.m.Outbox().View().All(func(it dlx.Item) bool {
		list = append(list, it.Reason)
		return true
	})
	return list
}

// dead lists the bodies of outbox items in order.
func (g *rig) dead() (list []string) {
	g.m.Outbox().View().All(func(it dlx.Item) bool {
		list = append(list, string(g.message(it.Ref).Body))
		return true
	})
	return list
}

func TestAckRemovesOnlyTheNamedAttempt(t *testing.T) {
	g := newRig(t)
	g.publish("a", "b", "c", "d")
	g.apply(g.run(Settle{Kind: RequeueCounted, Runs: []Run{{2, 1, 0}}}))
	res := g.apply(g.run(Settle{Kind: Ack, Runs: []Run{{1, 3, 0}}}))
	equalList(t, "removed", res.Removed, []queue.IDRange{{First: 1, Last: 1}, {First: 3, Last: 3}})
	g.want("b d")
	g.apply(g.run(Settle{Kind: Ack, Runs: []Run{{2, 1, 1}, {4, 1_000_000, 0}}}))
	g.want("")
	equal(t, "acked", g.m.Counters().Acked, 4)
}

func TestRequeueKeepsPlaceAndInstant(t *testing.T) {
	g := newRig(t)
	g.time = 100
	g.settings(func(s *queue.Settings) { s.MessageTTLMillis = 50 })
	g.publish("a", "b")
	g.time = 120
	res := g.apply(Return{RequeueFailed, []Run{{1, 1, 0}}})
	equalList(t, "returned", res.Returned, ids(1))
	m, _ := g.m.Queue().Get(1)
	equal(t, "message", [3]int64{int64(m.Attempt), int64(m.Failed), m.ExpiresAt}, [3]int64{1, 1, 150})
	g.want("a b")
}

func TestDeliveryLimit(t *testing.T) {
	for _, c := range []struct {
		limit   int64
		returns int // failed returns that the message survives
	}{{0, 0}, {2, 2}} {
		g := newRig(t)
		g.settings(func(s *queue.Settings) { deadLettering(s); s.DeliveryLimit = c.limit })
		g.publish("a")
		for i := range c.returns {
			res := g.apply(g.run(Settle{Kind: RequeueFailed, Runs: []Run{{1, 1, uint32(i)}}}))
			equalList(t, "returned", res.Returned, ids(1))
		}
		res := g.apply(g.run(Settle{Kind: RequeueFailed, Runs: []Run{{1, 1, uint32(c.returns)}}}))
		equalList(t, "removed", res.Removed, ids(1))
		equalList(t, "reasons", g.reasons(), []dlx.Reason{dlx.DeliveryLimit})
	}
}

func TestCountedReturnsNeverReachTheLimit(t *testing.T) {
	g := newRig(t)
	g.settings(func(s *queue.Settings) { s.DeliveryLimit = 0 })
	g.publish("a")
	for i := range 50 {
		g.apply(g.run(Settle{Kind: RequeueCounted, Runs: []Run{{1, 1, uint32(i)}}}))
	}
	m, ok := g.m.Queue().Get(1)
	if !ok || m.Attempt != 50 || m.Failed != 0 {
		t.Fatalf("message %+v, live %t", m, ok)
	}
}

func TestDeathsInOrderOfRuns(t *testing.T) {
	g := newRig(t)
	g.settings(deadLettering)
	g.publish("a", "b", "c", "d", "e")
	res := g.apply(g.run(Settle{Kind: Discard, Runs: []Run{{4, 2, 0}, {1, 1, 0}, {3, 1, 0}}}))
	equalList(t, "dead", g.dead(), []string{"d", "e", "a", "c"})
	if !res.OutboxChanged {
		t.Fatal("outbox changed unnoticed")
	}
	g.want("b")
}

func TestDeathWithoutExchangeIsADrop(t *testing.T) {
	g := newRig(t)
	g.publish("a", "b")
	res := g.apply(g.run(Settle{Kind: Discard, Runs: []Run{{1, 2, 0}}}))
	equalList(t, "dropped", res.Dropped, []Dropped{{dlx.Rejected, DropDisabled, 2}})
	equal(t, "outbox", g.m.Outbox().Len(), 0)
}

func TestExpireChecksPresenceAndInstant(t *testing.T) {
	g := newRig(t)
	g.settings(deadLettering)
	g.time = 1000
	ttl := func(body string, ms int64) Publish {
		p := pub(body)
		p.TTLMillis = ms
		return p
	}
	g.apply(g.run(ttl("a", 10), ttl("b", 5), pub("c"), ttl("d", 0), ttl("e", 10)))
	at, ok := g.m.Queue().NextExpiry()
	equal(t, "next expiry", at, 1000)
	equal(t, "some expiry", ok, true)
	g.time = 1005
	g.apply(Expire{append(ids(4, 2), ids(1, 3, 99)...)})
	equalList(t, "dead", g.dead(), []string{"d", "b"})
	var due []queue.MessageID
	g.m.Queue().Due(1010, func(m queue.Message) bool { due = append(due, m.ID); return true })
	equalList(t, "due", due, []queue.MessageID{1, 5})
	equal(t, "after", g.m.Queue().NextExpiryAfter(1009), 1010)
	equal(t, "none after", g.m.Queue().NextExpiryAfter(1010), 0)
}

func TestSmallerTimeToLiveDecides(t *testing.T) {
	for _, c := range []struct{ queue, own, want int64 }{{200, 10_000, 200}, {10_000, 200, 200}, {-1, 7, 7}, {7, -1, 7}, {-1, -1, -1}, {0, -1, 0}, {5, 0, 0}} {
		g := newRig(t)
		g.settings(func(s *queue.Settings) { s.MessageTTLMillis = c.queue })
		g.time = 1000
		p := pub("a")
		p.TTLMillis = c.own
		g.apply(g.run(p))
		m, _ := g.m.Queue().Get(1)
		want := 1000 + c.want
		if c.want < 0 {
			want = 0
		}
		if m.ExpiresAt != want {
			t.Errorf("queue %d, own %d: expires at %d, want %d", c.queue, c.own, m.ExpiresAt, want)
		}
	}
}

func TestTimeNeverFallsAndSettingsTouchOnlyLaterMessages(t *testing.T) {
	g := newRig(t)
	g.time = 500
	g.publish("a")
	g.time = 300
	g.settings(func(s *queue.Settings) { s.MessageTTLMillis = 10 })
	g.publish("b")
	equal(t, "time", g.m.Time(), 500)
	a, _ := g.m.Queue().Get(1)
	b, _ := g.m.Queue().Get(2)
	equal(t, "instants", [2]int64{a.ExpiresAt, b.ExpiresAt}, [2]int64{0, 510})
	res := g.apply(SetSettings{Revision: 1, Settings: queue.Settings{MessageTTLMillis: 1}})
	equal(t, "older settings taken", res.SettingsSet, false)
	equal(t, "ttl", g.m.Settings().MessageTTLMillis, 10)
}

func TestDropHeadsDieAsMaxLen(t *testing.T) {
	g := newRig(t)
	g.settings(deadLettering)
	g.publish("a", "b", "c")
	res := g.apply(DropHeads{ids(1, 2)}, DropHeads{ids(2)})
	equalList(t, "removed", res.Removed, []queue.IDRange{{First: 1, Last: 2}})
	equalList(t, "reasons", g.reasons(), []dlx.Reason{dlx.MaxLen, dlx.MaxLen})
	g.want("c")
}

func TestPurgeKeepsWhatIsHeld(t *testing.T) {
	g := newRig(t)
	g.settings(deadLettering)
	g.publish("a", "b", "c", "d", "e", "f")
	res := g.apply(g.run(Purge{5, []queue.IDRange{{First: 4, Last: 4}, {First: 2, Last: 2}, {First: 9, Last: 3}}}))
	equalList(t, "outcome", res.Streams[0].Outcomes, []Outcome{{2 + 5, Purged, 3}})
	g.want("b d f")
	equal(t, "outbox", g.m.Outbox().Len(), 0)
	equal(t, "purged", g.m.Counters().Purged, 3)
}

func TestVerdicts(t *testing.T) {
	g := newRig(t)
	g.settings(deadLettering)
	refuse := func(v Verdict) Publish {
		p := pub(string('a' + rune(v)))
		p.Verdict = v
		return p
	}
	res := g.apply(g.run(refuse(RefuseFull), refuse(RefuseFullDLX), refuse(RefuseOutbox), refuse(RefuseConsumers), pub("z")))
	equalList(t, "outcomes", res.Streams[0].Outcomes, []Outcome{
		{1, RefusedFull, 0}, {2, RefusedFull, 0}, {3, RefusedOutbox, 0}, {4, RefusedConsumers, 0},
	})
	g.want("z")
	equalList(t, "dead", g.dead(), []string{"c"})
	equalList(t, "reasons", g.reasons(), []dlx.Reason{dlx.MaxLen})
	equal(t, "refused", g.m.Counters().Refused, 4)
	equalList(t, "pins", g.m.Pins(), []IndexRange{{g.index, g.index}})
}

func TestPriorities(t *testing.T) {
	g := newRig(t)
	g.settings(func(s *queue.Settings) { s.MaxPriority, s.DefaultPriority = 10, 4 })
	prio := func(p uint8) Publish {
		m := pub("x")
		m.Priority, m.HasPriority = p, true
		return m
	}
	g.apply(g.run(prio(2), pub("none"), prio(200), prio(2), prio(0)))
	var order []queue.MessageID
	for p := range g.m.Queue().Priorities() {
		for m, ok := g.m.Queue().Next(p, 0); ok; m, ok = g.m.Queue().Next(p, m.ID) {
			order = append(order, m.ID)
		}
	}
	equalList(t, "order", order, []queue.MessageID{3, 2, 1, 4, 5})
	equalList(t, "totals", g.m.Queue().TotalPerPriority(), []queue.PriorityTotal{
		{Priority: 10, Messages: 1, Bytes: 1},
		{Priority: 4, Messages: 1, Bytes: 4},
		{Priority: 2, Messages: 2, Bytes: 2},
		{Priority: 0, Messages: 1, Bytes: 1},
	})
	plain := newRig(t)
	plain.apply(plain.run(prio(9)))
	m, _ := plain.m.Queue().Get(1)
	equal(t, "priority in a plain queue", m.Priority, 0)
}

func TestMark(t *testing.T) {
	g := newRig(t)
	g.entry(Entry{Mark: 3, MarkSelf: true})
	equal(t, "mark of an entry without messages", g.m.Mark(), 3)
	g.entry(Entry{MarkSelf: true, Commands: []Command{g.run(pub("a"), pub("b"), pub("c"), pub("d"), pub("e"))}})
	equal(t, "mark", g.m.Mark(), 5)
	g.entry(Entry{Mark: 2})
	equal(t, "mark never falls", g.m.Mark(), 5)
}

func TestCloseDropsAndRefuses(t *testing.T) {
	g := newRig(t)
	g.settings(deadLettering)
	g.publish("a", "b", "c")
	g.apply(g.run(Settle{Kind: Discard, Runs: []Run{{1, 1, 0}}}))
	res := g.apply(Close{})
	equal(t, "closed", res.Closed && g.m.Closed(), true)
	equalList(t, "dropped", res.Dropped, []Dropped{{0, HasTargets, 2}})
	equalList(t, "removed", res.Removed, []queue.IDRange{{First: 2, Last: 3}})
	res = g.apply(g.run(pub("d"), Settle{Kind: Ack, Runs: []Run{{2, 1, 0}}}, Purge{UpTo: 9}), Close{})
	equalList(t, "outcomes", res.Streams[0].Outcomes, []Outcome{{5, Gone, 0}, {7, Gone, 0}})
	equal(t, "closed again", res.Closed, false)
	res = g.apply(TransferIn{Source: Source{Queue: 3}, First: 1, Items: []Transfer{transfer("x")}})
	equal(t, "transfer", res.Transfers[0].Gone, true)
	equal(t, "watermark", res.Transfers[0].UpTo, 0)
	equalList(t, "outbox drains", g.dead(), []string{"a"})
	g.apply(Route{Items: []Routed{{1, []uint64{5}, HasTargets}}}, TransferDone{Target: 5, UpTo: 1})
	equal(t, "outbox", g.m.Outbox().Len(), 0)
	equal(t, "moved", g.m.Counters().Moved, 1)
}

// A recount is an attempt and nothing else: no failure, no retry delay, and none that lasts ends.
func TestRecount(t *testing.T) {
	g := newRig(t)
	g.settings(func(s *queue.Settings) {
		s.Retry = queue.RetryDelay{On: queue.RetryAll, MinMillis: 50, MaxMillis: 50}
		s.DeliveryLimit = 0
	})
	g.publish("a", "b", "c")
	res := g.apply(Return{Recount, []Run{{1, 2, 0}}})
	equalList(t, "returned", res.Returned, []queue.IDRange{{First: 1, Last: 2}})
	equal(t, "delays", g.m.Delays().Len(), 0)
	g.apply(Return{RequeueCounted, []Run{{3, 1, 0}}})
	g.apply(Return{Recount, []Run{{3, 1, 1}, {1, 1, 0}}})
	equal(t, "delays", g.m.Delays().Len(), 1)
	for id, want := range map[queue.MessageID]uint32{1: 1, 2: 1, 3: 2} {
		m, _ := g.m.Queue().Get(id)
		equal(t, "counts", [2]uint32{m.Attempt, m.Failed}, [2]uint32{want, 0})
	}
}
