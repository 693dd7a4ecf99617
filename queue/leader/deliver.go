package leader

import (
	"container/heap"
	"time"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// hold is a delivery that has not been settled in the log.
type hold struct {
	node    uint32
	no      wire.ConsumerNo
	attempt uint32
	bytes   uint32
	// named: a command that settles or returns it is in the entry by, proposed or the
	// next.
	named bool
	// back: it is on its way back into the queue, or may be.
	back bool
	// free: it does not count toward its consumer's prefetch any more. It does not from the
	// moment at which a settlement that ends the message arrives; one that goes back counts until
	// it is there, so that its consumer gets nothing before it that is behind it. A consumer's
	// unacked are its holds that are not free.
	free bool
	by   uint64
}

// readyView walks the machine's ready messages in delivery order. Below a
// lane's cursor everything was handed out or named; what came back since waits
// in the lane's heap.
type readyView struct {
	cursor map[uint8]queue.MessageID
	back   map[uint8]*idHeap
	// unseen are the lanes of messages below their lane's cursor that came back without a client having seen them.
	unseen map[queue.MessageID]uint8
	// purging: ids up to it may be named by the purge in entry purgedBy, which is
	// not applied.
	purging  queue.MessageID
	purgedBy uint64
}

func (v *readyView) init() {
	v.cursor = map[uint8]queue.MessageID{}
	v.back = map[uint8]*idHeap{}
	v.unseen = map[queue.MessageID]uint8{}
}

// putBack makes a message that was held ready again. Above the cursor it will be
// met anyway.
func (v *readyView) putBack(m queue.Message) {
	if m.ID > v.cursor[m.Priority] {
		return
	}
	h := v.back[m.Priority]
	if h == nil {
		h = &idHeap{}
		v.back[m.Priority] = h
	}
	heap.Push(h, m.ID)
}

// unhand makes a message ready again that was held and that no client has seen. The cursor stays behind what somebody may
// have seen: see passed.
func (v *readyView) unhand(m queue.Message) {
	v.putBack(m)
	c := v.cursor[m.Priority]
	if m.ID > c || m.Attempt > 0 {
		return
	}
	v.unseen[m.ID] = m.Priority
	for {
		if lane, ok := v.unseen[c]; !ok || lane != m.Priority {
			break
		}
		delete(v.unseen, c)
		c--
	}
	v.cursor[m.Priority] = c // what is above it in the heap is met anyway
}

// passed tells whether somebody may have seen a message behind a ready one, which then comes out of order: it is flagged.
func (v *readyView) passed(m queue.Message) bool { return m.ID <= v.cursor[m.Priority] }

// peek returns the message to be delivered next, without taking it.
func (v *readyView) peek(l *Leader) (msg queue.Message, ok bool) {
	l.replica.View(func(f *fsm.Machine) {
		q := f.Queue()
		// Not by an iterator: it would be allocated, and the message too, for each delivery.
		p, more := q.Highest(256)
		for more && !ok {
			msg, ok = v.peekLane(l, q, p)
			p, more = q.Highest(int(p))
		}
	})
	return msg, ok
}

func (v *readyView) peekLane(l *Leader, q *queue.Queue, p uint8) (queue.Message, bool) {
	if h := v.back[p]; h != nil {
		for h.Len() > 0 {
			id := (*h)[0]
			if m, ok := q.Get(id); ok && id <= v.cursor[p] && l.reachable(id) && l.delays.Until(id) == 0 {
				return m, true
			}
			heap.Pop(h)
			delete(v.unseen, id)
		}
	}
	for {
		m, ok := q.Next(p, v.cursor[p])
		if !ok || m.ID > l.seen.tail {
			return m, false
		}
		if l.reachable(m.ID) && l.delays.Until(m.ID) == 0 {
			return m, true
		}
		v.cursor[p] = m.ID
	}
}

// take moves past a message that peek returned.
func (v *readyView) take(m queue.Message) {
	if h := v.back[m.Priority]; h != nil && h.Len() > 0 && (*h)[0] == m.ID {
		heap.Pop(h)
		delete(v.unseen, m.ID)
		return
	}
	v.cursor[m.Priority] = m.ID
}

type idHeap []queue.MessageID

func (h idHeap) Len() int           { return len(h) }
func (h idHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h idHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *idHeap) Push(x any)        { *h = append(*h, x.(queue.MessageID)) }
func (h *idHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// deliverable tells whether a ready message may go out now. A message whose
// instant has passed expires instead, unless it arrived in this very step with
// a TTL of 0: then a consumer that is ready gets it, but no get. So it does if it has only waited
// since for deliver to go on.
func (l *Leader) deliverable(m queue.Message, now int64) bool {
	return !isDue(m, now) || l.consumers.anyCredit() && l.arrivedDue(m)
}

// isDue tells whether a message's instant has passed.
func isDue(m queue.Message, now int64) bool { return m.ExpiresAt != 0 && m.ExpiresAt <= now }

// passMax bounds the expired messages that a step passes on its way to a message for somebody.
const passMax = condemnedMax

// deliver hands out ready messages while there is credit, and then serves gets, unless they are to wait: those of a queue that is paused find
// it empty. It notes whether something else than that keeps it from delivering.
func (l *Leader) deliver(gets bool) {
	l.heldBack = false
	paused := l.limits.set.Paused
	gets = gets && len(l.gets) > 0
	if l.closing.closed || !gets && (paused || !l.consumers.anyCredit()) {
		return // what a closed queue has dies
	}
	if !l.cfg.Log.HasLease() {
		l.heldBack = true
		l.wake(leaseRetry)
		return
	}
	if paused {
		l.answerEmptyGets(false)
		return
	}
	if l.consumers.single && l.single.returning > 0 {
		l.heldBack = true
		return // until it is back
	}
	if len(l.recounting.flying) > 0 {
		l.heldBack = true
		return
	}
	l.deliverReady(gets)
}

// deliverReady does so from the first message on that is ready.
func (l *Leader) deliverReady(gets bool) {
	now := l.now()
	mark := l.seen.mark
	defer l.consumers.restore()
	passed := 0 // expired ones
	for {
		var get *wire.Get
		if gets {
			get = l.nextGet()
		}
		if get == nil && !l.consumers.anyCredit() {
			return
		}
		msg, ok := l.ready.peek(l)
		if !ok || msg.ID <= l.ready.purging {
			if gets {
				l.answerEmptyGets(ok)
			}
			return
		}
		if !l.deliverable(msg, now) {
			// expireDue names it, as many at a time as an entry should have.
			l.ready.take(msg)
			l.mayExpire(msg)
			if passed++; passed == passMax {
				l.heldBack = true
				l.wake(0)
				return
			}
			continue
		}
		if l.recounting.wants(msg.ID) {
			l.heldBack = true
			l.recount(now)
			return
		}
		if msg.ID > mark && !failpoint.Sown(failpoint.DeliverBeyond) {
			l.heldBack = true
			l.reserve(msg.ID)
			return
		}
		if isDue(msg, now) {
			get = nil
		}
		if !l.deliverOne(get, msg) {
			return
		}
	}
}

// deliverOne hands a message to the consumer whose turn it is. A get is served where no consumer takes it: consumers that are ready have what
// came in before the get, as in RabbitMQ. It is false if nobody can take it now.
func (l *Leader) deliverOne(get *wire.Get, msg queue.Message) bool {
	var c *consumer
	if l.consumers.anyCredit() {
		c = l.consumers.next(l.takes)
	}
	if c == nil && get == nil {
		return false
	}
	item, ok := l.item(msg)
	if !ok {
		if c != nil {
			l.consumers.changed(c)
		}
		return false
	}
	l.ready.take(msg)
	if c != nil {
		l.handOut(c, msg, item)
	} else {
		l.serveGet(get, msg, item)
	}
	return true
}

// reserve asks for the delivered mark to be raised past id in the next entry.
func (l *Leader) reserve(id queue.MessageID) {
	want := max(id, min(l.seen.tail, id+markReserve-1))
	for _, p := range l.inFlight {
		if p.mark >= id {
			return
		}
	}
	l.pending.mark = max(l.pending.mark, want)
}

// item reads the message. A read that fails is tried again later: the entry is
// pinned, so only a damaged disk makes it fail for good.
func (l *Leader) item(m queue.Message) (wire.Item, bool) {
	data, err := l.cache.read(l.cfg.Log, m.Ref.Index)
	if err != nil || uint64(len(data)) < uint64(m.Ref.Offset)+uint64(m.Ref.Length) {
		l.cfg.Logger.Error("message cannot be read", "queue", l.cfg.Queue, "message", m.ID, "index", m.Ref.Index, "err", err)
		l.wake(time.Second)
		return wire.Item{}, false
	}
	return wire.Item{
		ID: m.ID, Attempt: m.Attempt, Failed: m.Failed,
		Redelivered: m.Attempt > 0 || m.ID <= l.maybeDelivered || l.ready.passed(m),
		Message:     data[m.Ref.Offset : m.Ref.Offset+m.Ref.Length],
	}, true
}

// entryCache keeps the entry read last: a batch's messages are delivered one
// after the other.
type entryCache struct {
	index uint64
	data  []byte
	at    time.Time // when it was read
}

// entryRest is how long an entry is kept while there is something to deliver, which may be in it.
const entryRest = time.Second

// restEntry lets go of the entry read last when nothing is ready, or it was read a while ago. The bytes are those of a stretch of the log,
// a MiB of all queues' entries, which stays in memory as long as one of them is kept.
func (l *Leader) restEntry() {
	if l.cache.data == nil {
		return
	}
	left := entryRest - time.Since(l.cache.at)
	if n, _ := l.readyCount(); n == 0 || left <= 0 {
		l.cache = entryCache{}
		return
	}
	l.wakeForUpkeep(left)
}

func (c *entryCache) read(log Log, index uint64) ([]byte, error) {
	if c.index == index && c.data != nil {
		return c.data, nil
	}
	data, err := log.Read(index)
	if err != nil {
		return nil, err
	}
	c.index, c.data, c.at = index, data, time.Now()
	return data, nil
}

func (l *Leader) handOut(c *consumer, m queue.Message, item wire.Item) {
	item.No = c.no
	c.window.messages--
	c.window.bytes -= int64(len(item.Message))
	l.hold(m, c.node, c.no)
	c.unacked++
	l.out.deliver(c.peer, l.cfg.Queue, l.cfg.Session, l.resyncNo(c.node), item)
	l.consumers.changed(c)
}

func (l *Leader) hold(m queue.Message, node uint32, no wire.ConsumerNo) {
	l.held[m.ID] = hold{node: node, no: no, attempt: m.Attempt, bytes: m.BodyBytes}
	l.limits.heldBytes += int64(m.BodyBytes)
	delete(l.limits.owed, m.ID)
}

// name marks a hold whose end is proposed; back tells that the message stays, and with it
// what it counts.
func (l *Leader) name(id queue.MessageID, h hold, back bool) {
	h.named, h.by = true, l.ordinal+1
	l.ends(&h, back)
	l.held[id] = h
	l.named++
	l.namedSize += int64(h.bytes)
	l.pending.names++
}

// reviveNamed looks for holds that an applied entry should have ended and did not: the
// operation that names them may have been in an earlier entry, too, where it named less.
// Such a hold is its node's again, and the node is asked.
func (l *Leader) reviveNamed(applied uint64) {
	expected := l.pending.names
	for _, p := range l.inFlight {
		expected += p.names
	}
	if l.named <= expected {
		return
	}
	var stale []queue.MessageID
	for id, h := range l.held {
		if h.named && h.by <= applied {
			stale = append(stale, id)
		}
	}
	sortIDs(stale)
	for _, id := range stale {
		l.revive(id)
	}
}

func (l *Leader) revive(id queue.MessageID) {
	h := l.held[id]
	var msg queue.Message
	var ok bool
	l.replica.View(func(f *fsm.Machine) { msg, ok = f.Queue().Get(id) })
	if !ok || msg.Attempt != h.attempt {
		return // a later entry has ended it, whose result is on its way
	}
	p := l.peers[h.node]
	if p == nil {
		l.letGo(id)
		l.maybeDelivered = max(l.maybeDelivered, id)
		l.recounting.more.Add(uint64(id))
		l.ready.putBack(msg)
		l.mayExpire(msg)
		return
	}
	h.named, h.by = false, 0
	l.setBack(&h, false)
	l.charge(&h)
	l.held[id] = h
	l.named--
	l.namedSize -= int64(h.bytes)
	l.callRoll(p.id)
}

// letGo ends a hold.
func (l *Leader) letGo(id queue.MessageID) {
	h, ok := l.held[id]
	if !ok {
		return
	}
	l.release(&h)
	if h.named {
		l.named--
		l.namedSize -= int64(h.bytes)
	}
	l.setBack(&h, false)
	l.limits.heldBytes -= int64(h.bytes)
	delete(l.held, id)
	delete(l.recounting.flying, id)
}

// resyncNo is the number of a node's newest Resync.
func (l *Leader) resyncNo(node uint32) uint64 {
	if p := l.peers[node]; p != nil {
		return p.resync
	}
	return 0
}

// ends notes what a settlement makes of a hold: the message goes back into the queue, or is
// settled for good and counts no more.
func (l *Leader) ends(h *hold, back bool) {
	l.setBack(h, back)
	if !back {
		l.release(h)
	}
}

// release gives a hold's credit back to its consumer, once.
func (l *Leader) release(h *hold) {
	if h.free {
		return
	}
	h.free = true
	if c := l.consumers.find(h.node, h.no); c != nil && c.unacked > 0 {
		c.unacked--
		l.consumers.changed(c)
	}
}

// charge takes the credit of a hold again that has given it back, if its consumer is there.
func (l *Leader) charge(h *hold) {
	if c := l.consumers.find(h.node, h.no); h.free && c != nil {
		h.free = false
		c.unacked++
		l.consumers.changed(c)
	}
}

// nextGet returns the first get whose node's earlier operations are applied and that can be answered.
func (l *Leader) nextGet() *wire.Get {
	for _, g := range l.gets {
		if (g.After == 0 || l.watermark(g.Origin) >= g.After) && l.takes(l.getsFrom[g]) {
			return g
		}
	}
	return nil
}

func (l *Leader) dropGet(g *wire.Get) (from string) {
	for i, have := range l.gets {
		if have == g {
			l.gets = append(l.gets[:i], l.gets[i+1:]...)
			break
		}
	}
	from = l.getsFrom[g]
	delete(l.getsFrom, g)
	return from
}

func (l *Leader) serveGet(g *wire.Get, m queue.Message, item wire.Item) {
	from := l.dropGet(g)
	l.hold(m, g.Origin.Node, 0)
	n, _ := l.readyCount()
	l.out.node(from).handed += len(item.Message)
	l.out.send(from, &wire.Got{Queue: l.cfg.Queue, Req: g.Req, Session: l.cfg.Session, Resync: l.resyncNo(g.Origin.Node), Found: true, Item: item, Remaining: uint32(n)})
}

// answerEmptyGets tells waiting gets that nothing is ready. blocked means that
// something may be ready after a purge in flight.
func (l *Leader) answerEmptyGets(blocked bool) {
	if blocked {
		return
	}
	for g := l.nextGet(); g != nil; g = l.nextGet() {
		l.out.send(l.dropGet(g), &wire.Got{Queue: l.cfg.Queue, Req: g.Req, Session: l.cfg.Session, Resync: l.resyncNo(g.Origin.Node)})
	}
}
