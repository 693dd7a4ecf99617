package leader

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// limits names verdicts and victims. It counts ready messages: those in the
// machine, without the held and the named ones, plus those on their way in.
type limits struct {
	set                     queue.Settings
	expected, expectedBytes int64
	expectedLength          int64 // of the encoded messages, which is what consumers' windows count
	heldBytes               int64 // body bytes of held and condemned messages
	condemned               map[queue.MessageID]uint32
	condemnedBytes          int64
	freshIDs                queue.IDRange // enqueued by the entries of this step
	// owed are messages that were due when they came, as with a time to live of 0, while
	// deliver was held back although somebody could take them: they wait for that.
	owed map[queue.MessageID]struct{}
	// expireAt is the machine time at which due messages are looked for again: no
	// message nobody holds is due before.
	expireAt int64
	// passed: of the messages that were due by then, none but late is out of a consumer's hands and not named, so that
	// no look has to go through them again.
	passed int64
	// largeAt is when it was logged last that the queue is too large.
	largeAt time.Time
	// late were due by passed, and are out of a consumer's hands again.
	late queue.Set
}

func (m *limits) reload(l *Leader) {
	l.replica.View(func(f *fsm.Machine) { m.set = f.Settings() })
}

func (m *limits) expect(p *proposal, bytes uint32, length int) {
	p.publishes++
	p.publishBytes += int64(bytes)
	p.publishLength += int64(length)
	m.expected++
	m.expectedBytes += int64(bytes)
	m.expectedLength += int64(length)
}

func (m *limits) settle(p proposal) {
	m.expected -= p.publishes
	m.expectedBytes -= p.publishBytes
	m.expectedLength -= p.publishLength
}

func (m *limits) fresh(r queue.IDRange) {
	if r.First > r.Last {
		return
	}
	if m.freshIDs.First == 0 {
		m.freshIDs = r
		return
	}
	m.freshIDs.Last = max(m.freshIDs.Last, r.Last)
}

// readyNow counts messages nobody holds and no command names.
func (l *Leader) readyNow() (n, bytes int64) {
	return l.seen.n - int64(len(l.held)) - int64(len(l.limits.condemned)), l.seen.bytes - l.limits.heldBytes
}

func (m *limits) over(n, bytes int64) bool {
	return m.set.MaxLength >= 0 && n > m.set.MaxLength || m.set.MaxLengthBytes >= 0 && bytes > m.set.MaxLengthBytes
}

// verdict decides on a publish about to be proposed.
func (m *limits) verdict(l *Leader, p fsm.Publish) fsm.Verdict {
	if m.set.DeadLetter && l.outboxFull() {
		return fsm.RefuseOutbox
	}
	if p.Immediate && !l.takesAtOnce() {
		return fsm.RefuseConsumers
	}
	if l.tooLarge() {
		return fsm.RefuseFull
	}
	if m.set.Overflow == queue.DropHead || m.set.MaxLength < 0 && m.set.MaxLengthBytes < 0 {
		return fsm.Accept
	}
	if m.takes(l, 1, int64(p.BodyBytes)) {
		return fsm.Accept
	}
	if m.set.Overflow == queue.RejectPublishDLX && m.set.DeadLetter {
		return fsm.RefuseFullDLX
	}
	return fsm.RefuseFull
}

// takes tells whether so many messages, of so many bytes together, are within the limits. Consumers are looked at only where it depends on them.
func (m *limits) takes(l *Leader, n, bytes int64) bool {
	ready, readyBytes := l.withComing()
	if !m.over(ready+n, readyBytes+bytes) {
		return true
	}
	ready, readyBytes = l.staying(ready, readyBytes)
	return !m.over(ready+n, readyBytes+bytes)
}

func (l *Leader) outboxFull() bool {
	s := &l.limits.set
	return s.OutboxMax > 0 && l.seen.outboxN >= s.OutboxMax || s.OutboxMaxBytes > 0 && l.seen.outboxBytes >= s.OutboxMaxBytes
}

// withComing is readyNow with what is on its way in: what is proposed, and the letters that wait for an entry.
func (l *Leader) withComing() (n, bytes int64) {
	n, bytes = l.readyNow()
	return n + l.limits.expected + l.supply.letters, bytes + l.limits.expectedBytes + l.supply.bodyBytes
}

// staying is what is left of n and bytes, of withComing, when consumers have taken what they take as it comes in, so that a burst to one that
// waits is not refused for its first messages. What is ready although nothing holds deliver back is there to stay, and what comes is behind it.
func (l *Leader) staying(n, bytes int64) (int64, int64) {
	ready, delayed := l.readyCount()
	if ready > 0 && !l.heldBack || l.limits.set.Paused {
		return n, bytes
	}
	coming, comingBytes := n-delayed, l.limits.expectedBytes+l.supply.bodyBytes
	length := l.limits.expectedLength + int64(l.supply.bytes)
	if delayed == 0 {
		length += bytes - comingBytes // of what is ready: not much less than its length
		comingBytes = bytes
	}
	if free := l.free(coming, length); free < coming {
		return n - free, bytes
	}
	return n - coming, bytes - comingBytes
}

// full tells whether a transfer has to wait: the queue is at its limit already
// and refuses publishes.
func (l *Leader) full() bool { return l.fitting(make([]fsm.Transfer, 1)) == 0 }

// fitting tells how many of the transfers, from the first on, do not have to wait for room.
func (l *Leader) fitting(items []fsm.Transfer) int {
	s := &l.limits.set
	if l.tooLarge() {
		return 0
	}
	if s.Overflow == queue.DropHead || s.MaxLength < 0 && s.MaxLengthBytes < 0 {
		return len(items)
	}
	n, bytes := l.withComing()
	for i := range items {
		if s.MaxLength >= 0 && n >= s.MaxLength || s.MaxLengthBytes >= 0 && bytes >= s.MaxLengthBytes {
			return i
		}
		if isLetter(&items[i]) {
			n, bytes = n+1, bytes+int64(items[i].BodyBytes)
		}
	}
	return len(items)
}

// condemn takes a ready message out of reach of consumers until the command
// that names it is applied.
func (l *Leader) condemn(msg queue.Message) {
	l.limits.condemned[msg.ID] = msg.BodyBytes
	l.limits.heldBytes += int64(msg.BodyBytes)
	l.limits.condemnedBytes += int64(msg.BodyBytes)
}

// enforceLimits names the messages that have to make room. It runs before
// answers are sent, so that nobody sees the queue above its limit.
func (l *Leader) enforceLimits() {
	s := l.limits.set
	if s.Overflow != queue.DropHead || s.MaxLength < 0 && s.MaxLengthBytes < 0 {
		return
	}
	n, bytes := l.readyNow()
	if !l.limits.over(n, bytes) {
		return
	}
	// A consumer that can take messages takes them first: length 0 passes what
	// is consumed at once. A get comes after what has to make room.
	l.deliver(false)
	n, bytes = l.readyNow()
	// Expired messages that may stay are out of reach until the mover has decided, which takes as long as the catalog has no majority:
	// that is no reason to let the queue grow.
	most := condemnedMax
	l.replica.View(func(f *fsm.Machine) { most += f.UndecidedLen() })
	var victims []queue.MessageID
	for l.limits.over(n, bytes) && len(l.limits.condemned) < most {
		msg, ok := l.ready.peek(l)
		if !ok {
			break
		}
		l.ready.take(msg)
		l.condemn(msg)
		victims = append(victims, msg.ID)
		n, bytes = n-1, bytes-int64(msg.BodyBytes)
	}
	if len(victims) == 0 {
		return
	}
	// Victims are in the order in which they would have been delivered.
	var d fsm.DropHeads
	for _, id := range victims {
		d.IDs = appendID(d.IDs, id)
	}
	l.pending.add(d, false)
}

// expireDue names the due messages nobody holds, and sets the timer for the
// next.
func (l *Leader) expireDue() {
	now := l.now()
	at := l.limits.expireAt
	if at > now {
		if at != math.MaxInt64 {
			l.wake(time.Duration(min(at-now, expireSleepMax)) * time.Millisecond)
		}
		return
	}
	if len(l.limits.condemned) >= condemnedMax {
		return // goes on when some of them are applied
	}
	if !l.heldBack {
		clear(l.limits.owed)
	}
	var due []queue.Message
	next := int64(math.MaxInt64)
	l.replica.View(func(f *fsm.Machine) {
		q := f.Queue()
		if first, ok := q.NextExpiry(); !ok || first > now {
			if ok {
				next = first
			}
			l.limits.late = queue.Set{} // they are gone
			return
		}
		if due = l.takeLate(q, due); len(due) == expireMax {
			next = now
			return
		}
		last := now
		q.DueAfter(l.limits.passed, now, func(m queue.Message) bool {
			last = m.ExpiresAt
			// The machine may be further than what the consumers have been offered.
			if m.ID <= l.seen.tail && l.reachable(m.ID) && !l.owe(m) {
				due = append(due, m)
			}
			return len(due) < expireMax
		})
		if len(due) == expireMax {
			next, l.limits.passed = now, last-1
			return
		}
		l.limits.passed = now
		if after := q.NextExpiryAfter(now); after > 0 {
			next = after
		}
	})
	l.limits.expireAt = next
	if len(l.limits.owed) > 0 {
		l.limits.expireAt, l.limits.passed = now, 0 // what holds deliver back wakes it
		l.limits.late = queue.Set{}                 // the next look goes through all
	}
	if len(due) > 0 {
		l.nameExpired(due)
	}
	switch {
	case next <= now:
		l.wake(expireGap)
	case next != math.MaxInt64:
		l.wake(time.Duration(min(next-now, expireSleepMax)) * time.Millisecond)
	}
}

// takeLate appends those of the late messages that are to be named, in the order of their instants, as many as one command has.
func (l *Leader) takeLate(q *queue.Queue, due []queue.Message) []queue.Message {
	late := &l.limits.late
	for id, ok := late.First(); ok && len(due) < expireMax; id, ok = late.First() {
		late.Remove(id)
		if m, live := q.Get(queue.MessageID(id)); live && m.ExpiresAt != 0 && l.reachable(m.ID) && !l.owe(m) {
			due = append(due, m)
		}
	}
	slices.SortStableFunc(due, func(a, b queue.Message) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	return due
}

// owe tells whether a due message is kept for a consumer that would have it if
// deliver were not held back.
func (l *Leader) owe(m queue.Message) bool {
	owed := &l.limits.owed
	switch {
	case !l.heldBack || !l.arrivedDue(m):
		return false
	case *owed == nil:
		*owed = map[queue.MessageID]struct{}{}
	case len(*owed) >= owedMax:
		_, has := (*owed)[m.ID]
		return has
	}
	(*owed)[m.ID] = struct{}{}
	return true
}

// oweFresh keeps what is due as it comes in before all consumers are known.
func (l *Leader) oweFresh() {
	f, now := l.limits.freshIDs, l.now()
	if f.First == 0 {
		return
	}
	l.heldBack = true
	l.replica.View(func(m *fsm.Machine) {
		q := m.Queue()
		if first, any := q.NextExpiry(); !any || first > now {
			return
		}
		for id := f.First; id <= f.Last && len(l.limits.owed) < owedMax; id++ {
			if msg, ok := q.Get(id); ok && msg.ExpiresAt != 0 && msg.ExpiresAt <= now {
				l.owe(msg)
			}
		}
	})
}

// arrivedDue tells whether a due message was so when it came, and is to be delivered if
// there is somebody for it now.
func (l *Leader) arrivedDue(m queue.Message) bool {
	if m.Attempt > 0 {
		return false
	}
	if _, owed := l.limits.owed[m.ID]; owed {
		return true
	}
	f := l.limits.freshIDs
	return m.ID >= f.First && m.ID <= f.Last
}

// expiring brings the time of the next look forward for messages that came in.
func (l *Leader) expiring(r queue.IDRange) {
	if r.First > r.Last {
		return
	}
	l.replica.View(func(f *fsm.Machine) {
		q := f.Queue()
		if _, any := q.NextExpiry(); !any {
			return
		}
		for id := r.First; id <= r.Last; id++ {
			if m, ok := q.Get(id); ok {
				l.mayExpire(m)
			}
		}
	})
}

// mayExpire is called for a message that nobody holds any more.
func (l *Leader) mayExpire(m queue.Message) {
	if m.ExpiresAt != 0 {
		l.limits.expireAt = min(l.limits.expireAt, m.ExpiresAt)
		if m.ExpiresAt <= l.limits.passed {
			l.limits.late.Add(uint64(m.ID))
		}
	}
}

// Bounds of expiry: one command's messages, and the pause between two.
const (
	expireMax = 4096
	expireGap = time.Millisecond
	// expireSleepMax (ms) keeps durations far from overflow.
	expireSleepMax = int64(time.Hour / time.Millisecond)
	// condemnedMax bounds the messages that are named and not yet gone. Those of a queue whose expired messages may stay (fsm.Machine.MayStay) are
	// not gone before it is decided. If that takes long, because a way is not known and the catalog has no majority, later ones are named
	// later: they stay in the queue, where no consumer gets them.
	condemnedMax = 4 * expireMax
	// owedMax bounds the due messages that are kept; others expire at once.
	owedMax = expireMax
)

// nameExpired condemns the messages in (expiry, id) order, which is the order
// in which they die.
func (l *Leader) nameExpired(due []queue.Message) {
	var e fsm.Expire
	for _, m := range due {
		l.condemn(m)
		e.IDs = appendID(e.IDs, m.ID)
	}
	l.pending.add(e, false)
}

// reachable tells whether nobody holds the message and no command names it.
func (l *Leader) reachable(id queue.MessageID) bool {
	if _, ok := l.held[id]; ok {
		return false
	}
	_, ok := l.limits.condemned[id]
	return !ok
}

func sortIDs(ids []queue.MessageID) { slices.Sort(ids) }

// onRemoved forgets messages that left the machine.
func (l *Leader) onRemoved(ranges []queue.IDRange) {
	for _, r := range ranges {
		l.delays.RemoveRange(r)
		l.recounting.removed(r)
		if uint64(r.Last-r.First) > uint64(len(l.held)+len(l.limits.condemned)) {
			for id := range l.held {
				if id >= r.First && id <= r.Last {
					l.forget(id)
				}
			}
			for id := range l.limits.condemned {
				if id >= r.First && id <= r.Last {
					l.forget(id)
				}
			}
			continue
		}
		for id := r.First; id <= r.Last; id++ {
			l.forget(id)
		}
	}
}

func (l *Leader) forget(id queue.MessageID) {
	l.letGo(id)
	if b, ok := l.limits.condemned[id]; ok {
		l.limits.heldBytes -= int64(b)
		l.limits.condemnedBytes -= int64(b)
		delete(l.limits.condemned, id)
	}
}

// onReturned makes messages ready again, at their original place.
func (l *Leader) onReturned(ranges []queue.IDRange) {
	for _, r := range ranges {
		for id := r.First; id <= r.Last; id++ {
			l.replica.View(func(f *fsm.Machine) {
				m, ok := f.Queue().Get(id)
				if h, held := l.held[id]; held && ok && h.attempt == m.Attempt {
					return // returned unheld, and delivered again already
				}
				l.forget(id)
				if ok {
					l.recounting.counted(id)
					l.returned(f, m)
					l.mayExpire(m)
				}
			})
		}
	}
}
