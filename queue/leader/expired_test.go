package leader

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// expireLog notes how many messages the largest of its entries lets expire.
type expireLog struct {
	*MemLog
	mu   sync.Mutex
	most int
}

func (l *expireLog) Propose(data []byte, done func(error)) {
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	n := 0
	for _, c := range e.Commands {
		if x, ok := c.(fsm.Expire); ok {
			for _, r := range x.IDs {
				n += int(r.Last - r.First + 1)
			}
		}
	}
	l.mu.Lock()
	l.most = max(l.most, n)
	l.mu.Unlock()
	l.MemLog.Propose(data, done)
}

// What has expired while a queue had no leader is named bit by bit, also if a consumer waits for what is behind it: the
// queue does not stand still for all of it, and no entry is as long as the queue.
func TestExpiredBacklogBeforeAConsumer(t *testing.T) {
	for _, by := range []string{"consume", "get"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			a := node(1)
			r := newRig(t, plain(), a)
			var ahead atomic.Int64
			r.nowMS = func() int64 { return time.Now().UnixMilli() + ahead.Load() }
			r.lead()
			r.answerRoll(a)
			const backlog = 2 * condemnedMax
			for i := 0; i < backlog; i += 4096 {
				ops := make([]fsm.Op, 4096)
				for k := range ops {
					// Their instants fall and rise, so that the numbers do not follow each other in the order of expiry.
					ops[k] = living(strconv.Itoa(i+k), time.Hour.Milliseconds()+int64((i+k)*7919%1000))
				}
				last := r.batch(a, ops...)
				await(r, a.ID, func(m *wire.Answer) bool { return m.UpTo >= last })
			}
			r.publish(a, "alive")
			ahead.Add(2 * time.Hour.Milliseconds())
			log := &expireLog{MemLog: r.log}
			r.change = func(c *Config) { c.Log = log }
			r.lead()
			rc := await(r, a.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
			m := &wire.Resync{Queue: 7, Session: rc.Session, No: 1, Origin: a.Origin}
			var got wire.Item
			if by == "consume" {
				m.Consumers = []wire.Consumer{{No: 1, WindowMessages: 1000, WindowBytes: 1 << 20}}
				r.l.Receive(a.ID, m)
				got = r.items(a, 1)[0]
			} else {
				r.l.Receive(a.ID, m)
				got = r.get(a, 1).Item
			}
			if b := bodyOf(t, got); b != "alive" {
				t.Fatalf("got %q", b)
			}
			r.countReady(a, 0)
			log.mu.Lock()
			defer log.mu.Unlock()
			if log.most > condemnedMax+expireMax {
				t.Fatalf("an entry names %d messages", log.most)
			}
		})
	}
}

// TestUndecidedDoNotLiftTheLimit: as many expired messages as can be named wait for the decision whether they stay. The queue keeps to its length all the same.
func TestUndecidedDoNotLiftTheLimit(t *testing.T) {
	t.Parallel()
	set := plain()
	set.DeadLetter, set.DeadLetterExchange, set.StopTTL, set.MaxLength, set.Overflow = true, "x", true, expireMax, queue.DropHead
	a := node(1)
	r := newRig(t, set, a) // its mover never decides
	var ahead atomic.Int64
	r.nowMS = func() int64 { return time.Now().UnixMilli() + ahead.Load() }
	r.lead()
	r.answerRoll(a)
	fill := func(n int, op fsm.Publish) {
		last := r.batch(a, slices.Repeat([]fsm.Op{op}, n)...)
		await(r, a.ID, func(m *wire.Answer) bool { return m.UpTo >= last })
	}
	for range condemnedMax / expireMax {
		fill(expireMax, living("expires", time.Hour.Milliseconds()))
		ahead.Add(2 * time.Hour.Milliseconds())
		r.countReady(a, 0)
	}
	fill(expireMax+7, pub("stays"))
	if s := r.status(a, 1000); s.Ready != expireMax {
		t.Errorf("%d are ready, the limit is %d: %+v", s.Ready, expireMax, s)
	}
}
