package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/client"
)

// A message on its way through a queue.
func Example() {
	addrs := addresses() // such as warren-1:5680, warren-2:5680, warren-3:5680
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{
		Addrs: addrs, User: "guest", Password: "guest",
	})
	must(err)
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "greetings", Type: "quorum"})
	must(err)

	p, err := c.Publisher(client.PublisherConfig{})
	must(err)
	must(p.Publish(ctx, &client.Message{RoutingKey: "greetings", Body: []byte("hello"), Mandatory: true}))

	consume, stop := context.WithCancel(ctx)
	must(c.Consume(consume, "greetings", client.ConsumerConfig{}, func(_ context.Context, d *client.Delivery) error {
		fmt.Printf("%s\n", d.Body)
		stop()
		return nil // it is done
	}))
	must(c.Close(ctx))
	// Output: hello
}

// Messages that are sent again under their ids are there once.
func ExamplePublisher_deduplication() {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Addrs: addrs, User: "guest", Password: "guest"})
	must(err)
	defer c.Close(ctx)
	window := 10 * time.Minute
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "orders", Arguments: client.Table{"x-deduplication-window": window.Milliseconds()}})
	must(err)

	// With Deduplicate the publisher names its messages. A program that may forget what it has published names them itself.
	p, err := c.Publisher(client.PublisherConfig{Deduplicate: true})
	must(err)
	for range 2 {
		must(p.Publish(ctx, &client.Message{RoutingKey: "orders", Body: []byte("order 17"), DeduplicationID: "order 17"}))
	}
	q, err := c.LookQueue(ctx, "orders")
	must(err)
	fmt.Println(q.Messages, "message")
	// Output: 1 message
}

// Each message of a batch has its result.
func ExamplePublisher_PublishBatch() {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Addrs: addrs, User: "guest", Password: "guest"})
	must(err)
	defer c.Close(ctx)
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "numbers"})
	must(err)
	p, err := c.Publisher(client.PublisherConfig{})
	must(err)

	err = p.PublishBatch(ctx, []client.Message{
		{RoutingKey: "numbers", Body: []byte("1")},
		{RoutingKey: "nowhere", Body: []byte("2"), Mandatory: true},
		{RoutingKey: "numbers", Body: []byte("3")},
	})
	if batch, ok := errors.AsType[*client.BatchError](err); ok {
		for i, err := range batch.Errs {
			fmt.Println(i, err, errors.Is(err, client.ErrUnroutable))
		}
	}
	list, err := c.Get(ctx, "numbers", 10, client.Ack)
	must(err)
	for _, d := range list {
		fmt.Printf("%s\n", d.Body)
	}
	// Output:
	// 0 <nil> false
	// 1 warren: no queue gets the message (UNROUTABLE) true
	// 2 <nil> false
	// 1
	// 3
}

// Many messages on their way at once, with the results as they come.
func ExamplePublisher_PublishAsync() {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Addrs: addrs, User: "guest", Password: "guest"})
	must(err)
	defer c.Close(ctx)
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "readings"})
	must(err)
	p, err := c.Publisher(client.PublisherConfig{OutstandingMax: 5000})
	must(err)

	var pending []*client.Pending
	for i := range 10_000 {
		r, err := p.PublishAsync(ctx, &client.Message{RoutingKey: "readings", Body: fmt.Append(nil, i)}) // waits while 5,000 have no result
		must(err)
		pending = append(pending, r)
	}
	for _, r := range pending {
		must(r.Wait(ctx))
	}
	q, err := c.LookQueue(ctx, "readings")
	must(err)
	fmt.Println(q.Messages)
	// Output: 10000
}

// A worker with four handlers. What fails twice is rejected, and goes where the queue's dead letters go.
func ExampleClient_Consume() {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{
		Addrs: addrs, User: "guest", Password: "guest",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), // tells of lost streams
	})
	must(err)
	defer c.Close(ctx)
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "failed"})
	must(err)
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "work", Type: "quorum", Arguments: client.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "failed",
	}})
	must(err)
	p, err := c.Publisher(client.PublisherConfig{})
	must(err)
	for _, job := range []string{"good", "bad"} {
		must(p.Publish(ctx, &client.Message{RoutingKey: "work", Body: []byte(job)}))
	}

	go func() {
		must(c.Consume(ctx, "work", client.ConsumerConfig{Concurrency: 4}, func(_ context.Context, d *client.Delivery) error {
			switch {
			case string(d.Body) == "good":
				return nil
			case d.DeliveryCount > 0:
				return d.Reject()
			}
			return errors.New("try again")
		}))
	}()
	failed, stop := context.WithCancel(ctx)
	must(c.Consume(failed, "failed", client.ConsumerConfig{}, func(_ context.Context, d *client.Delivery) error {
		fmt.Printf("%s: %s in %s\n", d.Body, d.Deaths[0].Reason, d.Deaths[0].Queue)
		stop()
		return nil
	}))
	// Output: bad: rejected in work
}

// The rest of the API, by the generated package.
func ExampleClient_Conn() {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Addrs: addrs, User: "guest", Password: "guest"})
	must(err)
	defer c.Close(ctx)
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "described", Type: "quorum"})
	must(err)

	resp, err := warrenv1.NewTopologyServiceClient(c.Conn()).GetQueue(ctx, &warrenv1.GetQueueRequest{Queue: "described"})
	must(err)
	fmt.Println(resp.GetQueue().GetType(), resp.GetQueue().GetState())
	// Output: quorum running
}

// A subscriber with a queue of its own, which ends with it.
func ExampleClient_Consume_subscribe() {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Addrs: addrs, User: "guest", Password: "guest"})
	must(err)
	defer c.Close(ctx)
	must(c.DeclareExchange(ctx, client.Exchange{Name: "news", Type: "topic"}))
	p, err := c.Publisher(client.PublisherConfig{})
	must(err)
	go func() {
		m := &client.Message{Exchange: "news", RoutingKey: "weather.today", Body: []byte("rain"), Mandatory: true}
		for errors.Is(p.Publish(ctx, m), client.ErrUnroutable) { // nobody is there yet
			time.Sleep(time.Millisecond)
		}
	}()

	subscribe, stop := context.WithCancel(ctx)
	must(c.Consume(subscribe, "", client.ConsumerConfig{
		Declare:  &client.Queue{Exclusive: true, Transient: true},
		Bindings: []client.Binding{{Source: "news", RoutingKey: "weather.#"}},
	}, func(_ context.Context, d *client.Delivery) error {
		fmt.Printf("%s: %s\n", d.RoutingKey, d.Body)
		stop()
		return nil
	}))
	// Output: weather.today: rain
}

// A message that is published later, unless it is taken back before.
func ExampleClient_PublishDelayed() {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Addrs: addrs, User: "guest", Password: "guest"})
	must(err)
	defer c.Close(ctx)
	must(c.DeclareExchange(ctx, client.Exchange{Name: "later", Type: "x-delayed-message", Arguments: client.Table{"x-delayed-type": "direct"}}))
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "reminders"})
	must(err)
	must(c.Bind(ctx, client.Binding{Source: "later", Queue: "reminders", RoutingKey: "remind"}))

	reminder := client.Message{Exchange: "later", RoutingKey: "remind", Body: []byte("you have not paid")}
	handle, err := c.PublishDelayed(ctx, &reminder, 24*time.Hour)
	must(err)
	// It is paid: nobody is to be reminded.
	cancelled, err := c.CancelDelayed(ctx, handle)
	must(err)
	fmt.Println("taken back:", cancelled)
	// Output: taken back: true
}

// A dead letter with its reason, which is looked at and sent back.
func ExampleClient_Redrive() {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{Addrs: addrs, User: "guest", Password: "guest"})
	must(err)
	defer c.Close(ctx)
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "invoices.dead"})
	must(err)
	_, err = c.DeclareQueue(ctx, client.Queue{Name: "invoices", Type: "quorum", Arguments: client.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "invoices.dead",
	}})
	must(err)
	p, err := c.Publisher(client.PublisherConfig{})
	must(err)
	must(p.Publish(ctx, &client.Message{RoutingKey: "invoices", Body: []byte("invoice 17"), Mandatory: true}))

	consume, stop := context.WithCancel(ctx)
	must(c.Consume(consume, "invoices", client.ConsumerConfig{}, func(_ context.Context, d *client.Delivery) error {
		must(d.Extend()) // it takes long
		defer stop()
		return d.RejectWith("no such customer")
	}))
	for dead := 0; dead == 0; time.Sleep(10 * time.Millisecond) { // it is on its way
		for m, err := range c.Peek(ctx, "invoices.dead", client.PeekConfig{Filter: client.Filter{From: "invoices"}}) {
			must(err)
			dead++
			fmt.Printf("%s: %s, %s\n", m.Body, m.Deaths[0].Reason, m.Deaths[0].Detail)
		}
	}
	// The customer is there now.
	done, err := c.Redrive(ctx, "invoices.dead", client.RedriveConfig{Filter: client.Filter{Reasons: []string{"rejected"}}})
	must(err)
	q, err := c.LookQueue(ctx, "invoices")
	must(err)
	fmt.Println("sent back:", done.Moved, "in the queue:", q.Messages)
	// Output:
	// invoice 17: rejected, no such customer
	// sent back: 1 in the queue: 1
}
