package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// QueueType is what a queue is to RabbitMQ's metrics.
type QueueType uint8

// The types of queues.
const (
	ClassicQueue QueueType = iota
	QuorumQueue
	queueTypes
)

// String is the value of RabbitMQ's label queue_type.
func (t QueueType) String() string {
	if t == QuorumQueue {
		return "rabbit_quorum_queue"
	}
	return "rabbit_classic_queue"
}

// Strategy says what becomes of dead letters of a queue.
type Strategy uint8

// The strategies.
const (
	StrategyDisabled Strategy = iota // no dead-letter exchange, or it does not exist
	AtMostOnce                       // dropped if there is no route
	AtLeastOnce                      // kept if there is no route
	strategies
)

// String is the value of RabbitMQ's label dead_letter_strategy.
func (s Strategy) String() string {
	return [...]string{"disabled", "at_most_once", "at_least_once"}[s]
}

// DropCause says why a message ended without a consumer's ack, a purge or a target.
type DropCause uint8

// The causes.
const (
	DropNoDLX        DropCause = iota // the queue has no dead-letter exchange
	DropNoExchange                    // its dead-letter exchange does not exist
	DropUnroutable                    // that exchange routes it nowhere
	DropCycle                         // only to where it came from without a client's doing
	DropQueueDeleted                  // it was in a queue when that was deleted
	dropCauses
)

// String is the value of the label cause.
func (c DropCause) String() string {
	return [...]string{"no_dlx", "no_exchange", "unroutable", "cycle", "queue_deleted"}[c]
}

// DropCauses are all causes, in the order of their values.
func DropCauses() []DropCause {
	return []DropCause{DropNoDLX, DropNoExchange, DropUnroutable, DropCycle, DropQueueDeleted}
}

// dropCause is the cause of a drop that the log names.
func dropCause(d fsm.Dropped, set *queue.Settings) DropCause {
	switch d.Cause {
	case fsm.HasTargets:
		return DropQueueDeleted
	case fsm.DropUnrouted:
		return DropUnroutable
	case fsm.DropCycle:
		return DropCycle
	}
	if set.DeadLetter {
		return DropNoExchange
	}
	return DropNoDLX
}

// DeadReasons are the reasons for which messages die, in the order of their values.
func DeadReasons() []dlx.Reason {
	return []dlx.Reason{dlx.Rejected, dlx.Expired, dlx.MaxLen, dlx.DeliveryLimit, dlx.QueueRemoved}
}

// DeadTotals are what the leaders on this node have counted since the process began. An
// entry of a queue's log is counted by the leader that proposed it, when it is applied
// there: never twice, and not at all if that leader ended before.
type DeadTotals struct {
	Died      [queueTypes][strategies][dlx.LastDeath + 1]uint64
	Confirmed [queueTypes][strategies]uint64 // taken by every target
	Dropped   [dropCauses]uint64
	// Waited counts the confirmed ones by the time since their death, see
	// fsm.DeadCounts.
	Waited       [fsm.WaitedBuckets]uint64
	WaitedMillis uint64
	// Forwarded are messages of delayed exchanges that went on to all their targets.
	Forwarded uint64
	// Redriven are messages that redrives have sent back and all their targets have taken.
	Redriven uint64
}

// deadTotals is DeadTotals in the making.
type deadTotals struct {
	died         [queueTypes][strategies][dlx.LastDeath + 1]atomic.Uint64
	confirmed    [queueTypes][strategies]atomic.Uint64
	dropped      [dropCauses]atomic.Uint64
	waited       [fsm.WaitedBuckets]atomic.Uint64
	waitedMillis atomic.Uint64
	forwarded    atomic.Uint64
	redriven     atomic.Uint64
}

// DeadTotals reads the counters.
func (b *Broker) DeadTotals() (t DeadTotals) {
	c := &b.dead
	for i := range t.Died {
		for j := range t.Died[i] {
			for k := range t.Died[i][j] {
				t.Died[i][j][k] = c.died[i][j][k].Load()
			}
			t.Confirmed[i][j] = c.confirmed[i][j].Load()
		}
	}
	for i := range t.Dropped {
		t.Dropped[i] = c.dropped[i].Load()
	}
	for i := range t.Waited {
		t.Waited[i] = c.waited[i].Load()
	}
	t.WaitedMillis, t.Forwarded, t.Redriven = c.waitedMillis.Load(), c.forwarded.Load(), c.redriven.Load()
	return t
}

// observer counts what the leader of one queue applies.
type observer struct {
	b           *Broker
	id          uint64
	kind        QueueType
	vhost, name string
	drops       dropLog
}

func newObserver(b *Broker, q *catalog.Queue) *observer {
	return &observer{b: b, id: q.ID, kind: typeOf(q), vhost: q.Vhost, name: q.Name}
}

func typeOf(q *catalog.Queue) QueueType {
	if isQuorum(q.Arguments) {
		return QuorumQueue
	}
	return ClassicQueue
}

// observe has the form of leader.Config.Observe.
func (o *observer) observe(r *fsm.Result, set *queue.Settings) {
	c := &o.b.dead
	for _, d := range r.Dropped {
		cause := dropCause(d, set)
		c.dropped[cause].Add(d.Count)
		if line, ok := o.drops.note(cause, d.Count, time.Now()); ok {
			o.b.cfg.Logger.Warn("dead letters dropped", "queue", o.name, "vhost", o.vhost, "id", o.id, "cause", cause.String(),
				"count", line, "exchange", set.DeadLetterExchange)
		}
	}
	if r.Dead == nil {
		return
	}
	c.redriven.Add(r.Dead.Redriven)
	if set.Delayed { // nothing has died
		c.forwarded.Add(r.Dead.Moved)
		return
	}
	s := o.strategy(set)
	for reason, n := range r.Dead.Died {
		if n > 0 {
			c.died[o.kind][s][reason].Add(n)
		}
	}
	if r.Dead.Moved == 0 {
		return
	}
	c.confirmed[o.kind][s].Add(r.Dead.Moved)
	c.waitedMillis.Add(r.Dead.WaitedMillis)
	for i, n := range r.Dead.Waited {
		if n > 0 {
			c.waited[i].Add(n)
		}
	}
}

// strategy is the one that RabbitMQ would count under: without an exchange at the time of
// death there is none, except that at-least-once keeps the letters.
func (o *observer) strategy(set *queue.Settings) Strategy {
	switch {
	case !set.DeadLetter:
		return StrategyDisabled
	case set.AtLeastOnce:
		return AtLeastOnce
	case set.DeadLetterExchange != "" && o.b.cat.View().Exchange(o.vhost, set.DeadLetterExchange) == nil:
		return StrategyDisabled
	}
	return AtMostOnce
}

// dropLogEvery is the least time between two log lines on drops of one queue for one
// cause.
const dropLogEvery = time.Minute

// dropLog bounds the log lines about one queue's drops. A queue that drops nothing keeps
// nothing.
type dropLog struct {
	mu     sync.Mutex
	causes map[DropCause]*dropLine
}

type dropLine struct {
	last  time.Time
	count uint64
}

// note counts n drops and tells whether a line is due, and for how many. What happens to
// queues as they were declared, without an exchange or deleted with their messages, is no
// news.
func (l *dropLog) note(cause DropCause, n uint64, now time.Time) (count uint64, due bool) {
	if cause == DropNoDLX || cause == DropQueueDeleted {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.causes == nil {
		l.causes = map[DropCause]*dropLine{}
	}
	x := l.causes[cause]
	if x == nil {
		x = &dropLine{}
		l.causes[cause] = x
	}
	x.count += n
	if !x.last.IsZero() && now.Sub(x.last) < dropLogEvery {
		return 0, false
	}
	count, x.count, x.last = x.count, 0, now
	return count, true
}
