package leader

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Standing says where a message of the queue stands.
type Standing uint8

// The standings that can be listed.
const (
	Ready    Standing = iota
	Delayed           // came back, and waits out its retry delay
	Unacked           // delivered, not settled
	Outgoing          // in the outbox, its targets named or about to be
	Parked            // in the outbox without a target
)

// Place is where a listing goes on: behind the message or item with this number. Ready
// messages are listed as they would be delivered, so that a higher priority comes first.
// The zero Place is the beginning.
type Place struct {
	Begun    bool
	Priority uint8
	ID       uint64
}

// Listed is one message of a listing.
type Listed struct {
	Place   Place
	Message queue.Message // but of Outgoing and Parked
	// Redelivered tells whether the message may have been delivered before; Node is the
	// number of the node whose client has it, of Unacked.
	Redelivered bool
	Node        uint32
	Item        dlx.Item // of Outgoing and Parked
}

// Listing is a part of the messages of one standing.
type Listing struct {
	Messages []Listed
	// Next is where to go on. Done: nothing is behind it.
	Next Place
	Done bool
}

// listMax bounds the messages that one call looks at: the queue stands still meanwhile.
const listMax = 2048

var errNotLeading = errors.New("leader: not leading, or not yet")

// List tells up to limit messages of a standing behind a place. It changes nothing and
// may find fewer than there are. The error says that this leader is at its end, or does not know yet
// what consumers hold.
func (l *Leader) List(ctx context.Context, s Standing, after Place, limit int) (Listing, error) {
	limit = min(max(limit, 0), listMax)
	if s == Outgoing || s == Parked {
		return l.listOutbox(s, after, limit), nil
	}
	ask := list{s, after, limit, make(chan *Listing, 1)}
	l.post(ask)
	select {
	case got := <-ask.reply:
		if got == nil {
			return Listing{}, errNotLeading
		}
		return *got, nil
	case <-l.done:
		return Listing{}, errNotLeading
	case <-ctx.Done():
		return Listing{}, ctx.Err()
	}
}

// list asks the leader's goroutine, which alone knows what is held.
type list struct {
	standing Standing
	after    Place
	limit    int
	reply    chan *Listing
}

func (l *Leader) onList(e list) {
	if l.phase != phaseActive {
		e.reply <- nil
		return
	}
	if e.standing == Unacked {
		e.reply <- l.listHeld(e.after, e.limit)
		return
	}
	e.reply <- l.listReady(e.standing == Delayed, e.after, e.limit)
}

func (l *Leader) listReady(delayed bool, after Place, limit int) *Listing {
	got := &Listing{Next: after}
	looked := 0
	l.replica.View(func(f *fsm.Machine) {
		q := f.Queue()
		for p := range q.Priorities() {
			if after.Begun && p > after.Priority {
				continue
			}
			id := queue.MessageID(0)
			if after.Begun && p == after.Priority {
				id = queue.MessageID(after.ID)
			}
			for m, ok := q.Next(p, id); ok && m.ID <= l.seen.tail; m, ok = q.Next(p, id) {
				if looked++; len(got.Messages) == limit || looked > listMax {
					return
				}
				id = m.ID
				got.Next = Place{true, p, uint64(id)}
				if l.reachable(id) && (l.delays.Until(id) > 0) == delayed {
					got.Messages = append(got.Messages, Listed{Place: got.Next, Message: m, Redelivered: m.Attempt > 0 || id <= l.maybeDelivered})
				}
			}
		}
		got.Done = true
	})
	return got
}

func (l *Leader) listHeld(after Place, limit int) *Listing {
	got := &Listing{Next: after}
	ids := l.heldBehind(after, limit+1)
	got.Done = len(ids) <= limit
	l.replica.View(func(f *fsm.Machine) {
		for _, id := range ids[:min(limit, len(ids))] {
			got.Next = Place{Begun: true, ID: uint64(id)}
			if m, ok := f.Queue().Get(id); ok {
				got.Messages = append(got.Messages, Listed{
					Place: got.Next, Message: m, Redelivered: m.Attempt > 0 || id <= l.maybeDelivered, Node: l.held[id].node,
				})
			}
		}
	})
	return got
}

// heldBehind returns the first ids of what is held behind a place, in order. There may be a million of them, and the queue stands still meanwhile: only those that may be among the first are sorted.
func (l *Leader) heldBehind(after Place, count int) (ids []queue.MessageID) {
	last := queue.MessageID(math.MaxUint64) // of the first that were found so far
	for id, h := range l.held {
		if h.named || after.Begun && uint64(id) <= after.ID || id > last {
			continue
		}
		if ids = append(ids, id); len(ids) == 2*count {
			slices.Sort(ids)
			ids = ids[:count]
			last = ids[count-1]
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), count)]
}

func (l *Leader) listOutbox(s Standing, after Place, limit int) Listing {
	got := Listing{Next: after}
	l.replica.View(func(f *fsm.Machine) {
		for looked := 0; ; {
			it, ok := f.Outbox().Next(dlx.ItemID(got.Next.ID))
			if !ok {
				got.Done = true
				return
			}
			if looked++; len(got.Messages) == limit || looked > listMax {
				return
			}
			got.Next = Place{Begun: true, ID: uint64(it.ID)}
			parked := it.State == dlx.ParkedUnrouted || it.State == dlx.ParkedCycle
			if parked == (s == Parked) {
				got.Messages = append(got.Messages, Listed{Place: got.Next, Item: it})
			}
		}
	})
	return got
}
