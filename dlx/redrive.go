package dlx

import (
	"cmp"
	"slices"

	"github.com/warrenmq/warren/queue"
)

// RedriveTo says where a redrive sends messages.
type RedriveTo uint8

// The ways of a redrive.
const (
	ToLastQueue  RedriveTo = iota // the queue in which the message died last
	ToFirstQueue                  // the queue in which it died first
	ToExchange                    // the exchange and keys it had at its first death
	ToNamedQueue                  // one queue for all
)

// RedriveSpec says what a redrive does with which messages.
type RedriveSpec struct {
	// Token is the request's own: asked for again, it is the same redrive.
	Token uint64
	// Discard removes the messages instead of sending them.
	Discard bool
	To      RedriveTo
	Queue   string // of ToNamedQueue
	Filter  Filter
	// Rate is how many messages a second are sent at most; 0: as fast as targets take them.
	Rate uint32
}

// Redriving is what a queue knows of its newest redrive. Each message between the start and Tail is
// decided on once; the counts say how.
type Redriving struct {
	Number uint64 // counts the queue's redrives, from 1
	Spec   RedriveSpec
	// StartedMillis and EndedMillis are machine times; EndedMillis is 0 as long as it runs or
	// messages are under way.
	StartedMillis, EndedMillis int64
	// Tail is the newest message there was at the start, Cursor the newest one decided on.
	Tail, Cursor queue.MessageID
	Stopped      bool
	RedriveCounts
	// Moved messages have been taken by their targets, or discarded. Returned ones have come back to
	// their place, because the target has gone, or was full when the redrive was stopped.
	Moved, Returned uint64
}

// RedriveCounts say why messages that the filter takes were passed over.
type RedriveCounts struct {
	NoOrigin uint64 // no death says where they came from
	Missing  uint64 // there is no such queue or route
	Busy     uint64 // with a consumer, or waiting out a delay
}

// Searching reports whether there are messages to decide on.
func (r *Redriving) Searching() bool {
	return r.Number > 0 && !r.Stopped && r.EndedMillis == 0 && r.Cursor < r.Tail
}

// Origin returns the death that says where a message of the queue here came from: the
// newest in another queue, or the first. nil if there is none.
func Origin(deaths []Death, first bool, here string) *Death {
	var found *Death
	for i := range deaths {
		d := &deaths[i]
		switch {
		case d.Queue == here:
		case !first:
			return d
		case found == nil || d.FirstMillis <= found.FirstMillis:
			found = d
		}
	}
	return found
}

// Redriven returns the letter as it was before the death from: exchange and routing keys
// as they were then. Its history stays, so that counts go on, and is marked: what
// comes after a redrive makes no cycle with what was before. from may be nil.
func Redriven(m Letter, from *Death) Letter {
	if from != nil {
		m.Exchange = from.Exchange
		if len(from.RoutingKeys) > 0 {
			m.RoutingKeys, m.BCC = from.RoutingKeys, 0
		}
	}
	deaths := make([]Death, len(m.Deaths))
	copy(deaths, m.Deaths)
	for i := range deaths {
		deaths[i].Redriven, deaths[i].Before = i == 0, deaths[i].Count
	}
	m.Deaths = deaths
	return m
}

// Retried reports whether somebody has sent a message with this history back after a death: a redrive, or a client that published it
// with its x-death header. How often is not known: the history keeps the newest time only.
func Retried(deaths []Death) bool {
	return slices.ContainsFunc(deaths, func(d Death) bool { return d.Before > 0 })
}

// SinceRetry counts the deaths after the newest time that somebody sent the message back, and all of them if nobody did.
func SinceRetry(deaths []Death) (n uint64) {
	for i := range deaths {
		n += deaths[i].Count - min(deaths[i].Before, deaths[i].Count)
	}
	return n
}

// Source returns the death that the redrive goes by, nil if there is none.
func (s *RedriveSpec) Source(deaths []Death, here string) *Death {
	return Origin(deaths, s.To == ToFirstQueue || s.To == ToExchange, here)
}

// Redrive takes in a live message on its way back, with its targets, each once. Closed
// ones are left out; ok is false if none is left, and nothing is added then.
func (o *Outbox) Redrive(ref queue.Ref, bodyBytes uint32, timeMillis int64, targets []uint64) (id ItemID, ok bool) {
	if !slices.ContainsFunc(targets, func(t uint64) bool { _, open := o.present(t); return open }) {
		return 0, false
	}
	id = o.Add(ref, bodyBytes, Redrive, timeMillis)
	return id, o.Route(id, targets)
}

// renew sends an item to a target once more that has told not to have taken it, behind all that
// is under way to it.
func (o *Outbox) renew(p *page, slot int, id ItemID, target uint64) {
	t, it := o.targets[target], p.item(slot)
	legs := append(slices.Clone(it.Legs), Leg{target, t.next})
	slices.SortFunc(legs, func(a, b Leg) int { return cmp.Compare(a.Target, b.Target) })
	p.setLegs(slot, legs)
	t.next++
	o.pend(target, t, id)
}
