package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/fsm"
)

// ttlMillisMax is the largest accepted TTL: ten years.
const ttlMillisMax = 315_360_000_000

// publishing is a publish on its way into one or more queues. When the last of them has answered it is used again.
type publishing struct {
	message []byte // the encoded message, which all queues' operations share
	ch      *Channel
	tag     uint64
	left    atomic.Int32
	refused atomic.Bool
	full    atomic.Bool  // a queue had no room for it
	noTaker atomic.Int32 // queues that had no consumer ready for an immediate message
	gone    atomic.Int32 // queues that had ended
	queues  int32
	// mandatory: its publisher wants to know when no queue gets it, also if that is because all had ended.
	mandatory bool
	// again: it was sent more than once, or its queue is gone, so that a former leader on this node may still have its message.
	again atomic.Bool
	span  *publishSpan // nil if it is not traced
}

// publishings are used again, with their bytes: fresh memory for each message would cost more than to fill it.
var publishings = sync.Pool{New: func() any { return new(publishing) }}

// What is kept of a publishing's room for bytes: never much more than the next message needs, because what is
// under way is bounded by the messages' sizes.
const (
	messageKept  = 64 << 10
	messageSpare = 1 << 10
)

// newPublishing returns one with room for a message of size bytes.
func newPublishing(size int) *publishing {
	p, _ := publishings.Get().(*publishing)
	if room := cap(p.message); room < size || room > 2*size+messageSpare {
		p.message = make([]byte, size)
	}
	p.again.Store(false)
	p.refused.Store(false)
	p.full.Store(false)
	p.noTaker.Store(0)
	p.gone.Store(0)
	p.mandatory = false
	return p
}

// recycle ends p. Nobody reads its message any more: the machine has what every queue took. A former leader on this
// node that was not the one to answer, and has not noticed, keeps it.
func (p *publishing) recycle() {
	p.ch, p.span = nil, nil
	if p.again.Load() || cap(p.message) > messageKept {
		p.message = nil
	}
	publishings.Put(p)
}

// finish records the answer of one queue and tells whether it was the last.
func (p *publishing) finish(k fsm.OutcomeKind) (last bool) {
	switch k {
	case fsm.RefusedFull, fsm.RefusedOutbox:
		p.refused.Store(true)
		p.full.Store(true)
	case fsm.RefusedConsumers:
		p.noTaker.Add(1)
	case fsm.Gone:
		p.gone.Add(1)
	}
	return p.left.Add(-1) == 0
}

func (p *publishing) confirm() Confirm {
	refused := p.refused.Load() || p.mandatory && p.gone.Load() == p.queues
	return Confirm{Tag: p.tag, Refused: refused, Deleted: refused && !p.full.Load(), NoConsumers: p.noTaker.Load() == p.queues}
}

// finish passes outcomes to whoever waits for them, confirms of one channel together. Whoever published to a queue that is gone
// hears of it when it is known whether another one has its name.
func (s *stream) finish(done []ended) {
	var c confirming
	var gone []stray
	for _, d := range done {
		p := d.op.publish
		switch {
		case d.op.result != nil:
			d.op.result <- d.outcome
		case p == nil:
		case d.outcome.Kind != fsm.Gone:
			c.answered(p, d.outcome.Kind)
		default:
			p.again.Store(true) // the stream may have said so, and no leader
			if p.tag == 0 {
				c.answered(p, fsm.Gone)
				continue
			}
			gone = append(gone, stray{s.name, s.id, p})
		}
	}
	c.flush()
	if len(gone) > 0 {
		s.hub.strayed(gone)
	}
}

// confirming collects the confirms of one channel.
type confirming struct {
	ch    *Channel
	batch []Confirm
}

// answered notes the answer of one of a publish's queues. With the last one, p is not the caller's any more.
func (c *confirming) answered(p *publishing, k fsm.OutcomeKind) {
	if !p.finish(k) {
		return
	}
	p.span.finished(p, k)
	if p.tag != 0 {
		if c.ch != p.ch {
			c.flush()
		}
		c.ch = p.ch
		c.batch = append(c.batch, p.confirm())
	}
	p.recycle()
}

func (c *confirming) flush() {
	if len(c.batch) > 0 {
		c.ch.confirm(c.batch)
		c.batch = c.batch[:0]
	}
}

// Publish checks and routes one message and appends it to the streams of the
// queues it goes to. It blocks while one of them is full of unanswered
// operations, until ctx ends. routed false means that no queue took it and
// nothing will be confirmed. Errors are *Error.
func (ch *Channel) Publish(ctx context.Context, p *Publish) (routed bool, err error) {
	ch.callerWaits = p.Waits
	routed, err = ch.publish(ctx, p)
	if err == nil && !routed && p.Mandatory && ch.tx != nil { // the caller keeps it, to return it at the commit
		err = ch.tx.count(ch.conn.b, len(p.Properties)+len(p.Body)+len(p.Exchange)+len(p.Key))
	}
	// The bytes are the caller's. A channel that is idle keeps none of them.
	ch.scratch.Properties, ch.scratch.Body, ch.headers = nil, nil, amqp.Table{}
	ch.routed.Properties, ch.routed.Headers = nil, amqp.Table{}
	if err == nil {
		ch.tally.published(p, routed, max(1, len(ch.targets)))
	}
	return routed, err
}

// passOn is called before Publish waits for one of the queues: what is for others goes to them, settlements too.
func (ch *Channel) passOn() {
	ch.Flush()
	if ch.callerWaits != nil {
		ch.callerWaits()
	}
}

func (ch *Channel) publish(ctx context.Context, p *Publish) (routed bool, err error) {
	view, err := ch.checkPublish(ctx, p)
	if err != nil {
		return false, err
	}
	m, op, err := ch.message(p)
	if err != nil {
		return false, err
	}
	if err := ch.conn.checkKeys(ch.topics, auth.Write, p.Exchange, m.RoutingKeys...); err != nil {
		return false, err
	}
	if ch.conn.b.cfg.Trace == nil {
		return ch.route(ctx, view, p, m, op, nil)
	}
	span := ch.beginPublish(p)
	routed, err = ch.route(ctx, view, p, m, op, span)
	span.routed(routed, err)
	return routed, err
}

// route passes the message in hand to the queues that it goes to; span may be nil.
func (ch *Channel) route(ctx context.Context, view *catalog.View, p *Publish, m *fsm.Message, op fsm.Publish, span *publishSpan) (routed bool, err error) {
	r := ch.routing(m)
	ch.targets, err = view.RouteMessage(ch.conn.vhost, p.Exchange, r, ch.targets[:0])
	if err != nil {
		return false, asError(err)
	}
	if p.Exchange == "" && ch.toRequesters(ctx, p, m) {
		return true, nil
	}
	if len(ch.targets) == 0 {
		// The catalog copy may be behind: an absence is concluded from a fresh
		// one, at most once for each revision.
		if view, err = ch.conn.b.freshForRoute(ctx); err != nil {
			return false, err
		}
		ch.targets, err = view.RouteMessage(ch.conn.vhost, p.Exchange, r, ch.targets[:0])
		if err != nil || len(ch.targets) == 0 {
			return false, asError(err)
		}
	}
	return true, ch.enqueue(ctx, p, m, op, span)
}

// routing is what exchanges look at of a message. Chance enters here, before any log.
func (ch *Channel) routing(m *fsm.Message) *catalog.Message {
	r := &ch.routed
	r.Keys, r.Headers, r.Properties, r.Random = m.RoutingKeys, ch.headers, m.Properties, rand.Uint64()
	return r
}

func (ch *Channel) enqueue(ctx context.Context, p *Publish, m *fsm.Message, op fsm.Publish, span *publishSpan) error {
	if err := ch.checkDedup(); err != nil {
		return err
	}
	size := len(m.Properties) + len(m.Body) + len(m.Exchange) + len(p.Key) + 64
	if ch.tx != nil {
		op.Message = fsm.EncodeMessage(make([]byte, 0, size), m)
		return ch.collect(p, op)
	}
	pub := newPublishing(size)
	pub.ch, pub.tag, pub.queues, pub.mandatory = ch, p.Tag, int32(len(ch.targets)), p.Mandatory
	pub.left.Store(pub.queues)
	pub.message = fsm.EncodeMessage(pub.message[:0], m)
	op.Message = pub.message
	span.hand(ch)
	pub.span = span
	for _, q := range ch.targets {
		s := ch.conn.b.stream(q)
		if err := s.publish(ctx, p.Exchange, ch.opFor(q, op), pub, ch.waits); err != nil {
			return Errorf(Internal, "queue '%s' in vhost '%s' did not take messages in time", q.Name, ch.conn.vhost)
		}
		ch.touch(s)
	}
	return nil
}

// opFor is what goes to one of the queues of the message that was routed last: its delay
// takes the place of the expiration, which counts from the moment it is due.
func (ch *Channel) opFor(q *catalog.Queue, op fsm.Publish) fsm.Publish {
	if q.DelayOf != "" {
		op.TTLMillis, op.Immediate = exchange.Delay(ch.headers), false
	}
	return op
}

// checkPublish checks what the exchange says of a message, and returns the view to route it with: the exchange is in that.
func (ch *Channel) checkPublish(ctx context.Context, p *Publish) (*catalog.View, error) {
	view := ch.conn.b.cat.View()
	if ch.wroteTo == p.Exchange && ch.wroteRev == view.Revision() && ch.wroteAs == ch.conn.logins && ch.conn.user.lasting() {
		return view, nil
	}
	user := ch.conn.user.waiting(ch.waits)
	if err := ch.conn.allowedAs(ctx, user, view, auth.Write, exchangeResource(p.Exchange)); err != nil {
		return nil, err
	}
	var topics auth.Keys
	if p.Exchange != "" {
		e, v, err := ch.conn.exchangeIn(ctx, view, p.Exchange)
		if err != nil {
			return nil, err
		}
		view = v
		if e.Internal {
			return nil, Errorf(AccessRefused, "cannot publish to internal exchange '%s' in vhost '%s'", p.Exchange, ch.conn.vhost)
		}
		if e.Type == exchange.Topic {
			topics = user.rights(view).keys(ch.conn.vhost, p.Exchange)
		}
	}
	ch.topics = topics
	ch.tally.to(ch.conn.b.exchanges.of(ch.conn.vhost, p.Exchange))
	ch.wroteTo, ch.wroteRev, ch.wroteAs = p.Exchange, view.Revision(), ch.conn.logins
	return view, nil
}

// message builds what is stored: the keys it is routed with, the properties
// without BCC, the expiration and priority beside them.
func (ch *Channel) message(p *Publish) (*fsm.Message, fsm.Publish, error) {
	m := &ch.scratch
	*m = fsm.Message{Exchange: p.Exchange, RoutingKeys: append(m.RoutingKeys[:0], p.Key), Properties: p.Properties, Body: p.Body}
	op := fsm.Publish{TTLMillis: -1, BodyBytes: uint32(len(p.Body)), Immediate: p.Immediate}
	if err := p.Properties.Validate(); err != nil {
		return nil, op, Errorf(PreconditionFailed, "invalid message: %v", err)
	}
	var err error
	if m.Properties, err = ch.withReplyTo(p.Properties); err != nil {
		return nil, op, err
	}
	if text, ok := p.Properties.Expiration(); ok {
		ttl, err := parseExpiration(text)
		if err != nil {
			return nil, op, err
		}
		op.TTLMillis = ttl
	}
	op.Priority, op.HasPriority = p.Properties.Priority()
	if err := ch.copies(m); err != nil {
		return nil, op, err
	}
	if id, ok := p.Properties.UserID(); ok && id != ch.conn.user.Name && !ch.conn.impersonator() {
		return nil, op, Errorf(PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", id, ch.conn.user.Name)
	}
	op.Dedup = ch.dedupID()
	return m, op, nil
}

// parseExpiration reads the expiration property: decimal digits with or without a sign, at most ten
// years of milliseconds. The error is in RabbitMQ's words.
func parseExpiration(text string) (int64, error) {
	digits := strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(text, "+"), "-"), "0123456789")
	number := text[:len(text)-len(digits)]
	wrong := ""
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		wrong = "no_integer"
	case digits != "":
		wrong = fmt.Sprintf("{leftover_string,%q}", digits)
	case n < 0:
		wrong = "{value_negative," + number + "}"
	case err != nil || n > ttlMillisMax:
		wrong = "{value_too_large," + number + "}"
	default:
		return n, nil
	}
	return 0, Errorf(PreconditionFailed, "invalid expiration '%s': %s", text, wrong)
}

// copies adds the CC and BCC headers' keys and takes BCC out of the headers.
func (ch *Channel) copies(m *fsm.Message) error {
	headers, ok, err := amqp.RawProperties(m.Properties).Headers()
	if err != nil {
		return Errorf(PreconditionFailed, "invalid message: %v", err)
	}
	ch.headers = headers
	if !ok {
		return nil
	}
	if err := addKeys(m, headers, "CC"); err != nil {
		return err
	}
	before := len(m.RoutingKeys)
	if err := addKeys(m, headers, "BCC"); err != nil {
		return err
	}
	m.BCC = len(m.RoutingKeys) - before
	if _, has := headers.Get("BCC"); has {
		m.Properties, err = withoutHeader(m.Properties, "BCC")
	}
	return err
}

func addKeys(m *fsm.Message, headers amqp.Table, name string) error {
	v, ok := headers.Get(name)
	if !ok {
		return nil
	}
	list, ok := v.(amqp.Array)
	if !ok {
		return Errorf(PreconditionFailed, "invalid message: {unacceptable_type_in_header,\"%s\",%s}", name, amqp.TypeName(v))
	}
	for _, item := range list {
		if key, ok := item.(string); ok {
			m.RoutingKeys = append(m.RoutingKeys, key)
		}
	}
	return nil
}
