package storm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/test/frames"
)

// step is something that a speaker does on one of its channels.
type step struct {
	name string
	do   func(s *speaker, ch uint16) error
}

// careful are steps that close nothing as long as the queues are there: for channels that live long, through what happens to nodes and queues.
var careful = weighted[step]{
	{2, step{"queue.declare", (*speaker).declareLasting}},
	{30, step{"basic.publish to a queue", func(s *speaker, ch uint16) error { return s.publishTo(ch, "", s.d.lasting()) }}},
	{5, step{"basic.consume", func(s *speaker, ch uint16) error {
		return s.method(ch, 60, 20, uint16(0), s.d.lasting(), "", s.bits(2, .2)&2, []byte{})
	}}},
	{5, step{"basic.get", func(s *speaker, ch uint16) error {
		return s.method(ch, 60, 70, uint16(0), s.d.lasting(), s.bits(1, .3))
	}}},
	{10, step{"basic.ack", settle(80, 1, .1)}},
	{5, step{"basic.nack", settle(120, 2, .4)}},
	{3, step{"tx.select", (*speaker).selectTx}},
	{3, step{"tx.commit", func(s *speaker, ch uint16) error { return s.inTx(ch, 20) }}},
	{1, step{"tx.rollback", func(s *speaker, ch uint16) error { return s.inTx(ch, 30) }}},
	{4, step{"confirm.select", (*speaker).selectConfirms}},
	{5, step{"basic.qos", (*speaker).qos}},
	{2, step{"basic.consume of replies", (*speaker).consumeReplies}},
	{8, step{"a reply", (*speaker).reply}},
	{5, step{"waits", (*speaker).wait}},
	{1, step{"connection.update-secret", func(s *speaker, _ uint16) error {
		return s.method(0, 10, 70, []byte(password), "a reason")
	}}},
}

// transacting is what a speaker does with transactions that are to live through the loss of a queue's majority and its recovery. What waits
// for such a queue would be refused in the end, and close the channel.
var transacting = weighted[step]{
	{20, step{"basic.publish to a queue", func(s *speaker, ch uint16) error { return s.publishTo(ch, "", s.d.lasting()) }}},
	{1, step{"tx.commit", func(s *speaker, ch uint16) error { return s.inTx(ch, 20) }}},
	{1, step{"waits", (*speaker).wait}},
}

// steps are what a speaker does else.
var steps = weighted[step]{
	{8, step{"queue.declare", (*speaker).declareQueue}},
	{2, step{"queue.declare of no name", func(s *speaker, ch uint16) error {
		return s.method(ch, 50, 10, uint16(0), "", pick[byte](s.d, bitExclusive, bitExclusive|bitAutoDelete, bitDurable|bitExclusive, bitAutoDelete), []byte{})
	}}},
	{4, step{"queue.bind", func(s *speaker, ch uint16) error {
		return s.method(ch, 50, 20, uint16(0), s.anyQueue(), s.d.exchangeName(), s.d.key(), s.bits(1, .1), s.table())
	}}},
	{2, step{"queue.unbind", func(s *speaker, ch uint16) error {
		return s.method(ch, 50, 50, uint16(0), s.anyQueue(), s.d.exchangeName(), s.d.key(), s.table())
	}}},
	{1, step{"queue.purge", func(s *speaker, ch uint16) error {
		return s.method(ch, 50, 30, uint16(0), s.anyQueue(), s.bits(1, .1))
	}}},
	{1, step{"queue.delete", func(s *speaker, ch uint16) error {
		return s.method(ch, 50, 40, uint16(0), s.anyQueue(), s.bits(3, .2))
	}}},
	{4, step{"exchange.declare", func(s *speaker, ch uint16) error {
		x := pick(s.d, exchanges...)
		if s.d.chance(.05) {
			return s.method(ch, 40, 10, uint16(0), s.d.exchangeName(), pick(s.d, "direct", "none", "x-delayed-message"), s.bits(5, .3), s.table())
		}
		return s.method(ch, 40, 10, uint16(0), x.name, x.kind, byte(2)|s.bits(5, .03)&^4, slices.Clone(x.args))
	}}},
	{1, step{"exchange.delete", func(s *speaker, ch uint16) error {
		return s.method(ch, 40, 20, uint16(0), s.d.exchangeName(), s.bits(2, .3))
	}}},
	{2, step{"exchange.bind", func(s *speaker, ch uint16) error {
		return s.method(ch, 40, pick[uint16](s.d, 30, 30, 40), uint16(0), s.d.exchangeName(), s.d.exchangeName(), s.d.key(), s.bits(1, .1), s.table())
	}}},
	{30, step{"basic.publish", (*speaker).publish}},
	{3, step{"part of a publish", (*speaker).publishPart}},
	{10, step{"basic.consume", (*speaker).consume}},
	{3, step{"basic.consume of replies", (*speaker).consumeReplies}},
	{4, step{"basic.cancel", (*speaker).cancel}},
	{8, step{"basic.get", func(s *speaker, ch uint16) error {
		return s.method(ch, 60, 70, uint16(0), s.anyQueue(), s.bits(1, .3))
	}}},
	{3, step{"basic.qos", (*speaker).qos}},
	{12, step{"basic.ack", settle(80, 1, .1)}},
	{4, step{"basic.reject", settle(90, 1, .5)}},
	{5, step{"basic.nack", settle(120, 2, .3)}},
	{2, step{"basic.recover", func(s *speaker, ch uint16) error {
		return s.method(ch, 60, pick[uint16](s.d, 100, 110, 110), s.bits(1, .98))
	}}},
	{4, step{"confirm.select", (*speaker).selectConfirms}},
	{2, step{"tx.select", (*speaker).selectTx}},
	{4, step{"tx.commit", func(s *speaker, ch uint16) error { return s.inTx(ch, 20) }}},
	{1, step{"tx.rollback", func(s *speaker, ch uint16) error { return s.inTx(ch, 30) }}},
	{2, step{"channel.flow", func(s *speaker, ch uint16) error { return s.method(ch, 20, 20, s.bits(1, .97)) }}},
	{1, step{"channel.flow-ok", func(s *speaker, ch uint16) error { return s.method(ch, 20, 21, s.bits(1, .5)) }}},
	{4, step{"channel.close", (*speaker).closeChannel}},
	{3, step{"an error that closes the channel", func(s *speaker, ch uint16) error {
		return s.method(ch, 50, 10, uint16(0), "no-such-queue", byte(bitPassive), []byte{})
	}}},
	{3, step{"connection.update-secret", func(s *speaker, _ uint16) error {
		secret := password
		if s.d.chance(.03) {
			secret = s.d.odd()
		}
		return s.method(0, 10, 70, []byte(secret), "a reason")
	}}},
	{1, step{"a heartbeat", func(s *speaker, _ uint16) error { return s.send(frames.Frame(frames.TypeHeartbeat, 0, nil)) }}},
	{2, step{"reads nothing", func(s *speaker, _ uint16) error {
		s.pause(s.d.between(50*time.Millisecond, 3*time.Second))
		return nil
	}}},
	{3, step{"waits", (*speaker).wait}},
	{1, step{"a burst", (*speaker).burst}},
}

const replyTo = "amq.rabbitmq.reply-to"

// bits are n flags, each set by chance.
func (s *speaker) bits(n int, p float64) (b byte) {
	for i := range n {
		if s.d.chance(p) {
			b |= 1 << i
		}
	}
	return b
}

// anyQueue is the name of a queue, or "" for the channel's last one.
func (s *speaker) anyQueue() string {
	if s.d.chance(.05) {
		return ""
	}
	return s.d.queueName()
}

// table is mostly empty.
func (s *speaker) table() []byte {
	if s.d.chance(.7) {
		return []byte{}
	}
	return frames.Table(pick(s.d, "x-match", "h1", "x-priority", "x-death", "x-delay", "x-expires", "x-max-length"), s.value(2))
}

// value is any value of a table.
func (s *speaker) value(depth int) any {
	switch s.d.IntN(8) {
	case 0:
		return nil
	case 1:
		return s.d.chance(.5)
	case 2:
		return int32(s.d.number())
	case 3:
		return s.d.number()
	case 4, 5:
		return pick(s.d, "all", "any", "v", s.d.odd())
	}
	if depth == 0 {
		return "deep"
	}
	if s.d.chance(.5) {
		return []any{s.value(depth - 1), s.value(depth - 1)}
	}
	return frames.Table(s.d.key()+"k", s.value(depth-1))
}

// settle ends a delivery by a method with so many flags. Without one it does nothing, but for once in a while.
func settle(id uint16, flags int, p float64) func(s *speaker, ch uint16) error {
	return func(s *speaker, ch uint16) error {
		tag, ok := s.tag(ch)
		if !ok && !s.d.chance(.01) {
			return nil
		}
		return s.method(ch, 60, id, tag, s.bits(flags, p))
	}
}

func (s *speaker) consumeReplies(ch uint16) error {
	if s.of(ch).replies && !s.d.chance(.05) {
		return nil
	}
	s.note(ch, func(c *channel) { c.replies = true })
	return s.method(ch, 60, 20, uint16(0), replyTo, "r", byte(2)|s.bits(4, .02), []byte{})
}

// reply answers somebody who has asked for it, and may be gone.
func (s *speaker) reply(ch uint16) error {
	s.mu.Lock()
	to := ""
	if len(s.replies) > 0 {
		to = pick(s.d, s.replies...)
	}
	s.mu.Unlock()
	if to == "" {
		return nil
	}
	return s.publishTo(ch, "", to)
}

func (s *speaker) qos(ch uint16) error {
	return s.method(ch, 60, 10, uint32(0), uint16(s.d.IntN(5)), s.bits(1, .4))
}

func (s *speaker) wait(uint16) error {
	time.Sleep(s.d.between(0, 1500*time.Millisecond))
	return nil
}

// selectTx and selectConfirms keep to one of the two for each channel, mostly.
func (s *speaker) selectTx(ch uint16) error {
	if s.of(ch).confirm && !s.d.chance(.02) {
		return nil
	}
	s.note(ch, func(c *channel) { c.tx = true })
	return s.method(ch, 90, 10)
}

func (s *speaker) selectConfirms(ch uint16) error {
	if s.of(ch).tx && !s.d.chance(.02) {
		return nil
	}
	s.note(ch, func(c *channel) { c.confirm = true })
	return s.method(ch, 85, 10, s.bits(1, .2))
}

func (s *speaker) inTx(ch, id uint16) error {
	if !s.of(ch).tx && !s.d.chance(.02) {
		return s.selectTx(ch)
	}
	return s.method(ch, 90, id)
}

func (s *speaker) declareQueue(ch uint16) error {
	q := s.d.queue()
	bits, args := q.bits, slices.Clone(q.args)
	switch {
	case s.d.chance(.15):
		bits |= bitPassive
	case s.d.chance(.05):
		q.name, bits, args = s.d.oddly(), s.bits(5, .4), s.table()
	}
	if s.d.chance(.05) {
		bits |= bitNoWait
	}
	return s.method(ch, 50, 10, uint16(0), q.name, bits, args)
}

func (s *speaker) declareLasting(ch uint16) error {
	name := s.d.lasting()
	for _, q := range queues {
		if q.name == name {
			return s.method(ch, 50, 10, uint16(0), name, q.bits, slices.Clone(q.args))
		}
	}
	return nil
}

// properties of a message: the flags and the values, in their order.
func (s *speaker) properties(ch uint16) []byte {
	if s.d.chance(.3) {
		return nil
	}
	var flags uint16
	var p []byte
	short := func(bit int, text string) {
		flags |= 1 << bit
		p = append(append(p, byte(len(text))), text...)
	}
	if s.d.chance(.5) {
		flags |= 1 << 13
		t := s.headers()
		p = append(binary.BigEndian.AppendUint32(p, uint32(len(t))), t...)
	}
	if s.d.chance(.5) {
		flags |= 1 << 12
		p = append(p, byte(1+s.d.IntN(2)))
	}
	if s.d.chance(.2) {
		flags |= 1 << 11
		p = append(p, byte(s.d.IntN(256)))
	}
	switch {
	case s.of(ch).replies && s.d.chance(.6) || s.d.chance(.003):
		short(9, replyTo)
	case s.d.chance(.1):
		short(9, "q0")
	}
	if s.d.chance(.15) {
		short(8, pick(s.d, "1", "100", "2000", "0", "1", "100", "500", s.d.odd()))
	}
	return append([]byte{byte(flags >> 8), byte(flags)}, p...)
}

func (s *speaker) headers() []byte {
	switch s.d.IntN(6) {
	case 0:
		return frames.Table("x-delay", int32(s.d.IntN(1500)))
	case 1:
		return frames.Table("x-deduplication-header", fmt.Sprint(s.d.IntN(9)))
	case 2:
		return frames.Table(pick(s.d, "CC", "BCC"), []any{s.d.queueName(), s.d.queueName()})
	case 3:
		return frames.Table("x-death", s.value(2), "h1", s.value(2))
	}
	return frames.Table("h1", s.value(2), "h2", "v")
}

// message is what is behind basic.publish, mostly as it should be.
func (s *speaker) message(ch uint16) []byte {
	size := s.d.IntN(100)
	switch {
	case s.d.chance(.1):
		size = 0
	case s.d.chance(.03):
		size = 200_000
	}
	data := frames.Header(ch, uint64(size), s.properties(ch)...)
	for size > 0 {
		n := min(size, 1+s.d.IntN(30_000))
		data = append(data, frames.Frame(frames.TypeBody, ch, make([]byte, n))...)
		size -= n
	}
	return data
}

// target is an exchange and a key.
func (s *speaker) target() (string, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.replies) > 0 && s.d.chance(.2):
		return "", pick(s.d, s.replies...)
	case s.d.chance(.6):
		return "", s.d.queueName()
	}
	return s.d.exchangeName(), s.d.key()
}

func (s *speaker) publish(ch uint16) error {
	exchange, key := s.target()
	return s.publishTo(ch, exchange, key)
}

func (s *speaker) publishTo(ch uint16, exchange, key string) error {
	bits := s.bits(1, .2)
	if s.d.chance(.005) {
		bits |= 2
	}
	s.trace.say("> %d: publishes to %q %q %d", ch, exchange, key, bits)
	return s.send(append(frames.Method(ch, 60, 40, uint16(0), exchange, key, bits), s.message(ch)...))
}

// publishPart leaves something out of a message, or puts it in the wrong place.
func (s *speaker) publishPart(ch uint16) error {
	exchange, key := s.target()
	start := frames.Method(ch, 60, 40, uint16(0), exchange, key, byte(0))
	s.trace.say("> %d: a part of a message to %q %q", ch, exchange, key)
	switch s.d.IntN(5) {
	case 0:
		return s.send(start) // what comes next comes in place of the header
	case 1:
		return s.send(append(start, frames.Header(ch, 100)...))
	case 2:
		return s.send(slices.Concat(start, frames.Header(ch, 10), frames.Frame(frames.TypeBody, ch, []byte("half"))))
	case 3: // others come between
		if err := s.send(append(start, frames.Header(ch, 4)...)); err != nil {
			return err
		}
		other := 1 + (ch % 4)
		if err := s.publish(other); err != nil {
			return err
		}
		return s.send(frames.Frame(frames.TypeBody, ch, []byte("half")))
	}
	return s.send(slices.Concat(start, frames.Header(ch, 10), frames.Method(ch, 20, 40, uint16(200), "", uint16(0), uint16(0)), frames.Frame(frames.TypeBody, ch, []byte("halfhalf.."))))
}

func (s *speaker) consume(ch uint16) error {
	tag := pick(s.d, "", "t1", "t2", "t3", "t4", strings.Repeat("t", s.d.IntN(250)))
	s.note(ch, func(c *channel) { c.consumers = append(c.consumers, tag) })
	bits := s.bits(1, .05)
	if s.d.chance(.2) {
		bits |= 2
	}
	if s.d.chance(.05) {
		bits |= 4
	}
	if s.d.chance(.05) {
		bits |= 8
	}
	args := []byte{}
	if s.d.chance(.2) {
		args = frames.Table("x-priority", pick[any](s.d, int32(1), int32(-1), int32(7), int32(1), int32(2), int32(3), "high"))
	}
	return s.method(ch, 60, 20, uint16(0), s.anyQueue(), tag, bits, args)
}

func (s *speaker) cancel(ch uint16) error {
	tag := s.d.odd()
	s.note(ch, func(c *channel) {
		if n := len(c.consumers); n > 0 {
			i := s.d.IntN(n)
			tag = c.consumers[i]
			c.consumers = slices.Delete(slices.Clone(c.consumers), i, i+1)
		}
	})
	return s.method(ch, 60, 30, tag, s.bits(1, .2))
}

// closeChannel closes a channel, and may go on to speak on it, or open it again at once.
func (s *speaker) closeChannel(ch uint16) error {
	err := s.method(ch, 20, 40, uint16(200), "bye", uint16(0), uint16(0))
	for err == nil && s.d.chance(.3) {
		err = s.steps.pick(s.d).do(s, ch)
	}
	if err == nil && s.d.chance(.3) {
		err = s.method(ch, 20, 10, "")
	}
	return err
}

// burst sends much at once.
func (s *speaker) burst(ch uint16) error {
	for range 50 + s.d.IntN(300) {
		if err := s.publish(ch); err != nil {
			return err
		}
	}
	return nil
}
