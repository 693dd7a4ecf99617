package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/warrenmq/warren/cmd/perf/load"
)

const (
	natsReplicas = 3
	natsConsumer = "c"
	// A publish without an answer counts as refused after this long.
	natsAnswer  = 5 * time.Second
	natsRequest = 30 * time.Second
)

// natsDriver takes a queue for a work-queue stream in file storage, replicated three times, with one durable
// consumer that clients pull from.
type natsDriver struct{}

// Dial implements load.Driver. The client stays at the server that it was sent to.
func (natsDriver) Dial(url string) (load.Conn, error) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.DontRandomize())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(natsRequest))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &natsConn{nc: nc, js: js, stop: make(chan struct{}), sent: map[int]time.Time{}}, nil
}

type natsConn struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	consumers []jetstream.ConsumeContext
	inbox     string
	next      int
	stop      chan struct{} // closed by Close
	group     sync.WaitGroup

	mu      sync.Mutex
	settled func(number int, taken bool) // nil after Close
	sent    map[int]time.Time            // publishes without an answer
}

// Declare implements load.Conn.
func (c *natsConn) Declare(queue string, args map[string]any) error {
	if args["x-dead-letter-exchange"] != nil {
		return fmt.Errorf("dead letters: %w", load.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(context.Background(), natsRequest)
	defer cancel()
	s, err := c.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: queue, Subjects: []string{queue}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: natsReplicas,
	})
	if err != nil {
		return err
	}
	_, err = s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: natsConsumer, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1})
	return err
}

// Delete implements load.Conn.
func (c *natsConn) Delete(queue string) error {
	ctx, cancel := context.WithTimeout(context.Background(), natsRequest)
	defer cancel()
	if err := c.js.DeleteStream(ctx, queue); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// Confirms implements load.Conn. Answers come to a subject that ends in the message's number.
func (c *natsConn) Confirms(_ int, settled func(number int, taken bool), _ func(error)) error {
	c.settled, c.inbox = settled, nats.NewInbox()+"."
	sub, err := c.nc.Subscribe(c.inbox+"*", c.answered)
	if err != nil {
		return err
	}
	c.group.Go(c.expire)
	return sub.SetPendingLimits(-1, -1)
}

// Publish implements load.Conn.
func (c *natsConn) Publish(_ context.Context, queue string, body []byte) error {
	number := c.next
	c.next++
	c.mu.Lock()
	c.sent[number] = time.Now()
	c.mu.Unlock()
	return c.nc.PublishRequest(queue, c.inbox+strconv.Itoa(number), body)
}

// answered takes a confirm, an error in JSON, or the status that nobody listens.
func (c *natsConn) answered(m *nats.Msg) {
	number, err := strconv.Atoi(m.Subject[len(c.inbox):])
	if err == nil {
		c.settle(number, len(m.Data) > 0 && m.Header.Get("Status") == "" && !bytes.Contains(m.Data, []byte(`"error"`)))
	}
}

func (c *natsConn) settle(number int, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.sent[number]; open && c.settled != nil {
		delete(c.sent, number)
		c.settled(number, taken)
	}
}

// expire refuses what was never answered, until Close.
func (c *natsConn) expire() {
	tick := time.NewTicker(natsAnswer / 10)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		var late []int
		c.mu.Lock()
		for number, at := range c.sent {
			if time.Since(at) > natsAnswer {
				late = append(late, number)
			}
		}
		c.mu.Unlock()
		for _, number := range late {
			c.settle(number, false)
		}
	}
}

// Consume implements load.Conn. A request that waits at a leader that dies is repeated after two heartbeats.
func (c *natsConn) Consume(queue string, prefetch int, handle func(load.Delivery), _ func(error)) error {
	if prefetch == 0 {
		return load.ErrUnsupported // the stream is made for explicit acks
	}
	ctx, cancel := context.WithTimeout(context.Background(), natsRequest)
	defer cancel()
	consumer, err := c.js.Consumer(ctx, queue, natsConsumer)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) { handle(natsDelivery{m}) },
		jetstream.PullMaxMessages(prefetch), jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	c.consumers = append(c.consumers, consuming)
	return nil
}

// Ready implements load.Conn.
func (c *natsConn) Ready(queue string) (int, error) {
	info, err := c.info(queue)
	if err != nil {
		return 0, err
	}
	return int(info.State.Msgs), nil
}

// Leader implements load.Conn.
func (c *natsConn) Leader(queue string) (string, error) {
	info, err := c.info(queue)
	switch {
	case err != nil:
		return "", err
	case info.Cluster == nil || info.Cluster.Leader == "":
		return "", fmt.Errorf("stream %s has no leader", queue)
	}
	return info.Cluster.Leader, nil
}

func (c *natsConn) info(queue string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), natsRequest)
	defer cancel()
	s, err := c.js.Stream(ctx, queue)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// Close implements load.Conn.
func (c *natsConn) Close() {
	for _, consuming := range c.consumers {
		consuming.Stop()
		<-consuming.Closed()
	}
	close(c.stop)
	c.nc.Close()
	c.group.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = nil
}

type natsDelivery struct{ m jetstream.Msg }

func (d natsDelivery) Body() []byte      { return d.m.Data() }
func (d natsDelivery) Redelivered() bool { return redelivered(d.m.Reply()) }

// Ack settles this one: a work-queue stream takes no acks for many.
func (d natsDelivery) Ack(bool) { _ = d.m.Ack() }

// Nack ends it: there are no dead letters.
func (d natsDelivery) Nack(bool) { _ = d.m.Term() }
func (d natsDelivery) Fail()     { _ = d.m.Nak() }

// redelivered reads the count of deliveries from the subject of the ack: $JS.ACK, then perhaps domain and
// account, stream, consumer, count and four more.
func redelivered(reply string) bool {
	at := 4
	if strings.Count(reply, ".") >= 11 {
		at = 6
	}
	for field := range strings.SplitSeq(reply, ".") {
		if at == 0 {
			return field != "1"
		}
		at--
	}
	return false
}
