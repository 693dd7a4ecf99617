package amqp

import (
	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/gateway/tags"
)

// probeTag marks the tags of immediate publishes outside confirm mode: they tell
// of a return, and nothing is confirmed to the client.
const probeTag = 1 << 63

// confirms is the state of publisher confirms of a channel, under its mutex:
// publishes without an answer, and answers that the writer has not fetched yet.
type confirms struct {
	pending tags.List[struct{}]
	acked   []uint64
	nacked  []uint64
	last    uint64 // publish counted last
	// refused spans the refusals told while a publish below them had no answer.
	refused span
	queued  bool // in the outbox's dirty list
}

// span is the tags from low to high, none if high is 0.
type span struct{ low, high uint64 }

func (s span) extend(tag uint64) span {
	if s.high == 0 {
		return span{tag, tag}
	}
	return span{min(s.low, tag), max(s.high, tag)}
}

// drop forgets everything.
func (f *confirms) drop() { *f = confirms{queued: f.queued} }

// settle notes the answer to one publish; unknown tags are ignored.
func (f *confirms) settle(tag uint64, refused bool) {
	if _, ok := f.pending.Take(tag); !ok {
		return
	}
	if refused {
		f.nacked = append(f.nacked, tag)
	} else {
		f.acked = append(f.acked, tag)
	}
}

// append encodes the answers and forgets them. Refusals go first, so that an
// acknowledgement of many never covers a number whose refusal is still to come;
// the numbers below the lowest unanswered one are acknowledged by one frame. A client that
// puts the answers in order, as amqp091-go does, takes an acknowledgement of many for the fate of
// refused numbers as well, until it has seen all below them: what lies among refused numbers is
// acknowledged one by one, and no frame reaches over them.
func (f *confirms) append(dst []byte, channel uint16) []byte {
	for _, tag := range f.nacked {
		dst = (&wire.BasicNack{DeliveryTag: tag}).AppendFrame(dst, channel)
		f.refused = f.refused.extend(tag)
	}
	bound := f.last + 1
	if low, ok := f.pending.Lowest(); ok {
		bound = low
	}
	among := f.refused
	if among.high == 0 {
		among = span{bound, bound}
	}
	// below and above the refused numbers; nothing above while something below is open
	var below, above many
	for _, tag := range f.acked {
		switch {
		case tag < min(bound, among.low):
			below.add(tag)
		case tag > among.high && tag < bound:
			above.add(tag)
		}
	}
	dst = below.append(dst, channel)
	for _, tag := range f.acked {
		if tag >= min(bound, among.low) && (tag <= among.high || tag >= bound) {
			dst = (&wire.BasicAck{DeliveryTag: tag}).AppendFrame(dst, channel)
		}
	}
	dst = above.append(dst, channel)
	if f.refused.high < bound {
		f.refused = span{}
	}
	f.acked, f.nacked = emptied(f.acked), emptied(f.nacked)
	return dst
}

// many is the acknowledgement of some numbers by the highest of them.
type many struct {
	n       int
	highest uint64
}

func (m *many) add(tag uint64) { m.n, m.highest = m.n+1, max(m.highest, tag) }

func (m *many) append(dst []byte, channel uint16) []byte {
	if m.n == 0 {
		return dst
	}
	return (&wire.BasicAck{DeliveryTag: m.highest, Multiple: m.n > 1}).AppendFrame(dst, channel)
}

func emptied(s []uint64) []uint64 {
	if cap(s) > tags.Kept {
		return nil
	}
	return s[:0]
}

// heldMessage is an immediate message, kept until its verdict is known.
type heldMessage struct {
	exchange, key string
	props         wire.RawProperties
	body          []byte
}

func (m *heldMessage) bytes() int {
	return len(m.exchange) + len(m.key) + len(m.props) + len(m.body)
}

// Confirm implements Sink.
func (ch *channel) Confirm(results []broker.Confirm) {
	defer ch.c.srv.cfg.Guard.Keep(work, "gateway/amqp.(*channel).Confirm", ch.fault)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.silent {
		return
	}
	for _, r := range results {
		if ch.immediate != nil {
			ch.verdict(r)
		}
		if r.Tag&probeTag == 0 {
			ch.confirms.settle(r.Tag, r.Refused)
		}
	}
	ch.announce()
}

// announce queues the channel for the writer; called with mu held.
func (ch *channel) announce() {
	f := &ch.confirms
	if !f.queued && len(f.acked)+len(f.nacked) > 0 {
		f.queued = true
		ch.c.out.confirms(ch)
	}
}

// confirmNow passes on what is answered without waiting for the writer to fetch it: the channel is about to be closed.
func (ch *channel) confirmNow() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if f := &ch.confirms; !ch.silent && len(f.acked)+len(f.nacked) > 0 {
		ch.c.out.append(func(ctl []byte) []byte { return f.append(ctl, ch.num) })
	}
}

// appendConfirms is the writer fetching what announce queued.
func (ch *channel) appendConfirms(dst []byte) []byte {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.confirms.queued = false
	return ch.confirms.append(dst, ch.num)
}

// verdict returns an immediate message that no consumer could take; called with
// mu held.
func (ch *channel) verdict(r broker.Confirm) {
	m := ch.immediate[r.Tag]
	if m == nil {
		return
	}
	delete(ch.immediate, r.Tag)
	ch.c.out.hold(-m.bytes())
	if r.NoConsumers {
		ch.giveBack(wire.NoConsumers, m.exchange, m.key, m.props, m.body)
	}
}

// giveBack sends basic.return; called with mu held.
func (ch *channel) giveBack(code uint16, exchange, key string, props wire.RawProperties, body []byte) {
	if ch.silent {
		return
	}
	ch.c.srv.stats.returns.Add(1)
	m := wire.BasicReturn{ReplyCode: code, ReplyText: wire.ReplyName(code), Exchange: exchange, RoutingKey: key}
	ch.c.out.giveBack(ch.num, &m, withoutBCC(props), body, ch.c.frameMax)
}

// withoutBCC takes the header BCC off a message that goes back: nobody is shown it, as in RabbitMQ.
func withoutBCC(props wire.RawProperties) wire.RawProperties {
	if _, has := props.Header("BCC"); !has {
		return props
	}
	rest, err := wire.Rewrite(props, func(p *wire.Properties) {
		headers, _ := p.Headers()
		headers.Delete("BCC")
		p.SetHeaders(headers)
	})
	if err != nil {
		return props
	}
	return rest
}
