package client

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// rpc is the part of a client that speaks gRPC: one stream of messages to the node, and one of deliveries for each
// consumer. It does nothing by itself to get over an error.
type rpc struct {
	conn *grpc.ClientConn
	ctx  context.Context //nolint:containedctx // that of all streams, with the login
	cut  context.CancelFunc
	work sync.WaitGroup // the readers of streams

	publish warrenv1.PublishService_PublishStreamClient // nil until the first message
	sent    uint64
	// consumers are the streams of deliveries.
	consumers []warrenv1.ConsumeService_ConsumeClient

	mu     sync.Mutex
	open   map[uint64]*rpcConfirm
	closed bool // no results come any more
}

// rpcConfirm is the result of a message.
type rpcConfirm struct {
	done   chan struct{}
	result *warrenv1.PublishResult // set before done is closed; nil if it never came
}

func (c *rpcConfirm) Done() <-chan struct{} { return c.done }
func (c *rpcConfirm) Acked() bool {
	return c.result.GetOutcome() == warrenv1.PublishOutcome_PUBLISH_OUTCOME_CONFIRMED
}

var errStreamEnded = errors.New("the stream has ended")

// openRPC makes the connection; nothing is sent yet.
func openRPC(ctx context.Context, cfg *Config, addr string) (*rpc, error) {
	conn, err := grpc.NewClient("passthrough:"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte(cfg.User+":"+cfg.User))
	r := &rpc{conn: conn, open: map[uint64]*rpcConfirm{}}
	// What was sent is waited for also when ctx ends.
	r.ctx, r.cut = context.WithCancel(metadata.AppendToOutgoingContext(context.WithoutCancel(ctx), "authorization", login))
	return r, nil
}

// send publishes a message. It may wait for the node to read.
func (r *rpc) send(m Message, id string, content []byte) (*rpcConfirm, error) {
	req := &warrenv1.PublishStreamRequest{}
	if r.publish == nil {
		stream, err := warrenv1.NewPublishServiceClient(r.conn).PublishStream(r.ctx)
		if err != nil {
			return nil, err
		}
		r.publish, req.Open = stream, &warrenv1.PublishOpen{}
		r.work.Go(r.results)
	}
	persistent := uint32(amqp.Persistent)
	headers, err := toTable(m.Headers)
	if err != nil {
		return nil, err
	}
	props := &warrenv1.Properties{MessageId: &id, DeliveryMode: &persistent, Headers: headers}
	if m.Expiration != "" {
		props.Expiration = &m.Expiration
	}
	if m.Priority != 0 {
		priority := uint32(m.Priority)
		props.Priority = &priority
	}
	req.Publications = []*warrenv1.Publication{{Message: &warrenv1.Message{
		Exchange: m.Exchange, RoutingKey: m.Key, Properties: props, Body: content,
	}}}
	confirm := &rpcConfirm{done: make(chan struct{})}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errStreamEnded
	}
	r.sent++
	r.open[r.sent] = confirm
	r.mu.Unlock()
	return confirm, r.publish.Send(req)
}

// results hands out results until the stream of messages ends.
func (r *rpc) results() {
	for {
		resp, err := r.publish.Recv()
		r.mu.Lock()
		for _, result := range resp.GetResults() {
			for n := result.GetFirst(); n <= result.GetLast(); n++ {
				if c := r.open[n]; c != nil {
					c.result = result
					close(c.done)
					delete(r.open, n)
				}
			}
		}
		if err != nil {
			r.closed = true
			for _, c := range r.open {
				close(c.done)
			}
			clear(r.open)
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// consume starts a consumer that has credit for as many deliveries as may be unsettled, and gets more with each settlement.
func (r *rpc) consume(queue string, prefetch int) (<-chan amqp.Delivery, error) {
	stream, err := warrenv1.NewConsumeServiceClient(r.conn).Consume(r.ctx)
	if err != nil {
		return nil, err
	}
	err = stream.Send(&warrenv1.ConsumeRequest{
		Open: &warrenv1.ConsumeOpen{Queue: queue, Prefetch: uint32(prefetch)}, Credit: uint32(prefetch),
	})
	if err != nil && !errors.Is(err, io.EOF) { // then the reason is what is received
		return nil, err
	}
	resp, err := stream.Recv() // it is open
	if err != nil {
		return nil, err
	}
	r.consumers = append(r.consumers, stream)
	deliveries := make(chan amqp.Delivery, prefetch)
	r.work.Go(func() {
		defer close(deliveries)
		for ; err == nil; resp, err = stream.Recv() {
			for _, d := range resp.GetDeliveries() {
				select {
				case deliveries <- rpcDelivery(stream, d):
				case <-r.ctx.Done():
					return
				}
			}
		}
	})
	return deliveries, nil
}

// rpcDelivery is a delivery in the form of the AMQP library's, as far as the harness looks at it.
func rpcDelivery(stream warrenv1.ConsumeService_ConsumeClient, d *warrenv1.Delivery) amqp.Delivery {
	m := d.GetMessage()
	return amqp.Delivery{
		Acknowledger: rpcSettler{stream}, DeliveryTag: d.GetNumber(), Redelivered: d.GetRedelivered(), Headers: fromTable(m.GetProperties().GetHeaders()),
		MessageId: m.GetProperties().GetMessageId(), Priority: uint8(m.GetProperties().GetPriority()), Body: m.GetBody(),
	}
}

// rpcSettler implements amqp.Acknowledger for a stream of deliveries.
type rpcSettler struct {
	stream warrenv1.ConsumeService_ConsumeClient
}

func (s rpcSettler) settle(tag uint64, kind warrenv1.SettleKind) error {
	return s.stream.Send(&warrenv1.ConsumeRequest{Credit: 1, Settlements: []*warrenv1.Settlement{{First: tag, Kind: kind}}})
}

// Ack implements amqp.Acknowledger.
func (s rpcSettler) Ack(tag uint64, _ bool) error {
	return s.settle(tag, warrenv1.SettleKind_SETTLE_KIND_ACK)
}

// Nack implements amqp.Acknowledger.
func (s rpcSettler) Nack(tag uint64, _, requeue bool) error { return s.Reject(tag, requeue) }

// Reject implements amqp.Acknowledger.
func (s rpcSettler) Reject(tag uint64, requeue bool) error {
	if requeue {
		return s.settle(tag, warrenv1.SettleKind_SETTLE_KIND_REQUEUE)
	}
	return s.settle(tag, warrenv1.SettleKind_SETTLE_KIND_REJECT)
}

// close ends the streams so that what was settled counts, and cuts them after a while.
func (r *rpc) close(limit time.Duration) {
	late := time.AfterFunc(limit, r.cut)
	defer late.Stop()
	if r.publish != nil {
		_ = r.publish.CloseSend() // it may have ended
	}
	for _, c := range r.consumers {
		_ = c.CloseSend() // it may have ended
	}
	r.work.Wait()
	r.cut()
	_ = r.conn.Close() // nothing is left in it
}
