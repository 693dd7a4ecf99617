package grpc

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	wire "github.com/warrenmq/warren/amqp"
	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/gateway/tags"
)

// Bounds of what one response carries.
const (
	deliveriesMax    = 256
	deliveryBytesMax = 256 << 10 // and the delivery that goes beyond
)

// creditMax is how much credit a stream may have.
const creditMax = 1 << 20

// extendMax bounds the deliveries of a request whose time begins anew, because nothing else does: they stay.
const extendMax = 1 << 16

type consumeService struct {
	warrenv1.UnimplementedConsumeServiceServer
	s *Server
}

// Consume implements the service. One goroutine receives, and one sends.
func (c *consumeService) Consume(stream grpc.BidiStreamingServer[warrenv1.ConsumeRequest, warrenv1.ConsumeResponse]) error {
	first, err := firstOf(stream.Context(), c.s, stream.Recv)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	if first.GetOpen() == nil {
		return invalid("the first request of the stream does not open it")
	}
	x := &consumeStream{stream: stream, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	if x.session, err = c.s.begin(stream.Context(), first.GetOpen().GetVhost(), x, func() bool { return false }); err != nil {
		return err
	}
	defer x.close()
	defer x.unsent()
	if err := x.start(first.GetOpen()); err != nil {
		return err
	}
	c.s.workers.Go(func() { x.receive(first) }) // ends when this call has returned, if not before
	return x.run(x.send)
}

// consumeStream is one consumer.
type consumeStream struct {
	*session
	stream   grpc.BidiStreamingServer[warrenv1.ConsumeRequest, warrenv1.ConsumeResponse]
	consumer *broker.Consumer
	autoAck  bool
	queue    string
	wake     chan struct{}
	ended    chan struct{} // closed when the receiver reads no more

	mu        sync.Mutex
	ready     []*broker.Delivery // to be sent
	unsettled tags.List[*broker.Delivery]
	number    uint64 // of the newest delivery
	credit    uint64 // given and not used up
	cancelled bool   // by the client: nothing comes any more
	over      bool   // nothing is sent any more
	failed    error  // what the receiver ended with; nil at the client's end

	settling []*broker.Delivery // by the receiver
}

// Confirm implements broker.Sink; nothing is published.
func (x *consumeStream) Confirm([]broker.Confirm) {}

// Deliver implements broker.Sink. What is there is bounded by the consumer's credit and window.
func (x *consumeStream) Deliver(d *broker.Delivery) {
	x.mu.Lock()
	if x.over {
		x.mu.Unlock()
		d.Withhold() // the broker takes it back as it was
		return
	}
	x.ready = append(x.ready, d)
	x.mu.Unlock()
	x.s.cfg.Unread.Add(d.WindowBytes)
	signal(x.wake)
}

// Cancelled implements broker.Sink.
func (x *consumeStream) Cancelled(c *broker.Consumer) {
	if err := c.Displaced(); err != nil {
		x.end(refusalOf(err))
		return
	}
	x.end(refuse(codes.NotFound, reasonDeleted, "queue '%s' was deleted", x.queue))
}

// TimedOut implements broker.Sink.
func (x *consumeStream) TimedOut(_ *broker.Consumer, after time.Duration) {
	x.end(refuse(codes.Aborted, reasonTimeout, "a delivery was not settled in %v", after))
}

// Failed implements broker.Sink.
func (x *consumeStream) Failed(err *broker.Error) { x.end(refusalOf(err)) }

// start declares what the client wants declared and starts the consumer.
func (x *consumeStream) start(open *warrenv1.ConsumeOpen) error {
	spec, err := consumeOf(open)
	if err != nil {
		return err
	}
	if spec.Queue, err = x.declare(open); err != nil {
		return err
	}
	x.queue, x.autoAck = spec.Queue, spec.NoAck
	return x.use(func(ch *broker.Channel) (err error) {
		x.consumer, err = ch.Consume(x.ctx, spec)
		return err
	})
}

// consumeOf is a client's request but for the queue.
func consumeOf(open *warrenv1.ConsumeOpen) (broker.Consume, error) {
	spec := broker.Consume{
		Tag: open.GetConsumerTag(), NoAck: open.GetAutoAck(), Exclusive: open.GetExclusive(), Priority: open.GetPriority(),
		Prefetch: uint16(min(open.GetPrefetch(), math.MaxUint16)), Credit: true,
	}
	if spec.Tag == "" {
		spec.Tag = "grpc.ctag-" + rand.Text()
	}
	if open.GetPrefetch() > math.MaxUint16 {
		return spec, invalid("prefetch %d is larger than %d", open.GetPrefetch(), math.MaxUint16)
	}
	var err error
	if open.GetArguments() != nil {
		if spec.Arguments, err = tableOf(open.GetArguments()); err != nil {
			return spec, err
		}
		if v, ok := spec.Arguments.Get("x-priority"); ok { // the broker checks it
			n, _ := wire.AsInt64(v)
			if n = max(math.MinInt32, min(n, math.MaxInt32)); spec.Priority != 0 && n != int64(spec.Priority) {
				return spec, invalid("priority %d and x-priority %d", spec.Priority, n)
			}
			spec.Priority = int32(n)
		}
	}
	return spec, checkName("consumer_tag", spec.Tag)
}

// unsent withholds what has not been sent: it is no attempt of the client's when the channel goes and the broker takes it back.
func (x *consumeStream) unsent() {
	x.mu.Lock()
	ready := x.ready
	x.ready = nil
	x.over = true
	x.mu.Unlock()
	for _, d := range ready {
		x.s.cfg.Unread.Add(-d.WindowBytes)
	}
	if len(ready) == 0 || x.autoAck {
		return // without acknowledgements the broker knows what was sent
	}
	for _, d := range ready {
		d.Withhold()
	}
}

// declare makes the queue and the bindings that the stream brings along and gives the name of the queue to consume from.
func (x *consumeStream) declare(open *warrenv1.ConsumeOpen) (string, error) {
	queue := open.GetQueue()
	if err := checkName("queue", queue); err != nil {
		return "", err
	}
	if open.GetDeclare() != nil {
		if queue != "" {
			return "", invalid("the stream names a queue and declares one")
		}
		d, err := queueOf(open.GetDeclare())
		if err != nil {
			return "", err
		}
		ok, err := x.conn.DeclareQueue(x.ctx, d)
		if err != nil {
			return "", err
		}
		queue = ok.Name
	}
	switch queue {
	case "":
		return "", invalid("the stream names no queue")
	case broker.ReplyQueue:
		return "", refuse(codes.Unimplemented, "NOT_IMPLEMENTED", "queue '%s' is for requests and replies on one AMQP channel", queue)
	}
	for _, b := range open.GetBindings() {
		binding, err := bindingOf(b)
		if err != nil {
			return "", err
		}
		binding.Destination, binding.ToExchange = queue, false
		if err := x.conn.Bind(x.ctx, binding); err != nil {
			return "", err
		}
	}
	return queue, nil
}

// receive takes credit and settlements until the client ends its side, or the session its work.
func (x *consumeStream) receive(req *warrenv1.ConsumeRequest) {
	defer close(x.ended)
	defer x.s.cfg.Guard.Keep(work, "", func() { x.stop(fault()) })
	var err error
	for err == nil {
		if err = x.take(req); err != nil {
			break
		}
		if req, err = x.stream.Recv(); err == nil && req.GetOpen() != nil {
			err = invalid("only the first request of a stream opens it")
		}
	}
	if !errors.Is(err, io.EOF) {
		x.mu.Lock()
		x.failed = err
		x.mu.Unlock()
	}
}

func (x *consumeStream) take(req *warrenv1.ConsumeRequest) error {
	if err := x.settle(req.GetSettlements()); err != nil {
		return err
	}
	if req.GetCredit() > 0 {
		x.mu.Lock()
		x.credit += uint64(req.GetCredit())
		tooMuch := x.credit > creditMax
		x.mu.Unlock()
		if tooMuch {
			return invalid("more than %d of credit", creditMax)
		}
		x.consumer.Grant(int(req.GetCredit()))
	}
	if req.GetCancel() {
		failpoint.PanicsForClient()
		if err := x.use(func(*broker.Channel) error { return x.consumer.Cancel(x.ctx) }); err != nil {
			return err
		}
		x.mu.Lock()
		x.cancelled = true
		x.mu.Unlock()
		signal(x.wake)
	}
	return nil
}

// settleKinds maps the ways in which deliveries end.
var settleKinds = map[warrenv1.SettleKind]broker.SettleKind{
	warrenv1.SettleKind_SETTLE_KIND_ACK: fsm.Ack, warrenv1.SettleKind_SETTLE_KIND_REJECT: fsm.Discard,
	warrenv1.SettleKind_SETTLE_KIND_REQUEUE: fsm.RequeueFailed, warrenv1.SettleKind_SETTLE_KIND_RELEASE: fsm.RequeueCounted,
}

func (x *consumeStream) settle(list []*warrenv1.Settlement) error {
	if len(list) == 0 {
		return nil
	}
	if x.autoAck {
		return refuse(codes.FailedPrecondition, "PRECONDITION_FAILED", "deliveries of this stream are settled by being sent")
	}
	for _, e := range list {
		if err := checkDetail(e.GetKind(), e.GetDetail()); err != nil {
			return err
		}
	}
	extended := 0
	return x.use(func(ch *broker.Channel) error {
		defer ch.Flush()
		for _, e := range list {
			if e.GetKind() == warrenv1.SettleKind_SETTLE_KIND_EXTEND {
				n, err := x.extend(ch, e, extendMax-extended)
				if err != nil {
					return err
				}
				extended += n
				continue
			}
			kind, known := settleKinds[e.GetKind()]
			first, last := e.GetFirst(), max(e.GetFirst(), e.GetLast())
			if !known {
				return invalid("settlement of an unknown kind %d", e.GetKind())
			}
			x.mu.Lock()
			newest := x.number
			x.settling = x.unsettled.TakeRange(first, last, x.settling[:0])
			x.mu.Unlock()
			if first == 0 || last > newest || e.GetLast() != 0 && e.GetLast() < first {
				ch.Settle(fsm.RequeueCounted, x.settling) // they would be nobody's
				return invalid("settlement of the deliveries %d to %d: the newest is %d", first, last, newest)
			}
			if err := x.settleAs(ch, kind, e.GetDetail()); err != nil {
				return err
			}
		}
		if cap(x.settling) > tags.Kept {
			x.settling = nil
		}
		return nil
	})
}

// checkDetail checks what a settlement says of why.
func checkDetail(kind warrenv1.SettleKind, detail string) error {
	if detail != "" && kind != warrenv1.SettleKind_SETTLE_KIND_REJECT {
		return invalid("only a rejection has a detail")
	}
	return checked(broker.CheckDetail(detail))
}

// settleAs settles what is in x.settling. What an error leaves goes back with the channel.
func (x *consumeStream) settleAs(ch *broker.Channel, kind broker.SettleKind, detail string) error {
	defer clear(x.settling)
	if detail != "" {
		return ch.Reject(detail, x.settling)
	}
	ch.Settle(kind, x.settling)
	return nil
}

// extend begins the time of deliveries anew, and tells how many the client has named: as many as it may, at most.
func (x *consumeStream) extend(ch *broker.Channel, e *warrenv1.Settlement, most int) (named int, err error) {
	first, last := e.GetFirst(), max(e.GetFirst(), e.GetLast())
	x.mu.Lock()
	newest := x.number
	x.mu.Unlock()
	if first == 0 || last > newest || e.GetLast() != 0 && e.GetLast() < first {
		return 0, invalid("settlement of the deliveries %d to %d: the newest is %d", first, last, newest)
	}
	if last-first >= uint64(most) {
		return 0, invalid("more than %d deliveries in one request are still at work", extendMax)
	}
	x.mu.Lock()
	x.settling = x.unsettled.Range(first, last, x.settling[:0])
	x.mu.Unlock()
	ch.Extend(x.settling)
	clear(x.settling)
	return int(last - first + 1), nil
}

// send passes deliveries on until the session ends.
func (x *consumeStream) send() error {
	if err := x.stream.Send(&warrenv1.ConsumeResponse{Opened: &warrenv1.ConsumeOpened{Queue: x.queue, ConsumerTag: x.consumer.Tag()}}); err != nil {
		return err
	}
	told := false
	for {
		for more := true; more; {
			var err error
			if more, err = x.sendSome(); err != nil {
				return err
			}
		}
		x.mu.Lock()
		tell := x.cancelled && !told && len(x.ready) == 0
		x.mu.Unlock()
		if tell {
			told = true
			if err := x.stream.Send(&warrenv1.ConsumeResponse{Cancelled: true}); err != nil {
				return err
			}
		}
		select {
		case <-x.wake:
		case <-x.ended:
			return x.finish()
		case <-x.leaving:
			return x.leaves()
		case <-x.ctx.Done():
			return x.cause()
		}
	}
}

// finish is how a stream ends whose receiver has: at the client's end when what it has settled is in the log.
func (x *consumeStream) finish() error {
	x.mu.Lock()
	failed := x.failed
	x.mu.Unlock()
	if failed != nil {
		return failed
	}
	return x.awaitSettled()
}

// sendSome sends one response; more tells that there may be another one.
func (x *consumeStream) sendSome() (more bool, err error) {
	select {
	case <-x.ctx.Done():
		return false, x.cause()
	default:
	}
	x.mu.Lock()
	n, bytes := 0, 0
	for n < len(x.ready) && n < deliveriesMax && bytes < deliveryBytesMax {
		bytes += x.ready[n].WindowBytes
		n++
	}
	batch := x.ready[:n:n]
	if x.ready = x.ready[n:]; len(x.ready) == 0 {
		x.ready = nil
	}
	number := x.number
	for _, d := range batch {
		x.number++
		if !x.autoAck {
			x.unsettled.Push(x.number, d)
		}
	}
	x.credit -= min(x.credit, uint64(n))
	more = len(x.ready) > 0
	x.mu.Unlock()
	if n == 0 {
		return false, nil
	}
	resp := &warrenv1.ConsumeResponse{Deliveries: make([]*warrenv1.Delivery, n)}
	for i, d := range batch {
		number++
		resp.Deliveries[i] = deliveryFor(number, d.Exchange, d.Key, d.PropertiesWithCounts(), d.Body, d.Redelivered)
		resp.Deliveries[i].DeliveryCount, resp.Deliveries[i].AcquiredCount = d.Failed, d.Acquired
		d.Shed()
	}
	err = x.stream.Send(resp) // into the window that HTTP/2 gives the client; it blocks while that is full
	x.s.cfg.Unread.Add(-bytes)
	if err != nil {
		return false, err
	}
	x.consumer.Written(n, bytes)
	return more, nil
}

func deliveryFor(number uint64, exchange, key string, props wire.RawProperties, body []byte, redelivered bool) *warrenv1.Delivery {
	m := messageFor(exchange, key, props, body)
	return &warrenv1.Delivery{Number: number, Message: m, Redelivered: redelivered, Deaths: deathsFor(m)}
}

// Bounds of what a get takes.
const (
	getCountMax = 1000
	getBytesMax = 2 << 20 // and the message that goes beyond
)

// Get implements the service.
func (c *consumeService) Get(ctx context.Context, req *warrenv1.GetRequest) (*warrenv1.GetResponse, error) {
	kind, known := settleKinds[req.GetSettle()]
	switch {
	case req.GetSettle() == warrenv1.SettleKind_SETTLE_KIND_UNSPECIFIED:
		kind = fsm.Ack
	case !known:
		return nil, invalid("settlement of an unknown kind %d", req.GetSettle())
	}
	if err := checkDetail(req.GetSettle(), req.GetDetail()); err != nil {
		return nil, err
	}
	if req.GetCount() > getCountMax {
		return nil, invalid("count %d is larger than %d", req.GetCount(), getCountMax)
	}
	if err := errors.Join(checkName("queue", req.GetQueue()), checkName("vhost", req.GetVhost())); err != nil {
		return nil, err
	}
	list, err := c.s.broker.FetchOnce(ctx, callerOf(ctx).user, vhostOf(req.GetVhost()), req.GetQueue(), broker.Fetch{
		Count: int(max(1, req.GetCount())), Truncate: -1, BytesMax: getBytesMax, End: kind, Detail: req.GetDetail(),
	})
	if err != nil {
		return nil, err
	}
	resp := &warrenv1.GetResponse{}
	for i := range list {
		resp.Deliveries, resp.Remaining = append(resp.Deliveries, fetchedFor(uint64(i+1), &list[i])), uint64(list[i].Remaining)
	}
	return resp, nil
}

func fetchedFor(number uint64, m *broker.Fetched) *warrenv1.Delivery {
	d := deliveryFor(number, m.Exchange, m.Key, m.Properties, m.Body, m.Redelivered)
	d.DeliveryCount, d.AcquiredCount = m.Failed, m.Acquired // headers of these names may be the publisher's
	return d
}
