package broker

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// A delivery that its client does not settle in time goes back to its queue, and the
// consumer ends. The node of the client sees to it, because it knows who holds what
// whatever leads the queue. Deliveries are counted by the slice of time they came in,
// so that a message costs no timer.

const consumerTimeoutArg = "x-consumer-timeout"

// ageSlices is how many slices a timeout is divided into: it may come later by one.
const ageSlices = 16

// ageSliceMin is the shortest slice.
const ageSliceMin = 10 * time.Millisecond

// aging is what one consumer, or all gets from a queue, hold, by age. It is guarded by
// the stream's mutex.
type aging struct {
	timeout  time.Duration
	consumer *Consumer // nil: fetched by get
	slices   []ageSlice
}

// ageSlice counts the deliveries that came in a slice of time, which began at since.
type ageSlice struct {
	since time.Duration
	n     int
}

// newAging returns nil if there is no timeout.
func newAging(timeout time.Duration, c *Consumer) *aging {
	if timeout <= 0 {
		return nil
	}
	return &aging{timeout: timeout, consumer: c}
}

func (a *aging) slice() time.Duration { return max(a.timeout/ageSlices, ageSliceMin) }

func (a *aging) add(now time.Duration) (since time.Duration) {
	since = now.Truncate(a.slice())
	if n := len(a.slices); n > 0 && a.slices[n-1].since >= since {
		a.slices[n-1].n++
		return a.slices[n-1].since
	}
	a.slices = append(a.slices, ageSlice{since, 1})
	return since
}

func (a *aging) remove(since time.Duration) {
	for i := range a.slices {
		if a.slices[i].since == since {
			a.slices[i].n--
			break
		}
	}
	for len(a.slices) > 0 && a.slices[0].n == 0 {
		a.slices = a.slices[1:]
	}
	if len(a.slices) == 0 {
		a.slices = nil
	}
}

// overdueAt is when deliveries of that slice have all passed their time.
func (a *aging) overdueAt(since time.Duration) time.Duration { return since + a.slice() + a.timeout }

// consumerTimeout is how long a consumer may hold a message: what it asks for, or what
// its queue has in effect, or the node's default, which is for quorum queues as in RabbitMQ.
// The arguments have been checked.
func consumerTimeout(consumer, queue amqp.Table, byDefault time.Duration) time.Duration {
	if _, ok := consumer.Get(consumerTimeoutArg); ok {
		return millis(intArg(consumer, consumerTimeoutArg, 0))
	}
	if _, ok := queue.Get(consumerTimeoutArg); ok || !isQuorum(queue) {
		return millis(intArg(queue, consumerTimeoutArg, 0))
	}
	return byDefault
}

func millis(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(4*time.Millisecond))) * time.Millisecond
}

// retime gives consumers that ask for nothing else, and gets, another timeout. What they
// hold is counted anew by it, unless there was none before.
func (s *stream) retime(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.getting = s.retimed(s.getting, timeout, nil)
	for _, c := range s.consumers {
		if !c.ownTimeout && !c.spec.NoAck {
			c.aging = s.retimed(c.aging, timeout, c)
		}
	}
	for a := range s.agings {
		if due := a.overdueAt(a.slices[0].since); !s.timed || due < s.timedAt {
			s.timed, s.timedAt = true, due
			s.hub.timed(s, due)
		}
	}
}

// timeoutNever is in place of 0 where something is counted already.
const timeoutNever = math.MaxInt64 / 4

func (s *stream) retimed(a *aging, timeout time.Duration, c *Consumer) *aging {
	if a == nil {
		return newAging(timeout, c)
	}
	if timeout <= 0 {
		timeout = timeoutNever
	}
	if a.timeout == timeout {
		return a
	}
	a.timeout = timeout
	if len(a.slices) == 0 {
		return a
	}
	// The slices so far may be much longer than the new timeout.
	all := ageSlice{since: s.hub.uptime()}
	for _, slice := range a.slices {
		all.n += slice.n
	}
	all.since = all.since.Truncate(a.slice())
	a.slices = []ageSlice{all}
	for _, h := range s.held {
		if h.aging == a {
			h.since = all.since
		}
	}
	return a
}

// ageLocked begins to count a delivery's age.
func (s *stream) ageLocked(h *holding, a *aging) {
	if a == nil {
		return
	}
	if len(a.slices) == 0 {
		s.agings[a] = struct{}{}
	}
	h.aging, h.since = a, a.add(s.hub.uptime())
	if due := a.overdueAt(a.slices[0].since); !s.timed || due < s.timedAt {
		s.timed, s.timedAt = true, due
		s.hub.timed(s, due)
	}
}

// unageLocked ends it.
func (s *stream) unageLocked(h *holding) {
	a := h.aging
	if a == nil {
		return
	}
	h.aging = nil
	if a.remove(h.since); len(a.slices) == 0 {
		delete(s.agings, a)
	}
}

// unage ends the age of a delivery that its client has settled, though not yet for the queue.
func (s *stream) unage(d *Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[d.id]; h != nil && h.attempt == d.attempt {
		s.unageLocked(h)
	}
}

// reage begins it anew.
func (s *stream) reage(d *Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[d.id]
	if h == nil || h.attempt != d.attempt || h.settled > 0 || h.tx || h.aging != nil {
		return
	}
	if d.Consumer != nil {
		s.ageLocked(h, d.Consumer.aging) // also of one that has ended
	} else {
		s.ageLocked(h, s.getting)
	}
}

// timedOut is a consumer, or a channel that fetched messages, whose time has passed.
type timedOut struct {
	ch       *Channel
	consumer *Consumer // nil: by get
	after    time.Duration
}

// endOverdue takes back what clients hold for too long and tells them. next is when it is
// to be called again, 0 if nothing is held any more.
func (s *stream) endOverdue(now time.Duration) (next time.Duration) {
	s.order.Lock() // what came before is with the client
	s.mu.Lock()
	var out []timedOut
	for a := range s.agings {
		if a.overdueAt(a.slices[0].since) <= now {
			out = append(out, s.timeOutLocked(a, now)...)
		}
	}
	for a := range s.agings {
		if due := a.overdueAt(a.slices[0].since); next == 0 || due < next {
			next = due
		}
	}
	s.timed, s.timedAt = next > 0, next
	s.mu.Unlock()
	s.order.Unlock()
	for _, o := range out {
		o.ch.sink.TimedOut(o.consumer, o.after)
	}
	return next
}

// timeOutLocked returns overdue deliveries, which does not count as a failure. With a
// consumer goes everything it holds: it ends, and nobody is going to look at the rest.
func (s *stream) timeOutLocked(a *aging, now time.Duration) (out []timedOut) {
	var ids, unsent []queue.MessageID
	if c := a.consumer; c != nil {
		unsent = s.unsentLocked(c)
		for h := s.heldBy[c.ch]; h != nil; h = h.behind {
			if h.aging == a {
				ids = append(ids, h.id)
			}
		}
	} else {
		for id, h := range s.held {
			if h.aging != a || a.overdueAt(h.since) > now {
				continue
			}
			ids = append(ids, id)
			if !slices.ContainsFunc(out, func(o timedOut) bool { return o.ch == h.ch }) {
				out = append(out, timedOut{ch: h.ch, after: a.timeout})
			}
		}
	}
	sortIDs(ids)
	// Nobody is told of what a cancelled consumer has left.
	if c := a.consumer; c != nil && s.consumers[c.no] == c && !c.cancelling {
		c.cancelling = true
		delete(s.consumers, c.no)
		s.detachLocked(c.no, true) // before the messages, or it would get them again
		out = append(out, timedOut{ch: c.ch, consumer: c, after: a.timeout})
	}
	s.giveBackLocked(unsent)
	for _, id := range ids {
		s.settleLocked(fsm.RequeueCounted, id, s.held[id].attempt)
	}
	s.flushLocked()
	return out
}

// uptime is the time since the broker was made.
func (b *Broker) uptime() time.Duration { return time.Since(b.started) }

// timedStream asks the timeout loop to look at a stream at due.
func (b *Broker) timedStream(s *stream, due time.Duration) {
	b.mu.Lock()
	b.timed[s] = struct{}{}
	poke := b.timedNext == 0 || due < b.timedNext
	if poke {
		b.timedNext = due
	}
	b.mu.Unlock()
	if poke {
		select {
		case b.timedWake <- struct{}{}:
		default:
		}
	}
}

// timeoutLoop ends what clients hold for too long. It sleeps until the first of it is due.
func (b *Broker) timeoutLoop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.timedWake:
		case <-timer.C:
		}
		now := b.uptime()
		b.mu.Lock()
		next := b.timedNext
		var list []*stream
		if next > 0 && next <= now {
			for s := range b.timed {
				list = append(list, s)
			}
			clear(b.timed)
			b.timedNext = 0
		}
		b.mu.Unlock()
		for _, s := range list {
			if due := s.endOverdue(now); due > 0 {
				b.timedStream(s, due)
			}
		}
		b.mu.Lock()
		next = b.timedNext
		b.mu.Unlock()
		if next > 0 {
			timer.Reset(max(next-b.uptime(), ageSliceMin))
		} else {
			timer.Stop()
		}
	}
}

// TimeoutText is what a client is told whose channel ends because of it.
func TimeoutText(channel uint16, after time.Duration) string {
	return fmt.Sprintf("delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. This timeout value can be configured, see consumers doc guide to learn more", channel, after.Milliseconds())
}
