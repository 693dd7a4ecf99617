package amqp

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/gateway/tags"
)

// channel is one channel of a connection. What is not under mu belongs to the
// connection's reader.
type channel struct {
	c       *conn
	num     uint16
	broker  Channel     // nil once it is closed
	counter Channel     // the same for ever, to be asked what it has counted
	closing bool        // channel.close was sent, its close-ok has not come
	failed  atomic.Bool // the broker ended it and channel.close was sent

	lastQueue string // declared last, what "" stands for
	prefetch  uint16 // for consumers started from now on; changed under mu
	confirm   bool   // publishes are counted; changed under mu
	tx        *tx    // nil unless transactional
	seq       uint64 // publishes counted
	probes    uint64 // immediate publishes outside confirm mode
	publish   publish

	touched bool // in conn.touched
	noAck   bool // had a consumer whose deliveries settle themselves once they are written
	// settling are deliveries to be settled as settleKind at the end of the burst.
	settling   []*broker.Delivery
	settleKind broker.SettleKind

	mu     sync.Mutex
	silent bool // nothing is sent any more
	// deleting: a queue.delete of this channel is under way. Consumers that end
	// with the queue are told behind delete-ok, as clients of RabbitMQ see it.
	deleting  bool
	ended     []*consumer
	consumers map[string]*consumer
	lastTag   uint64 // delivery tag given out last
	unacked   tags.List[*broker.Delivery]
	// Channel-wide prefetch: gated deliveries wait until holding, the number of
	// unacked deliveries of consumers, falls below limit, and while the server is quiet. fetched are the
	// unacked ones of get, which do not count.
	limit   uint16
	fetched tags.List[struct{}]
	gated   []gatedDelivery
	// starting is the consumer that is asked for, nil if none is. What comes of its queue meanwhile, for it or for others, waits in
	// early, so that it stays in order.
	starting *consumer
	early    []gatedDelivery
	// fetching is the queue that is asked for a message, "" if none is; sent is the newest of its deliveries that was sent meanwhile.
	fetching  string
	sent      *broker.Delivery
	confirms  confirms
	immediate map[uint64]*heldMessage
}

// consumer is the channel's side of a running consumer.
type consumer struct {
	tag   string
	queue string
	noAck bool

	// Guarded by the channel's mu, except that the writer reads handle after it
	// took a delivery.
	handle    Consumer // nil until the first delivery or the end of Consume
	started   bool     // consume-ok was appended
	cancelled bool     // by the broker
	ending    bool     // the client cancels it

	// The writer's: messages written since Written was called last.
	wroteMessages, wroteBytes int
}

// openChannel handles channel.open on a number that is not in use.
func (c *conn) openChannel(num uint16) error {
	if len(c.channels) >= int(c.channelMax) {
		// RabbitMQ's reader refuses it before it looks at the method, and blames none.
		return wire.Errorf(wire.NotAllowed, 0,
			"number of channels opened (%d) has reached the negotiated channel_max (%d)", len(c.channels), c.channelMax)
	}
	c.out.waitDelivered()
	ch := &channel{c: c, num: num, consumers: map[string]*consumer{}}
	ctx, cancel := c.operation()
	defer cancel()
	b, err := c.broker.OpenChannel(ctx, ch)
	if err != nil {
		return protocolError(err, 0)
	}
	ch.broker, ch.counter = b, b
	c.opened(num)
	c.channelsMu.Lock()
	c.channels[num] = ch
	c.channelsMu.Unlock()
	c.channelCount.Store(int32(len(c.channels)))
	c.current = ch
	c.srv.stats.channelsOpened.Add(1)
	c.out.method(num, &wire.ChannelOpenOk{})
	return nil
}

// lookup returns an open or closing channel, nil if there is none.
func (c *conn) lookup(num uint16) *channel {
	if c.current == nil || c.current.num != num {
		c.current = c.channels[num]
	}
	if ch := c.current; ch != nil {
		ch.shutFailed()
	}
	return c.current
}

func (c *conn) forget(ch *channel) {
	c.channelsMu.Lock()
	delete(c.channels, ch.num)
	c.channelsMu.Unlock()
	c.closedLately(ch.num)
	c.srv.stats.channelsClosed.Add(1)
	c.channelCount.Store(int32(len(c.channels)))
	c.current = nil
}

// channelMethod handles a method frame on a channel. An error ends the connection.
func (c *conn) channelMethod(f wire.Frame) error {
	ch := c.lookup(f.Channel)
	id := methodID(f.Payload)
	switch {
	case ch == nil:
		return c.closedChannelMethod(f, id)
	case ch.closing:
		return c.closingChannelMethod(ch, id)
	case ch.publish.stage != stageNone:
		return wire.Errorf(wire.UnexpectedFrame, ch.publish.id(), "expected a content frame on channel %d, got method %s", ch.num, id)
	}
	if err := ch.method(id, f.Payload); err != nil {
		return ch.fail(err, id)
	}
	return nil
}

// closedChannelMethod handles a method on a channel that is not open.
func (c *conn) closedChannelMethod(f wire.Frame, id wire.MethodID) error {
	if id == wire.MethodChannelCloseOk {
		return nil // our close and the client's crossed
	}
	if harmlessWhenLate(id) && c.isLate(f.Channel) {
		return nil
	}
	m, err := wire.Decode(f.Payload)
	if err != nil {
		return err
	}
	if id.Class() == wire.ClassConnection {
		return unexpectedMethod(id)
	}
	if _, ok := m.(*wire.ChannelOpen); !ok {
		return wire.Errorf(wire.ChannelError, id, "expected 'channel.open'")
	}
	return c.openChannel(f.Channel)
}

// closingChannelMethod ignores everything but the end of the channel.
func (c *conn) closingChannelMethod(ch *channel, id wire.MethodID) error {
	switch id {
	case wire.MethodChannelClose:
		c.out.method(ch.num, &wire.ChannelCloseOk{})
		c.forget(ch)
	case wire.MethodChannelCloseOk:
		c.forget(ch)
	}
	return nil
}

// methodID reads the number in front of a method frame's payload, 0 if it is
// cut short.
func methodID(payload []byte) wire.MethodID {
	if len(payload) < 4 {
		return 0
	}
	return wire.MethodID(payload[0])<<24 | wire.MethodID(payload[1])<<16 | wire.MethodID(payload[2])<<8 | wire.MethodID(payload[3])
}

// fail closes the channel for a soft error and returns any other.
func (ch *channel) fail(err error, id wire.MethodID) error {
	c := ch.c
	if c.ctx.Err() != nil {
		return errKicked // the operation was broken off, not refused
	}
	e := protocolError(err, id)
	if !e.Soft() {
		return e
	}
	if ch.silence() { // else Failed was faster
		c.srv.stats.channelErrors.Add(1)
		c.log.Info("closing channel", "channel", ch.num, "user", c.user.Name, "err", e)
		c.out.method(ch.num, e.ChannelClose())
	}
	ch.closing = true
	ch.shut()
	return nil
}

// Failed implements Sink.
func (ch *channel) Failed(err *broker.Error) {
	defer ch.c.srv.cfg.Guard.Keep(work, "gateway/amqp.(*channel).Failed", ch.fault)
	e := protocolError(err, 0)
	if !e.Soft() {
		ch.c.kick(err)
		return
	}
	if ch.failWith(e) {
		ch.c.attend()
	}
}

// failWith sends channel.close; false: it is closing already.
func (ch *channel) failWith(e *wire.Error) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.failedLocked(e)
}

// failedLocked is failWith with mu held.
func (ch *channel) failedLocked(e *wire.Error) bool {
	if ch.silent {
		return false
	}
	ch.c.srv.stats.channelErrors.Add(1)
	ch.replyLocked(e.ChannelClose())
	ch.silenceLocked()
	ch.failed.Store(true)
	return true
}

// silence makes the channel send nothing more of its own; ok is false if it was
// silent already.
func (ch *channel) silence() (ok bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ok = !ch.silent
	ch.silenceLocked()
	return ok
}

func (ch *channel) silenceLocked() {
	ch.silent = true
	ch.confirms.drop()
	for _, m := range ch.immediate {
		ch.c.out.hold(-m.bytes())
	}
	for _, g := range ch.gated {
		ch.c.srv.cfg.Unread.Add(-unreadSize(g.d))
	}
	for _, g := range ch.early { // the gated are withheld already
		g.d.Withhold()
	}
	ch.immediate, ch.gated, ch.early = nil, nil, nil
	if ch.tx != nil {
		*ch.tx = tx{}
	}
	ch.unacked, ch.fetched = tags.List[*broker.Delivery]{}, tags.List[struct{}]{}
}

// shut ends the channel at the broker and frees what it kept.
func (ch *channel) shut() {
	ch.flush()
	ch.c.assembled -= ch.publish.drop()
	ch.c.unreserve(&ch.publish)
	if ch.noAck {
		ch.c.awaitWritten(ch.closing)
	}
	ctx, cancel := ch.c.releasing()
	defer cancel()
	ch.closeBroker(ctx)
}

func (ch *channel) closeBroker(ctx context.Context) {
	if ch.broker != nil {
		ch.broker.Close(ctx)
		ch.broker = nil
	}
}

// touch makes sure that flush is called at the end of the burst.
func (ch *channel) touch() {
	if !ch.touched {
		ch.touched = true
		ch.c.touched = append(ch.c.touched, ch)
	}
}

// flush passes on collected settlements and publishes.
func (ch *channel) flush() {
	ch.settleNow()
	if ch.broker != nil {
		ch.broker.Flush()
	}
}

func (ch *channel) settleNow() {
	if len(ch.settling) == 0 {
		return
	}
	if ch.broker != nil {
		ch.broker.Settle(ch.settleKind, ch.settling)
	}
	clear(ch.settling)
	ch.settling = ch.settling[:0]
	if cap(ch.settling) > tags.Kept {
		ch.settling = nil
	}
}

// method handles one method of an open channel. The hot ones are decoded in
// place, the others wait for the room that their answers need.
func (ch *channel) method(id wire.MethodID, payload []byte) error {
	switch id {
	case wire.MethodBasicPublish:
		return ch.publish.begin(payload)
	case wire.MethodBasicAck:
		var m wire.BasicAck
		if err := m.Decode(payload); err != nil {
			return err
		}
		return ch.ack(fsm.Ack, m.DeliveryTag, m.Multiple)
	case wire.MethodBasicNack:
		var m wire.BasicNack
		if err := m.Decode(payload); err != nil {
			return err
		}
		return ch.ack(nackKind(m.Requeue), m.DeliveryTag, m.Multiple)
	case wire.MethodBasicReject:
		var m wire.BasicReject
		if err := m.Decode(payload); err != nil {
			return err
		}
		kind := fsm.Discard
		if m.Requeue {
			kind = fsm.RequeueFailed
		}
		return ch.ack(kind, m.DeliveryTag, false)
	}
	m, err := wire.Decode(payload)
	if err != nil {
		return err
	}
	ch.c.out.waitRoom()
	ch.c.passOn() // what was sent before is done before
	return ch.slowMethod(m)
}

func nackKind(requeue bool) broker.SettleKind {
	if requeue {
		return fsm.RequeueCounted
	}
	return fsm.Discard
}

// slowMethod handles the methods that are not hot.
func (ch *channel) slowMethod(m wire.Method) error {
	switch m := m.(type) {
	case *wire.ChannelOpen:
		return wire.Errorf(wire.ChannelError, m.ID(), "second 'channel.open' seen")
	case *wire.ChannelClose:
		ch.confirmNow()
		ch.silence()
		ch.shut()
		ch.c.forget(ch)
		ch.c.out.method(ch.num, &wire.ChannelCloseOk{})
		return nil
	case *wire.ChannelCloseOk:
		return nil
	case *wire.ChannelFlow:
		failpoint.PanicsForClient()
		if !m.Active {
			return wire.Errorf(wire.NotImplemented, m.ID(), "active=false")
		}
		ch.reply(&wire.ChannelFlowOk{Active: true})
		return nil
	case *wire.AccessRequest:
		ch.reply(&wire.AccessRequestOk{Ticket: 1})
		return nil
	case *wire.ConfirmSelect:
		if ch.tx != nil {
			return wire.Errorf(wire.PreconditionFailed, m.ID(), "cannot switch from tx to confirm mode")
		}
		ch.mu.Lock()
		ch.confirm = true
		ch.mu.Unlock()
		if !m.NoWait {
			ch.reply(&wire.ConfirmSelectOk{})
		}
		return nil
	}
	switch m.ID().Class() {
	case wire.ClassExchange:
		return ch.exchangeMethod(m)
	case wire.ClassQueue:
		return ch.queueMethod(m)
	case wire.ClassBasic:
		return ch.basicMethod(m)
	case wire.ClassTx:
		return ch.txMethod(m)
	}
	return unexpectedMethod(m.ID())
}

// reply appends a method on this channel, unless the broker has ended it.
func (ch *channel) reply(m wire.Method) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.replyLocked(m)
}

func (ch *channel) replyLocked(m wire.Method) {
	if !ch.silent {
		ch.c.out.method(ch.num, m)
	}
}

// stripLines removes CR and LF from a name, as RabbitMQ does.
func stripLines(name string) string {
	if !strings.ContainsAny(name, "\r\n") {
		return name
	}
	return strings.NewReplacer("\r", "", "\n", "").Replace(name)
}
