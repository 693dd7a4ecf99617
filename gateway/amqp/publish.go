package amqp

import (
	"bytes"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// bodyBytesCeiling is the largest body size a header may name, whatever is
// configured; beyond it the peer is not believed to speak the protocol.
const bodyBytesCeiling = 512 << 20

// What a channel expects next.
const (
	stageNone   = iota // a method
	stageHeader        // the header of a publish
	stageBody          // more of its body
)

// publish assembles one message of a channel. The strings of method are kept
// from one publish to the next, so that equal ones cost nothing.
type publish struct {
	stage  uint8
	method wire.BasicPublish
	size   int                // of the body
	props  wire.RawProperties // copied, unless the message ends with its header
	body   *[]byte            // what has come so far of a body in many frames, or nil
	// reserved is the room that the node keeps for the message, in bytes.
	reserved int64
	msg      broker.Publish // reused for the call
}

const (
	propsKept = 4 << 10 // what an idle channel keeps of its buffer
	bodyKept  = 4 << 20 // what a pooled buffer may hold
	bodyStep  = 1 << 20 // space taken for a body before much of it has come
)

func (p *publish) id() wire.MethodID {
	if p.stage == stageNone {
		return 0
	}
	return wire.MethodBasicPublish
}

// begin takes basic.publish.
func (p *publish) begin(payload []byte) error {
	if err := p.method.Decode(payload); err != nil {
		return err
	}
	p.stage = stageHeader
	return nil
}

// drop forgets a message that will not be completed and returns how many bytes
// it was counted with.
func (p *publish) drop() int {
	n := p.have()
	if p.stage == stageBody {
		n += len(p.props)
	}
	p.stage, p.props, p.body = stageNone, nil, nil
	return n
}

// have is how many bytes of the body have come.
func (p *publish) have() int {
	if p.body == nil {
		return 0
	}
	return len(*p.body)
}

// content handles a header or body frame. An error ends the connection.
func (c *conn) content(f wire.Frame) error {
	if f.Channel == 0 {
		return wire.Errorf(wire.UnexpectedFrame, 0, "content frame on channel 0")
	}
	ch := c.lookup(f.Channel)
	if ch == nil && c.isLate(f.Channel) {
		return nil
	}
	if ch == nil {
		return wire.Errorf(wire.UnexpectedFrame, 0, "content frame on channel %d, which is not open", f.Channel)
	}
	if ch.closing {
		return nil
	}
	var err error
	switch {
	case f.Type == wire.FrameHeader && ch.publish.stage == stageHeader:
		err = ch.contentHeader(f.Payload)
	case f.Type == wire.FrameBody && ch.publish.stage == stageBody:
		err = ch.contentBody(f.Payload)
	default:
		kind := "body"
		if f.Type == wire.FrameHeader {
			kind = "header"
		}
		return wire.Errorf(wire.UnexpectedFrame, ch.publish.id(), "unexpected content %s frame on channel %d", kind, ch.num)
	}
	if err != nil {
		return ch.fail(err, wire.MethodBasicPublish)
	}
	return nil
}

// contentHeader takes the header of a publish.
func (ch *channel) contentHeader(payload []byte) error {
	h, err := wire.ParseContentHeader(payload)
	if err != nil {
		return err
	}
	p, cfg := &ch.publish, &ch.c.srv.cfg
	switch {
	case h.ClassID != wire.ClassBasic:
		return wire.Errorf(wire.UnexpectedFrame, wire.MethodBasicPublish,
			"content header of class %d after a method of class %d", h.ClassID, wire.ClassBasic)
	case h.BodySize > bodyBytesCeiling:
		return wire.Errorf(wire.FrameError, wire.MethodBasicPublish, "body size %d exceeds %d", h.BodySize, bodyBytesCeiling)
	case h.BodySize > uint64(cfg.MessageBytesMax):
		return wire.Errorf(wire.PreconditionFailed, wire.MethodBasicPublish,
			"message size %d is larger than configured max size %d", h.BodySize, cfg.MessageBytesMax)
	}
	if err := h.Properties.Validate(); err != nil {
		return err
	}
	p.size = int(h.BodySize)
	if p.size == 0 {
		return ch.published(h.Properties, nil)
	}
	p.props = append(p.props[:0], h.Properties...)
	p.stage = stageBody
	ch.c.becomePublisher() // an alarm stops it before it has a whole message
	if len(p.props) > propsKept {
		if err := ch.c.reserve(p); err != nil {
			return err
		}
	}
	return ch.c.assemble(len(p.props))
}

// assemble counts bytes of messages that are still arriving.
func (c *conn) assemble(n int) error {
	if c.assembled += n; c.assembled > c.srv.cfg.AssemblyBytesMax {
		return wire.Errorf(wire.ResourceError, wire.MethodBasicPublish,
			"unfinished messages of the connection exceed %d bytes", c.srv.cfg.AssemblyBytesMax)
	}
	return nil
}

func (c *conn) becomePublisher() {
	if !c.isPublisher {
		c.isPublisher = true
		c.markPublisher()
	}
}

// contentBody takes a piece of the body.
func (ch *channel) contentBody(piece []byte) error {
	p := &ch.publish
	have := p.have() + len(piece)
	switch {
	case have > p.size:
		return wire.Errorf(wire.UnexpectedFrame, wire.MethodBasicPublish, "body of %d bytes is longer than the %d announced", have, p.size)
	case len(piece) == p.size:
		ch.c.assembled -= len(p.props)
		err := ch.published(p.props, piece)
		ch.c.unreserve(p)
		return err
	case len(piece) == 0:
		return nil
	}
	c := ch.c
	if err := c.assemble(len(piece)); err != nil {
		return err
	}
	switch {
	case p.reserved == 0:
		if err := c.reserve(p); err != nil {
			return err
		}
	case have < p.size:
		c.grown.Store(time.Now().UnixNano())
	}
	if p.body == nil {
		p.body = c.srv.pools.body(p.size)
	}
	if b := *p.body; cap(b) < have {
		*p.body = append(make([]byte, 0, min(p.size, max(have, 2*cap(b)))), b...)
	}
	*p.body = append(*p.body, piece...)
	if have < p.size {
		return nil
	}
	c.assembled -= len(p.props) + p.size
	err := ch.published(p.props, *p.body)
	c.srv.pools.putBody(p.body)
	p.body = nil
	c.unreserve(p)
	return err
}

// published hands a complete message to the broker. props and body are only
// valid during the call.
func (ch *channel) published(props wire.RawProperties, body []byte) error {
	p, c := &ch.publish, ch.c
	p.stage = stageNone
	c.published++
	c.becomePublisher()
	m := &p.method
	if m.Immediate && ch.tx != nil {
		return wire.Errorf(wire.NotImplemented, wire.MethodBasicPublish, "immediate=true in a transaction")
	}
	tag := ch.number()
	p.msg = broker.Publish{
		Exchange: m.Exchange, Key: m.RoutingKey, Mandatory: m.Mandatory, Immediate: m.Immediate,
		Properties: props, Body: body, Tag: tag, Waits: c.waits,
	}
	if m.Immediate {
		tag = ch.keepImmediate(&p.msg)
	}
	routed, err := ch.broker.Publish(c.ctx, &p.msg)
	ch.touch()
	p.msg.Properties, p.msg.Body = nil, nil
	if cap(p.props) > propsKept {
		p.props = nil
	}
	if err != nil {
		return err
	}
	if ch.tx != nil {
		ch.mu.Lock()
		ch.tx.published++
		ch.mu.Unlock()
	}
	switch {
	case routed:
	case ch.tx != nil:
		err = ch.keepReturn(props, body)
	default:
		ch.unroutable(tag, props, body)
	}
	if m.Immediate {
		c.out.waitRoom()
	}
	return err
}

// number counts a publish in confirm mode; 0 otherwise.
func (ch *channel) number() uint64 {
	if !ch.confirm {
		return 0
	}
	ch.seq++
	ch.mu.Lock()
	ch.confirms.pending.Push(ch.seq, struct{}{})
	ch.confirms.last = ch.seq
	ch.mu.Unlock()
	return ch.seq
}

// keepImmediate copies an immediate message, which may have to be returned when
// the broker's verdict comes, and gives it a tag if it has none.
func (ch *channel) keepImmediate(m *broker.Publish) uint64 {
	if m.Tag == 0 {
		ch.probes++
		m.Tag = probeTag | ch.probes
	}
	kept := &heldMessage{exchange: m.Exchange, key: m.Key, props: m.Properties.Clone(), body: bytes.Clone(m.Body)}
	ch.c.out.hold(kept.bytes())
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.immediate == nil {
		ch.immediate = map[uint64]*heldMessage{}
	}
	ch.immediate[m.Tag] = kept
	return m.Tag
}

// unroutable returns a message that no queue got, if it asked for that, and
// confirms it.
func (ch *channel) unroutable(tag uint64, props wire.RawProperties, body []byte) {
	m := &ch.publish.method
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if kept := ch.immediate[tag]; kept != nil {
		delete(ch.immediate, tag)
		ch.c.out.hold(-kept.bytes())
	}
	switch {
	case m.Mandatory:
		ch.giveBack(wire.NoRoute, m.Exchange, m.RoutingKey, props, body)
	case m.Immediate:
		ch.giveBack(wire.NoConsumers, m.Exchange, m.RoutingKey, props, body)
	}
	if tag != 0 && tag&probeTag == 0 {
		ch.confirms.settle(tag, false)
		ch.announce()
	}
}
