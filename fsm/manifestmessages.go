package fsm

import (
	"math"

	"github.com/warrenmq/warren/queue"
)

// Bits that say which fields of a message differ from what its predecessor
// predicts, in the order in which the fields follow.
const (
	fieldID = 1 << iota
	fieldIndex
	fieldOffset
	fieldLength
	fieldOverhead
	fieldExpires
	fieldPriority
	fieldAttempt
	fieldFailed
	fieldsAll = 1<<iota - 1
)

// prediction is what both sides of the codec know after some messages: the next
// one is expected to follow directly, with the same sizes and counts.
type prediction struct {
	last  queue.Message
	base  uint32 // offset of the first message seen of the last entry
	space uint32 // bytes between neighbours of one entry
}

// next is the message expected if skip ids are missing before it.
func (p *prediction) next(skip uint64) queue.Message {
	m := p.last
	m.ID += 1 + queue.MessageID(skip)
	m.Ref.Offset += (m.Ref.Length + p.space) * (1 + uint32(skip))
	return m
}

// learn takes in the message that came.
func (p *prediction) learn(m queue.Message) {
	switch {
	case m.Ref.Index != p.last.Ref.Index:
		p.base = m.Ref.Offset
	case m.ID == p.last.ID+1:
		p.space = m.Ref.Offset - p.last.Ref.Offset - p.last.Ref.Length
	}
	p.last = m
}

// overhead is what an encoded message has beside its body; it wraps around for
// messages that claim more body than they have.
func overhead(m *queue.Message) uint32 { return m.Ref.Length - m.BodyBytes }

// appendMessages writes a series of items. An even item 2n stands for n messages
// as predicted; an odd one carries the flags of the fields that follow.
func appendMessages(b []byte, live queue.Frozen) []byte {
	var p prediction
	repeat := uint64(0)
	add := func(m queue.Message) {
		if m == p.next(0) {
			repeat++
			p.learn(m)
			return
		}
		if repeat > 0 {
			b = appendUint(b, repeat<<1)
			repeat = 0
		}
		b = appendMessage(b, &p, m)
		p.learn(m)
	}
	for r := range live.Runs {
		add(r.First)
		if r.N == 1 {
			continue
		}
		m := r.First
		m.ID++
		m.Ref.Offset += m.Ref.Length + r.Space
		add(m)
		// The others are as the first two predict.
		rest := uint64(r.N - 2)
		repeat += rest
		p.last.ID += queue.MessageID(rest)
		p.last.Ref.Offset += (m.Ref.Length + r.Space) * uint32(rest)
	}
	if repeat > 0 {
		b = appendUint(b, repeat<<1)
	}
	return b
}

func appendMessage(b []byte, p *prediction, m queue.Message) []byte {
	var flags uint64
	skip := uint64(m.ID - p.last.ID - 1)
	if skip > 0 {
		flags |= fieldID
	}
	want := p.next(skip)
	if m.Ref.Index != want.Ref.Index {
		want.Ref.Offset = p.base
		flags |= fieldIndex
	}
	for _, f := range [...]struct {
		bit     uint64
		differs bool
	}{
		{fieldOffset, m.Ref.Offset != want.Ref.Offset},
		{fieldLength, m.Ref.Length != want.Ref.Length},
		{fieldOverhead, overhead(&m) != overhead(&want)},
		{fieldExpires, m.ExpiresAt != want.ExpiresAt},
		{fieldPriority, m.Priority != want.Priority},
		{fieldAttempt, m.Attempt != want.Attempt},
		{fieldFailed, m.Failed != want.Failed},
	} {
		if f.differs {
			flags |= f.bit
		}
	}
	b = appendUint(b, flags<<1|1)
	if flags&fieldID != 0 {
		b = appendUint(b, skip)
	}
	if flags&fieldIndex != 0 {
		b = appendInt(b, int64(m.Ref.Index-want.Ref.Index))
	}
	if flags&fieldOffset != 0 {
		b = appendInt(b, int64(int32(m.Ref.Offset-want.Ref.Offset)))
	}
	if flags&fieldLength != 0 {
		b = appendInt(b, int64(int32(m.Ref.Length-want.Ref.Length)))
	}
	if flags&fieldOverhead != 0 {
		b = appendInt(b, int64(int32(overhead(&m)-overhead(&want))))
	}
	if flags&fieldExpires != 0 {
		b = appendInt(b, m.ExpiresAt-want.ExpiresAt)
	}
	if flags&fieldPriority != 0 {
		b = append(b, m.Priority)
	}
	if flags&fieldAttempt != 0 {
		b = appendUint(b, uint64(m.Attempt))
	}
	if flags&fieldFailed != 0 {
		b = appendUint(b, uint64(m.Failed))
	}
	return b
}

// messages reads tail, number and items into the machine's queue.
func (r *reader) messages(m *Machine, max uint64) {
	tail, n := queue.MessageID(r.uvarint()), r.uvarint()
	if n > max || n > uint64(tail) || tail == math.MaxUint64 {
		r.fail(ErrMalformed, "number of messages")
		return
	}
	var p prediction
	for n > 0 && r.err == nil {
		item := r.uvarint()
		if item&1 == 1 {
			r.restoreMessage(m, &p, r.message(&p, item>>1), tail)
			n--
			continue
		}
		repeat := item >> 1
		if repeat == 0 || repeat > n {
			r.fail(ErrMalformed, "repeated messages")
			return
		}
		for n -= repeat; repeat > 0 && r.err == nil; repeat-- {
			r.restoreMessage(m, &p, p.next(0), tail)
		}
	}
	m.queue.SkipTo(tail)
}

func (r *reader) restoreMessage(m *Machine, p *prediction, msg queue.Message, tail queue.MessageID) {
	if r.err != nil {
		return
	}
	if msg.ID > tail || msg.Ref.Index > m.index || msg.Ref.Index < p.last.Ref.Index || msg.ExpiresAt < 0 ||
		uint64(msg.Ref.Offset)+uint64(msg.Ref.Length) > math.MaxUint32 {
		r.fail(ErrMalformed, "message")
		return
	}
	if err := m.queue.Restore(msg); err != nil {
		r.fail(ErrMalformed, err.Error())
		return
	}
	p.learn(msg)
}

// message reads the fields that flags name and predicts the others.
func (r *reader) message(p *prediction, flags uint64) queue.Message {
	if flags&^fieldsAll != 0 {
		r.fail(ErrMalformed, "message fields")
	}
	skip := uint64(0)
	if flags&fieldID != 0 {
		skip = r.uvarint()
	}
	m := p.next(skip)
	extra := overhead(&m)
	if flags&fieldIndex != 0 {
		m.Ref.Index += uint64(r.varint())
		m.Ref.Offset = p.base
	}
	if flags&fieldOffset != 0 {
		m.Ref.Offset += uint32(r.varint())
	}
	if flags&fieldLength != 0 {
		m.Ref.Length += uint32(r.varint())
	}
	if flags&fieldOverhead != 0 {
		extra += uint32(r.varint())
	}
	m.BodyBytes = m.Ref.Length - extra
	if flags&fieldExpires != 0 {
		m.ExpiresAt += r.varint()
	}
	if flags&fieldPriority != 0 {
		m.Priority = r.byte()
	}
	if flags&fieldAttempt != 0 {
		m.Attempt = r.uint32()
	}
	if flags&fieldFailed != 0 {
		m.Failed = r.uint32()
	}
	return m
}
