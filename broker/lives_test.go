package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// TestStreamGoesOnInAnotherLife carries a stream over to the next life of its queue: publishes that nobody has answered are sent there, consumers
// go on, and what clients say of former deliveries does nothing there, whatever has their ids by now.
func TestStreamGoesOnInAnotherLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStreamRig(t)
		r.s.leader = "leader"
		sink := &confirms{}
		ch := &Channel{sink: sink, used: map[*stream]struct{}{}}
		c := &Consumer{ch: ch, no: 9, attached: true, roomMessages: consumerMessages, roomBytes: consumerBytes}
		leaving := &Consumer{ch: ch, no: 10, attached: true, cancelling: true}
		for _, x := range []*Consumer{c, leaving} {
			x.stream.Store(r.s)
			r.s.consumers[x.no] = x
		}
		deliver := func(s *stream) {
			s.session, s.resyncs = 1, 1
			s.deliver("leader", &wire.Deliver{Queue: s.id, Session: 1, Resync: 1, Items: []wire.Item{{No: 9, ID: 4, Attempt: 1, Message: fsm.EncodeMessage(nil, &fsm.Message{})}}})
		}
		deliver(r.s)
		r.publish(sink, 1)
		r.s.flush()
		r.publish(sink, 2) // not sent
		result := make(chan fsm.Outcome, 1)
		r.s.commit(t.Context(), fsm.Tx{}, 10, result)
		asked := make(chan error, 1)
		go func() {
			_, err := r.s.ask(t.Context(), 77, func(uint64) wire.Message { return &wire.Get{Queue: 7} })
			asked <- err
		}()
		synctest.Wait()
		sent[wire.Message](r)

		next := newStream(r.s.hub, 20, "q")
		next.mu.Lock()
		if n := next.inheritLocked(r.s); n != 2 { // the commit had sent both
			t.Errorf("%d publishes are sent again", n)
		}
		next.mu.Unlock()
		if r.trouble == 0 {
			t.Error("nobody looks for the new leader")
		}
		if _, open := <-result; open {
			t.Error("a transaction has an outcome")
		}
		if err := <-asked; !errors.Is(err, errQueueMoved) {
			t.Errorf("a request ends with %v", err)
		}
		if c.stream.Load() != next || next.consumers[9] != c || len(next.consumers) != 1 {
			t.Errorf("consumers %v", next.consumers)
		}
		next.mu.Lock()
		next.findLocked()
		next.mu.Unlock()
		if told := sent[*wire.Resync](r); len(told) != 1 || told[0].Queue != 20 || len(told[0].Consumers) != 1 || len(told[0].Held) != 0 {
			t.Errorf("the new leader is told %+v", told)
		}
		batches := sent[*wire.Batch](r)
		if len(batches) != 1 || batches[0].Queue != 20 || batches[0].Stream.First != 1 || len(batches[0].Stream.Ops) != 2 {
			t.Errorf("the new leader gets %+v", batches)
		}
		// A message of the new life has the id and the attempt of one that the client still works on.
		deliver(next)
		r.s.settle(fsm.Ack, 4, 1)
		r.s.flush()
		next.flush()
		if b := sent[*wire.Batch](r); len(b) != 0 {
			t.Errorf("an ack of the former life is sent: %+v", b)
		}
		r.publish(sink, 3) // by somebody who has the former stream
		if b := sent[*wire.Batch](r); len(b) != 1 || b[0].Stream.First != 3 {
			t.Errorf("a later publish is sent as %+v", b)
		}
		r.s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: 3})
		if len(sink.list) != 0 {
			t.Errorf("the former leader confirms %v", sink.list)
		}
		next.answer(&wire.Answer{Queue: 20, Origin: rigOrigin, UpTo: 3})
		if len(sink.list) != 3 {
			t.Errorf("confirmed are %v", sink.list)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.s.purge(ctx, 1); !errors.Is(err, errQueueMoved) {
			t.Errorf("a purge of the former stream: %v", err)
		}
	})
}

// TestAwaitSettledInAnotherLife: what a client has settled of a queue that went on in another life, under its consumer, is waited for there.
func TestAwaitSettledInAnotherLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStreamRig(t)
		r.s.leader = "leader"
		ch := &Channel{conn: &Conn{traffic: &traffic{}}, sink: &confirms{}, used: map[*stream]struct{}{r.s: {}}, consumers: map[string]*Consumer{}}
		c := &Consumer{ch: ch, no: 9, attached: true, roomMessages: consumerMessages, roomBytes: consumerBytes}
		c.stream.Store(r.s)
		r.s.consumers[c.no], ch.consumers["tag"] = c, c
		next := newStream(r.s.hub, 20, "q")
		next.mu.Lock()
		next.inheritLocked(r.s)
		next.findLocked()
		next.mu.Unlock()
		next.session, next.resyncs = 1, 1
		next.deliver("leader", &wire.Deliver{Queue: 20, Session: 1, Resync: 1, Items: []wire.Item{{No: 9, ID: 4, Attempt: 1, Message: fsm.EncodeMessage(nil, &fsm.Message{})}}})
		next.settle(fsm.Ack, 4, 1)
		next.flush()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ch.AwaitSettled(ctx); err == nil {
			t.Error("nobody waits for the new leader's word")
		}
		next.answer(&wire.Answer{Queue: 20, Origin: rigOrigin, UpTo: 1})
		if err := ch.AwaitSettled(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slowEnd is a catalog in which the end of a recovery takes until it is let go.
type slowEnd struct {
	Catalog
	asked, let chan struct{}
}

func (c slowEnd) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	if _, ends := cmd.(*catalog.QueueRecovered); ends {
		close(c.asked)
		<-c.let
	}
	return c.Catalog.Propose(ctx, cmd)
}

// loseMajority declares queue q on this node and two that there are not. What it returns has it go on without them, as an operator would.
func loseMajority(t *testing.T, b *Broker) (goOn func() catalog.Result) {
	t.Helper()
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
	return func() catalog.Result {
		t.Helper()
		for _, n := range lost {
			do(&catalog.NodeDown{ID: n, Incarnation: b.cat.View().Node(n).Incarnation, AtMillis: 1})
		}
		return do(&catalog.RecoverQueue{ID: made.ID, Survivors: []catalog.NodeID{testNode}, Lost: lost, IfSettings: b.cat.View().QueueByID(made.ID).Settings})
	}
}

// awaitLife waits until this node leads a queue that goes on.
func awaitLife(t *testing.T, b *Broker, id uint64) {
	t.Helper()
	until(t, "its leader", func() bool { return b.queues.leader(id) != nil })
}

// TestNewLifeWaitsForTheCatalog: until the catalog has noted that a queue goes on, another survivor may take the keeper's place under the same id, as whose
// leader nobody may have confirmed, delivered or moved anything by then.
func TestNewLifeWaitsForTheCatalog(t *testing.T) {
	c := slowEnd{asked: make(chan struct{}), let: make(chan struct{})}
	b := newBrokerBehind(t, func(real Catalog) Catalog { c.Catalog = real; return c })
	now := loseMajority(t, b)()
	<-c.asked
	if b.queues.leader(now.ID) != nil {
		t.Error("it is led before the catalog has noted it")
	}
	close(c.let)
	awaitLife(t, b, now.ID)
	l, q := b.queues.leader(now.ID), b.cat.View().QueueByID(now.ID)
	b.queues.get(now.ID).update(q, effectOf(q, b.cat.View().Policies("/")))
	if b.queues.leader(now.ID) != l {
		t.Error("another leader begins")
	}
}

// TestSurvivorsKeepTheFormerLife: of two survivors this node is not the keeper. It stops its replica and wipes it when the catalog has noted that the keeper leads, not
// before, whatever else changes.
func TestSurvivorsKeepTheFormerLife(t *testing.T) {
	d := &diary{}
	b, do, made, now, lost := survive(t, d)
	do(&catalog.NodeDown{ID: lost[0], Incarnation: b.cat.View().Node(lost[0]).Incarnation}) // a change of the catalog that is none of the queue's
	do(&catalog.PutVhost{Vhost: catalog.Vhost{Name: "other"}})
	time.Sleep(50 * time.Millisecond)
	d.await(t, "stop")
	if b.queues.get(made) != nil || b.queues.get(now) != nil {
		t.Error("it is hosted")
	}
	do(&catalog.QueueRecovered{ID: now, IfSettings: b.cat.View().QueueByID(now).Settings})
	d.await(t, "stop", "delete")
}

// TestDamagedKeeper: the replica from which a recovered queue is to go on is damaged. There is nobody to begin it anew from, so it is not one of those that
// wait for that; another survivor takes its place when an operator says that this node's is lost, too.
func TestDamagedKeeper(t *testing.T) {
	d := &diary{}
	b, do, id, lost := wide(t, d)
	d.mu.Lock()
	d.damaged = 1 << 62
	d.mu.Unlock()
	down := func(nodes ...catalog.NodeID) {
		for _, n := range nodes {
			do(&catalog.NodeDown{ID: n, Incarnation: b.cat.View().Node(n).Incarnation, AtMillis: 1})
		}
	}
	settings := func() uint64 { return b.cat.View().QueueByID(id).Settings }
	down(lost...)
	id = do(&catalog.RecoverQueue{ID: id, Survivors: []catalog.NodeID{testNode, secondNode}, Lost: lost, IfSettings: settings()}).ID
	do(&catalog.PutVhost{Vhost: catalog.Vhost{Name: "after its start"}})
	until(t, "the newest catalog", func() bool {
		b.queues.mu.RLock()
		defer b.queues.mu.RUnlock()
		return b.queues.view.Revision() >= b.cat.View().Revision()
	})
	d.mu.Lock()
	if start := fmt.Sprintf("start %d", id); !slices.Contains(d.lines, start) {
		t.Errorf("no %q in %q", start, d.lines)
	}
	d.mu.Unlock()
	if list := b.queues.stillDamaged(); len(list) > 0 {
		t.Errorf("%d replicas wait until the rest works without them", len(list))
	}
	down(testNode)
	next := do(&catalog.RecoverQueue{ID: id, Survivors: []catalog.NodeID{secondNode}, Lost: append(slices.Clone(lost), testNode), IfSettings: settings()}).ID
	if q := b.cat.View().QueueByID(next); q == nil || !slices.Equal(q.Members, []catalog.NodeID{secondNode}) {
		t.Errorf("the other survivor does not take over: %+v", q)
	}
}

// TestFormerLifeGoesWithTheQueue: a survivor that does not hear of the catalog for a while, in which the queue begins its new life and is deleted, keeps nothing
// of the former one.
func TestFormerLifeGoesWithTheQueue(t *testing.T) {
	d := &diary{}
	b, do, _, now, _ := survive(t, d)
	busy := make(chan struct{})
	d.mu.Lock()
	d.starts = busy
	d.mu.Unlock()
	do(&catalog.DeclareQueue{Queue: catalog.Queue{Vhost: "/", Name: "slow", Durable: true, Kind: catalog.Replicated, Members: []catalog.NodeID{testNode}, Preferred: testNode}})
	d.await(t, "stop", "start 0")
	do(&catalog.QueueRecovered{ID: now, IfSettings: b.cat.View().QueueByID(now).Settings})
	do(&catalog.DeleteQueue{Vhost: "/", Name: "wide", ID: now})
	do(&catalog.QueueGone{ID: now})
	close(busy)
	d.await(t, "follow n1, led by n1", "delete")
}

// TestFormerLifeOfOthers: a node that hears at one time that it is no member any more, and that the queue goes on from another one's replica, keeps nothing of its own.
func TestFormerLifeOfOthers(t *testing.T) {
	d := &diary{}
	b, do, former, lost := wide(t, d)
	busy := make(chan struct{})
	d.mu.Lock()
	d.starts = busy
	d.mu.Unlock()
	do(&catalog.DeclareQueue{Queue: catalog.Queue{Vhost: "/", Name: "slow", Durable: true, Kind: catalog.Replicated, Members: []catalog.NodeID{testNode}, Preferred: testNode}})
	d.await(t, "start 0")
	settings := func() uint64 { return b.cat.View().QueueByID(former).Settings }
	do(&catalog.PlanMembers{ID: former, Wanted: append(slices.Clone(lost), secondNode), Preferred: secondNode, IfSettings: settings()})
	do(&catalog.MembersReached{ID: former, IfSettings: settings()})
	for _, n := range lost {
		do(&catalog.NodeDown{ID: n, Incarnation: b.cat.View().Node(n).Incarnation, AtMillis: 1})
	}
	do(&catalog.RecoverQueue{ID: former, Survivors: []catalog.NodeID{secondNode}, Lost: lost, IfSettings: settings()})
	close(busy)
	d.await(t, "delete")
}

// survive has a queue with two lost members go on from the other survivor's replica, until this node has stopped its own.
func survive(t *testing.T, d *diary) (b *Broker, do func(cmd catalog.Command) catalog.Result, former, now uint64, lost []catalog.NodeID) {
	t.Helper()
	b, do, former, lost = wide(t, d)
	for _, n := range lost {
		do(&catalog.NodeDown{ID: n, Incarnation: b.cat.View().Node(n).Incarnation, AtMillis: 1})
	}
	settings := b.cat.View().QueueByID(former).Settings
	now = do(&catalog.RecoverQueue{ID: former, Survivors: []catalog.NodeID{secondNode, testNode}, Lost: lost, IfSettings: settings}).ID
	d.await(t, "stop")
	return b, do, former, now, lost
}

// wide declares a queue on two nodes that are to be lost, another one, and this one.
func wide(t *testing.T, d *diary) (b *Broker, do func(cmd catalog.Command) catalog.Result, id uint64, lost []catalog.NodeID) {
	t.Helper()
	b, _, _ = managed(t, d)
	do = func(cmd catalog.Command) catalog.Result {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		r, err := b.cat.Propose(ctx, cmd)
		if err != nil {
			t.Fatalf("%T: %v", cmd, err)
		}
		return r
	}
	lost = []catalog.NodeID{"n3/uuid", "n4/uuid"}
	for _, n := range lost {
		do(&catalog.RegisterNode{ID: n})
	}
	members := append(slices.Clone(lost), secondNode, testNode)
	id = do(&catalog.DeclareQueue{Queue: catalog.Queue{Vhost: "/", Name: "wide", Durable: true, Kind: catalog.Replicated, Members: members, Preferred: testNode}}).ID
	d.await(t, "start 0", "follow n3+n4+n2+n1, led by n1")
	return b, do, id, lost
}
