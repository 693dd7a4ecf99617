package leader

import (
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// recounting counts deliveries that an earlier leader may have made and nobody tells of: those
// of a node that is silent or gone. Such a message gets its next attempt number through the log
// before it is delivered here, so that the number (x-acquired-count) grows with each holding, and
// what a lost holder still says names one that is over.
type recounting struct {
	// upTo is the mark found at activation: what is at or below it may be held, unless it has
	// come back in this session.
	upTo queue.MessageID
	// done are those at or below upTo that have; more are others whose holder was lost.
	done queue.Set
	more queue.Set
	// flying are on their way through the log. Nothing else is delivered meanwhile: what
	// follows them must not be faster.
	flying map[queue.MessageID]struct{}
}

// recountMax bounds the messages of one command.
const recountMax = 1024

func (c *recounting) init(mark queue.MessageID) {
	*c = recounting{upTo: mark, flying: map[queue.MessageID]struct{}{}}
}

// wants tells whether a message has to be counted before it is delivered.
func (c *recounting) wants(id queue.MessageID) bool {
	return id <= c.upTo && !c.done.Has(uint64(id)) || c.more.Has(uint64(id))
}

// counted notes that a message has got another attempt number.
func (c *recounting) counted(id queue.MessageID) {
	if id <= c.upTo {
		c.done.Add(uint64(id))
	}
	c.more.Remove(uint64(id))
}

// removed forgets messages that are gone.
func (c *recounting) removed(r queue.IDRange) {
	for _, s := range []*queue.Set{&c.done, &c.more} {
		for x, ok := s.Next(uint64(r.First) - 1); ok && x <= uint64(r.Last); x, ok = s.Next(x) {
			s.Remove(x)
		}
	}
}

// recount proposes the count of what would be delivered next, as much as consumers and gets can
// take.
func (l *Leader) recount(now int64) {
	want := int64(len(l.gets))
	for _, c := range l.consumers.byKey {
		if c.able {
			want += c.free()
		}
	}
	r := fsm.Return{Kind: fsm.Recount}
	for n := int64(0); n < min(want, recountMax); n++ {
		msg, ok := l.ready.peek(l)
		if !ok || msg.ID <= l.ready.purging || !l.recounting.wants(msg.ID) || !l.deliverable(msg, now) {
			break
		}
		l.ready.take(msg)
		l.hold(msg, 0, 0)
		l.name(msg.ID, l.held[msg.ID], true)
		l.recounting.flying[msg.ID] = struct{}{}
		r.Runs = appendRun(r.Runs, msg.ID, msg.Attempt)
	}
	l.pending.add(r, false)
}
