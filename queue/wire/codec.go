package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/warrenmq/warren/dirty"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Version is the first byte of every encoded message.
const Version = 1

// ErrMalformed is returned for bytes that are not a message of this version.
var ErrMalformed = errors.New("wire: malformed message")

const (
	codeBatch byte = iota + 1
	codeAttach
	codeAttached
	codeDetach
	codeDetached
	codeWindow
	codeGet
	codeGot
	codeQuery
	codeStatus
	codeDeliver
	codeAnswer
	codeNotLeader
	codeRollCall
	codeResync
	codeTransfer
	codeTransferAnswer
	codeTargetClosed
	codeTargetForgotten
	codeTxAsk
	codeTxTold
	codeUnsent
)

func (*Batch) code() byte           { return codeBatch }
func (*Attach) code() byte          { return codeAttach }
func (*Attached) code() byte        { return codeAttached }
func (*Detach) code() byte          { return codeDetach }
func (*Detached) code() byte        { return codeDetached }
func (*Window) code() byte          { return codeWindow }
func (*Get) code() byte             { return codeGet }
func (*Got) code() byte             { return codeGot }
func (*Query) code() byte           { return codeQuery }
func (*Status) code() byte          { return codeStatus }
func (*Deliver) code() byte         { return codeDeliver }
func (*Answer) code() byte          { return codeAnswer }
func (*NotLeader) code() byte       { return codeNotLeader }
func (*RollCall) code() byte        { return codeRollCall }
func (*Resync) code() byte          { return codeResync }
func (*Transfer) code() byte        { return codeTransfer }
func (*TransferAnswer) code() byte  { return codeTransferAnswer }
func (*TargetClosed) code() byte    { return codeTargetClosed }
func (*TargetForgotten) code() byte { return codeTargetForgotten }
func (*TxAsk) code() byte           { return codeTxAsk }
func (*TxTold) code() byte          { return codeTxTold }
func (*Unsent) code() byte          { return codeUnsent }

// Encode appends m's encoding to b.
func Encode(b []byte, m Message) []byte {
	if s, ok := m.(interface{ size() int }); ok {
		if b == nil {
			b = dirty.Lend(2 + s.size())[:0]
		}
		b = slices.Grow(b, 2+s.size())
	}
	b = append(b, Version, m.code())
	return m.append(b)
}

// What the messages that carry others' bodies take about, so that their buffers need not grow: a
// fixed part, and more for each of what they carry.
const (
	sizeFixed = 64
	sizeEach  = 48
)

func (m *Batch) size() int {
	n := sizeFixed
	for _, op := range m.Stream.Ops {
		switch op := op.(type) {
		case fsm.Publish:
			n += fsm.PublishSize(&op)
		case fsm.Settle:
			n += sizeEach + len(op.Runs)*sizeEach/4 + len(op.Detail)
		}
	}
	return n
}

func (m *Transfer) size() int {
	n := sizeFixed
	for i := range m.In.Items {
		n += sizeEach + len(m.In.Items[i].Message) + len(m.In.Items[i].Part)
	}
	return n
}

func (m *Deliver) size() int {
	n := sizeFixed
	for i := range m.Items {
		n += sizeEach + len(m.Items[i].Message)
	}
	return n
}

// Decode reads one message; byte slices of the result share b.
func Decode(b []byte) (Message, error) {
	if len(b) < 2 || b[0] != Version {
		return nil, ErrMalformed
	}
	m := fresh(b[1])
	if m == nil {
		return nil, fmt.Errorf("%w: unknown code %d", ErrMalformed, b[1])
	}
	d := &reader{b: b[2:]}
	m.read(d)
	if d.err != nil {
		return nil, d.err
	}
	if len(d.b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes left over", ErrMalformed, len(d.b))
	}
	return m, nil
}

func fresh(code byte) Message {
	switch code {
	case codeBatch:
		return new(Batch)
	case codeAttach:
		return new(Attach)
	case codeAttached:
		return new(Attached)
	case codeDetach:
		return new(Detach)
	case codeDetached:
		return new(Detached)
	case codeWindow:
		return new(Window)
	case codeGet:
		return new(Get)
	case codeGot:
		return new(Got)
	case codeQuery:
		return new(Query)
	case codeStatus:
		return new(Status)
	case codeDeliver:
		return new(Deliver)
	case codeAnswer:
		return new(Answer)
	case codeNotLeader:
		return new(NotLeader)
	case codeRollCall:
		return new(RollCall)
	case codeResync:
		return new(Resync)
	case codeTransfer:
		return new(Transfer)
	case codeTxAsk:
		return new(TxAsk)
	case codeTxTold:
		return new(TxTold)
	case codeUnsent:
		return new(Unsent)
	case codeTransferAnswer:
		return new(TransferAnswer)
	case codeTargetClosed:
		return new(TargetClosed)
	case codeTargetForgotten:
		return new(TargetForgotten)
	}
	return nil
}

func (m *Batch) append(b []byte) []byte { return putCommand(putU(b, m.Queue), m.Stream) }
func (m *Batch) read(d *reader)         { m.Queue, m.Stream = d.u64(), readCommand[fsm.Stream](d) }

func (m *Transfer) append(b []byte) []byte {
	return putCommand(putBool(putU(b, m.Target), m.Urgent), m.In)
}

func (m *Transfer) read(d *reader) {
	m.Target, m.Urgent = d.u64(), d.bool()
	m.In = readCommand[fsm.TransferIn](d)
}

func (c *Consumer) append(b []byte) []byte {
	b = putU(b, uint64(c.No), uint64(c.Prefetch))
	b = binary.AppendVarint(b, int64(c.Priority))
	b = putBool(b, c.Exclusive)
	return putTurn(binary.AppendVarint(binary.AppendVarint(b, c.WindowMessages), c.WindowBytes), c.Turn)
}

func putTurn(b []byte, t Turn) []byte { return putU(b, t.Session, t.No) }

func (d *reader) turn() Turn { return Turn{Session: d.u64(), No: d.u64()} }

func (c *Consumer) read(d *reader) {
	c.No, c.Prefetch, c.Priority = ConsumerNo(d.u64()), d.u32(), int32(d.i64())
	c.Exclusive = d.bool()
	c.WindowMessages, c.WindowBytes = d.i64(), d.i64()
	c.Turn = d.turn()
}

func (m *Attach) append(b []byte) []byte {
	return m.Consumer.append(putOrigin(putU(b, m.Queue), m.Origin))
}

func (m *Attach) read(d *reader) {
	m.Queue, m.Origin = d.u64(), d.origin()
	m.Consumer.read(d)
}

func (m *Attached) append(b []byte) []byte {
	return putTurn(putBytes(putU(b, m.Queue, uint64(m.No)), []byte(m.Refusal)), m.Turn)
}

func (m *Attached) read(d *reader) {
	m.Queue, m.No, m.Refusal = d.u64(), ConsumerNo(d.u64()), string(d.bytes())
	m.Turn = d.turn()
}

func (m *Detach) append(b []byte) []byte {
	return putBool(putU(putOrigin(putU(b, m.Queue), m.Origin), uint64(m.No)), m.Returns)
}

func (m *Detach) read(d *reader) {
	m.Queue, m.Origin, m.No, m.Returns = d.u64(), d.origin(), ConsumerNo(d.u64()), d.bool()
}

func (m *Detached) append(b []byte) []byte {
	return putBool(putBool(putU(b, m.Queue, uint64(m.No)), m.Gone), m.Unused)
}

func (m *Detached) read(d *reader) {
	m.Queue, m.No, m.Gone, m.Unused = d.u64(), ConsumerNo(d.u64()), d.bool(), d.bool()
}

func (m *Window) append(b []byte) []byte {
	b = putU(putOrigin(putU(b, m.Queue), m.Origin), uint64(m.No))
	return binary.AppendVarint(binary.AppendVarint(b, m.Messages), m.Bytes)
}

func (m *Window) read(d *reader) {
	m.Queue, m.Origin, m.No = d.u64(), d.origin(), ConsumerNo(d.u64())
	m.Messages, m.Bytes = d.i64(), d.i64()
}

func (m *Unsent) append(b []byte) []byte {
	b = putU(putOrigin(putU(b, m.Queue), m.Origin), m.Resync, uint64(len(m.Runs)))
	for _, r := range m.Runs {
		b = putU(b, uint64(r.First), uint64(r.Count), uint64(r.Attempt))
	}
	return b
}

func (m *Unsent) read(d *reader) {
	m.Queue, m.Origin, m.Resync = d.u64(), d.origin(), d.u64()
	m.Runs = make([]fsm.Run, d.count())
	for i := range m.Runs {
		m.Runs[i] = fsm.Run{First: queue.MessageID(d.u64()), Count: d.u32(), Attempt: d.u32()}
	}
}

func (m *Get) append(b []byte) []byte {
	return putU(putOrigin(putU(b, m.Queue), m.Origin), m.Req, m.After)
}

func (m *Get) read(d *reader) {
	m.Queue, m.Origin, m.Req, m.After = d.u64(), d.origin(), d.u64(), d.u64()
}

func (i *Item) append(b []byte) []byte {
	b = putU(b, uint64(i.No), uint64(i.ID), uint64(i.Attempt), uint64(i.Failed))
	return putBytes(putBool(b, i.Redelivered), i.Message)
}

func (i *Item) read(d *reader) {
	i.No, i.ID, i.Attempt, i.Failed = ConsumerNo(d.u64()), queue.MessageID(d.u64()), d.u32(), d.u32()
	i.Redelivered, i.Message = d.bool(), d.bytes()
}

func (m *Got) append(b []byte) []byte {
	b = putBool(putU(b, m.Queue, m.Req, m.Session, m.Resync), m.Found)
	if m.Found {
		b = m.Item.append(b)
	}
	return putU(b, uint64(m.Remaining))
}

func (m *Got) read(d *reader) {
	m.Queue, m.Req, m.Session, m.Resync, m.Found = d.u64(), d.u64(), d.u64(), d.u64(), d.bool()
	if m.Found {
		m.Item.read(d)
	}
	m.Remaining = d.u32()
}

func (m *Query) append(b []byte) []byte {
	b = putBool(putU(putOrigin(putU(b, m.Queue), m.Origin), m.Req, m.After), m.Use)
	if m.End != EndNever { // programs that know nothing of it get none
		b = putU(b, uint64(m.End))
	}
	return b
}

func (m *Query) read(d *reader) {
	m.Queue, m.Origin, m.Req, m.After, m.Use = d.u64(), d.origin(), d.u64(), d.u64(), d.bool()
	if len(d.b) > 0 {
		if m.End = EndWhen(d.u64()); m.End == EndNever || m.End > EndResolved {
			d.fail()
		}
	}
}

func (m *Status) append(b []byte) []byte {
	b = putU(b, m.Queue, m.Req, m.Ready, m.Unacked, m.Consumers, m.Outbox, m.Parked, m.ReadyBytes, m.Dropped, m.Transferred, m.Delayed,
		m.Duplicates, m.DedupIDs, m.DedupForgotten, m.OutboxBytes)
	if m.Ended { // only who asked for it is told
		b = putBool(b, true)
	}
	return b
}

func (m *Status) read(d *reader) {
	m.Queue, m.Req, m.Ready, m.Unacked, m.Consumers = d.u64(), d.u64(), d.u64(), d.u64(), d.u64()
	m.Outbox, m.Parked, m.ReadyBytes, m.Dropped = d.u64(), d.u64(), d.u64(), d.u64()
	m.Transferred, m.Delayed = d.u64(), d.u64()
	m.Duplicates, m.DedupIDs, m.DedupForgotten, m.OutboxBytes = d.u64(), d.u64(), d.u64(), d.u64()
	if len(d.b) > 0 {
		if m.Ended = d.bool(); !m.Ended {
			d.fail()
		}
	}
}

func (m *TxAsk) append(b []byte) []byte {
	return putU(putOrigin(putU(b, m.Queue), m.Origin), m.Req, m.Publishes, m.Bytes, m.First, m.Last)
}

func (m *TxAsk) read(d *reader) {
	m.Queue, m.Origin, m.Req = d.u64(), d.origin(), d.u64()
	m.Publishes, m.Bytes, m.First, m.Last = d.u64(), d.u64(), d.u64(), d.u64()
}

func (m *TxTold) append(b []byte) []byte { return putU(b, m.Queue, m.Req, uint64(m.Refusal)) }

func (m *TxTold) read(d *reader) {
	m.Queue, m.Req, m.Refusal = d.u64(), d.u64(), fsm.OutcomeKind(d.u64())
}

func (m *Deliver) append(b []byte) []byte {
	b = putU(b, m.Queue, m.Session, m.Resync, uint64(len(m.Items)))
	for i := range m.Items {
		b = m.Items[i].append(b)
	}
	return b
}

func (m *Deliver) read(d *reader) {
	m.Queue, m.Session, m.Resync = d.u64(), d.u64(), d.u64()
	m.Items = make([]Item, d.count())
	for i := range m.Items {
		m.Items[i].read(d)
	}
}

func (m *Answer) append(b []byte) []byte {
	b = putU(putOrigin(putU(b, m.Queue), m.Origin), m.UpTo, m.Above)
	b = putU(putBool(b, m.Rewind), m.Next, uint64(len(m.Outcomes)))
	for _, o := range m.Outcomes {
		b = putU(b, o.Seq, uint64(o.Kind), o.Count)
	}
	if m.Pace > 0 { // programs that know nothing of it get none
		b = putU(b, m.Pace)
	}
	return b
}

func (m *Answer) read(d *reader) {
	m.Queue, m.Origin, m.UpTo, m.Above, m.Rewind, m.Next = d.u64(), d.origin(), d.u64(), d.u64(), d.bool(), d.u64()
	m.Outcomes = make([]fsm.Outcome, d.count())
	for i := range m.Outcomes {
		m.Outcomes[i] = fsm.Outcome{Seq: d.u64(), Kind: fsm.OutcomeKind(d.u64()), Count: d.u64()}
	}
	if len(d.b) > 0 {
		m.Pace = d.u64()
	}
}

func (m *NotLeader) append(b []byte) []byte { return putBytes(putU(b, m.Queue), []byte(m.Hint)) }
func (m *NotLeader) read(d *reader)         { m.Queue, m.Hint = d.u64(), string(d.bytes()) }

func (m *RollCall) append(b []byte) []byte { return putU(b, m.Queue, m.Session) }
func (m *RollCall) read(d *reader)         { m.Queue, m.Session = d.u64(), d.u64() }

func (m *Resync) append(b []byte) []byte {
	b = putU(putOrigin(putU(b, m.Queue, m.Session, m.No, m.Newest), m.Origin), uint64(len(m.Consumers)))
	for i := range m.Consumers {
		b = m.Consumers[i].append(b)
	}
	b = putU(b, uint64(len(m.Held)+len(m.Attaching)))
	for _, h := range m.Held {
		b = putU(b, uint64(h.No), uint64(h.ID), uint64(h.Attempt), h.Settled)
	}
	// For a program that knows nothing of it they hold what is not there, which it passes over.
	for _, no := range m.Attaching {
		b = putU(b, uint64(no), 0, 0, 0)
	}
	return b
}

func (m *Resync) read(d *reader) {
	m.Queue, m.Session, m.No, m.Newest, m.Origin = d.u64(), d.u64(), d.u64(), d.u64(), d.origin()
	m.Consumers = make([]Consumer, d.count())
	for i := range m.Consumers {
		m.Consumers[i].read(d)
	}
	n := d.count()
	m.Held = make([]Hold, 0, n)
	for range n {
		h := Hold{No: ConsumerNo(d.u64()), ID: queue.MessageID(d.u64()), Attempt: d.u32(), Settled: d.u64()}
		if h.ID == 0 {
			m.Attaching = append(m.Attaching, h.No)
			continue
		}
		m.Held = append(m.Held, h)
	}
}

func (m *TransferAnswer) append(b []byte) []byte {
	b = putU(b, m.Source, m.Target, uint64(m.Epoch), m.UpTo)
	return putAscending(putBool(putBool(putBool(b, m.Gap), m.Full), m.Gone), m.Withdrawn)
}

func (m *TransferAnswer) read(d *reader) {
	m.Source, m.Target, m.Epoch, m.UpTo = d.u64(), d.u64(), d.u32(), d.u64()
	m.Gap, m.Full, m.Gone, m.Withdrawn = d.bool(), d.bool(), d.bool(), d.ascending()
}

func (m *TargetClosed) append(b []byte) []byte {
	return putAscending(putU(b, m.Source, uint64(m.Epoch), m.Target, m.Watermark), m.Withdrawn)
}

func (m *TargetClosed) read(d *reader) {
	m.Source, m.Epoch, m.Target, m.Watermark, m.Withdrawn = d.u64(), d.u32(), d.u64(), d.u64(), d.ascending()
}

func (m *TargetForgotten) append(b []byte) []byte { return putU(b, m.Target, m.Source) }
func (m *TargetForgotten) read(d *reader)         { m.Target, m.Source = d.u64(), d.u64() }
