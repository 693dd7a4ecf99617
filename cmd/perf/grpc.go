package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/cmd/perf/load"
)

// What one request carries at most: what came while the one before was being sent.
const (
	grpcBatch      = 256
	grpcBatchBytes = 256 << 10
)

// grpcDriver speaks Warren's gRPC API, with addresses of the form grpc://user:password@host:port.
type grpcDriver struct{}

// Dial implements load.Driver.
func (grpcDriver) Dial(address string) (load.Conn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	conn, err := grpc.NewClient(u.Host, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(grpcLogin(base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	return &grpcConn{conn: conn, ctx: ctx, stop: stop, topology: warrenv1.NewTopologyServiceClient(conn), wake: make(chan struct{}, 1)}, nil
}

type grpcLogin string

func (l grpcLogin) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Basic " + string(l)}, nil
}

func (grpcLogin) RequireTransportSecurity() bool { return false }

type grpcConn struct {
	conn     *grpc.ClientConn
	ctx      context.Context //nolint:containedctx // ends with Close
	stop     context.CancelFunc
	topology warrenv1.TopologyServiceClient
	closing  atomic.Bool
	group    sync.WaitGroup

	wake   chan struct{}
	mu     sync.Mutex
	queued []*warrenv1.Publication
	failed error
}

// Declare implements load.Conn.
func (c *grpcConn) Declare(queue string, args map[string]any) error {
	table := &warrenv1.Table{Fields: map[string]*warrenv1.Value{}}
	for name, v := range args {
		switch v := v.(type) {
		case string:
			table.Fields[name] = &warrenv1.Value{Kind: &warrenv1.Value_StringValue{StringValue: v}}
		case int:
			table.Fields[name] = &warrenv1.Value{Kind: &warrenv1.Value_Int64Value{Int64Value: int64(v)}}
		default:
			return fmt.Errorf("argument %s of a type that is not known here: %T", name, v)
		}
	}
	_, err := c.topology.DeclareQueue(c.ctx, &warrenv1.DeclareQueueRequest{Queue: &warrenv1.QueueDeclaration{Name: queue, Durable: true, Arguments: table}})
	return err
}

// Delete implements load.Conn.
func (c *grpcConn) Delete(queue string) error {
	_, err := c.topology.DeleteQueue(c.ctx, &warrenv1.DeleteQueueRequest{Queue: queue})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// Confirms implements load.Conn.
func (c *grpcConn) Confirms(_ int, settled func(number int, taken bool), lost func(error)) error {
	stream, err := warrenv1.NewPublishServiceClient(c.conn).PublishStream(c.ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&warrenv1.PublishStreamRequest{Open: &warrenv1.PublishOpen{}}); err != nil {
		return err
	}
	c.group.Go(func() { // ends with the stream
		for {
			resp, err := stream.Recv()
			if err != nil {
				if !c.closing.Load() {
					lost(err)
				}
				return
			}
			for _, r := range resp.GetResults() {
				for n := r.GetFirst(); n <= r.GetLast(); n++ {
					settled(int(n-1), r.GetOutcome() == warrenv1.PublishOutcome_PUBLISH_OUTCOME_CONFIRMED)
				}
			}
		}
	})
	c.group.Go(func() { c.send(stream) })
	return nil
}

// send passes on what was published, until Close.
func (c *grpcConn) send(stream grpc.BidiStreamingClient[warrenv1.PublishStreamRequest, warrenv1.PublishStreamResponse]) {
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		c.mu.Lock()
		queued := c.queued
		c.queued = nil
		c.mu.Unlock()
		for len(queued) > 0 {
			n, bytes := 0, 0
			for n < len(queued) && n < grpcBatch && bytes < grpcBatchBytes {
				bytes += len(queued[n].GetMessage().GetBody())
				n++
			}
			if err := stream.Send(&warrenv1.PublishStreamRequest{Publications: queued[:n]}); err != nil {
				c.mu.Lock()
				c.failed = err
				c.mu.Unlock()
				return
			}
			queued = queued[n:]
		}
	}
}

// Publish implements load.Conn.
func (c *grpcConn) Publish(_ context.Context, queue string, body []byte) error {
	p := &warrenv1.Publication{Message: &warrenv1.Message{
		RoutingKey: queue, Properties: &warrenv1.Properties{DeliveryMode: proto.Uint32(2)}, Body: slices.Clone(body),
	}}
	c.mu.Lock()
	c.queued = append(c.queued, p)
	err := c.failed
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return err
}

// Consume implements load.Conn.
func (c *grpcConn) Consume(queue string, prefetch int, handle func(load.Delivery), ended func(error)) error {
	if prefetch == 0 {
		return load.ErrUnsupported
	}
	stream, err := warrenv1.NewConsumeServiceClient(c.conn).Consume(c.ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&warrenv1.ConsumeRequest{Open: &warrenv1.ConsumeOpen{Queue: queue}, Credit: uint32(prefetch)}); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil { // it is open
		return fmt.Errorf("consume: %w", err)
	}
	c.group.Go(func() { // ends with the stream
		d := &grpcDelivery{}
		for {
			resp, err := stream.Recv()
			if err != nil {
				if !c.closing.Load() {
					ended(errors.Join(errors.New("a consumer was disconnected"), err))
				}
				return
			}
			for _, d.Delivery = range resp.GetDeliveries() {
				handle(d)
			}
			if len(d.settled) > 0 {
				_ = stream.Send(&warrenv1.ConsumeRequest{Settlements: d.settled, Credit: d.credit}) // Recv tells of an error
				d.settled, d.credit = nil, 0
			}
		}
	})
	return nil
}

// Ready implements load.Conn.
func (c *grpcConn) Ready(queue string) (int, error) {
	resp, err := c.topology.DeclareQueue(c.ctx, &warrenv1.DeclareQueueRequest{Queue: &warrenv1.QueueDeclaration{Name: queue}, Passive: true})
	return int(resp.GetMessages()), err
}

// Leader implements load.Conn.
func (c *grpcConn) Leader(string) (string, error) { return "", load.ErrUnsupported }

// Close implements load.Conn.
func (c *grpcConn) Close() {
	c.closing.Store(true)
	c.stop()
	_ = c.conn.Close()
	c.group.Wait()
}

// grpcDelivery collects the settlements of a response.
type grpcDelivery struct {
	*warrenv1.Delivery
	last    uint64 // settled
	settled []*warrenv1.Settlement
	credit  uint32
}

func (d *grpcDelivery) Body() []byte      { return d.GetMessage().GetBody() }
func (d *grpcDelivery) Redelivered() bool { return d.GetRedelivered() }
func (d *grpcDelivery) Ack(multiple bool) {
	d.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, multiple)
}

func (d *grpcDelivery) Nack(multiple bool) {
	d.settle(warrenv1.SettleKind_SETTLE_KIND_REJECT, multiple)
}
func (d *grpcDelivery) Fail() { d.settle(warrenv1.SettleKind_SETTLE_KIND_REQUEUE, false) }

func (d *grpcDelivery) settle(kind warrenv1.SettleKind, multiple bool) {
	first, number := d.GetNumber(), d.GetNumber()
	if multiple {
		first = d.last + 1
	}
	d.last = number
	d.credit += uint32(number - first + 1)
	if n := len(d.settled); n > 0 && d.settled[n-1].GetKind() == kind && d.settled[n-1].GetLast()+1 == first {
		d.settled[n-1].Last = number
		return
	}
	d.settled = append(d.settled, &warrenv1.Settlement{First: first, Last: number, Kind: kind})
}
