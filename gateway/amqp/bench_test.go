package amqp

import (
	"fmt"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	wire "github.com/warrenmq/warren/amqp"
)

// The figures include the broker in memory and the client, on the same cores.

// publishBatch is how many messages the raw client writes at once.
const publishBatch = 64

func farAway() time.Time { return time.Now().Add(time.Hour) }

func reportRate(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

// benchQueue opens channel 1 and declares the queue.
func benchQueue(c *rawClient) {
	c.channel(1)
	c.send(1, &wire.QueueDeclare{Queue: "q"})
	want[*wire.QueueDeclareOk](c, 1)
}

// BenchmarkPublishConfirm publishes on one channel with confirms, with at most
// window messages unanswered. Nothing is bound to the key in "unrouted", so that
// the gateway is measured with hardly any broker.
func BenchmarkPublishConfirm(b *testing.B) {
	for _, tc := range []struct {
		name, key string
		size      int
		window    int
	}{
		{"unrouted/100B", "nowhere", 100, 4096},
		{"queue/100B", "q", 100, 4096},
		{"queue/10KiB", "q", 10 << 10, 1024},
		{"queue/1MiB", "q", 1 << 20, 16},
		{"queue/one-by-one", "q", 100, 1},
	} {
		b.Run(tc.name, func(b *testing.B) {
			r := startServer(b)
			c := r.open(b)
			benchQueue(c)
			c.send(1, &wire.ConfirmSelect{})
			want[*wire.ConfirmSelectOk](c, 1)
			one := (&wire.BasicPublish{RoutingKey: tc.key}).AppendFrame(nil, 1)
			var p wire.Properties
			p.SetDeliveryMode(2)
			p.SetContentType("application/octet-stream")
			one = wire.AppendContent(one, 1, wire.ClassBasic, p.AppendTo(nil), make([]byte, tc.size), 131072)
			batch := min(publishBatch, tc.window)
			var many []byte
			for range batch {
				many = append(many, one...)
			}
			if err := c.nc.SetReadDeadline(farAway()); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(tc.size))
			b.ReportAllocs()
			b.ResetTimer()
			answers := make(chan uint64, 1024)
			go readAcks(c, uint64(b.N), answers)
			acked, frames := uint64(0), 0
			for sent := 0; sent < b.N; {
				n := min(batch, b.N-sent)
				for sent+n-int(acked) > tc.window {
					acked = max(acked, <-answers)
					frames++
				}
				c.bytes(many[:n*len(one)])
				sent += n
				if sent%(1<<14) < n { // do not let the queue fill the memory
					r.b.mu.Lock()
					r.b.queues["q"].ready = nil
					r.b.mu.Unlock()
				}
			}
			for acked < uint64(b.N) {
				acked = max(acked, <-answers)
				frames++
			}
			reportRate(b)
			b.ReportMetric(float64(b.N)/float64(frames), "msgs/ack")
		})
	}
}

// readAcks tells up to which publish everything is acked. The broker in memory
// answers in order.
func readAcks(c *rawClient, until uint64, answers chan<- uint64) {
	var m wire.BasicAck
	for m.DeliveryTag < until {
		f, err := c.fr.Next()
		if err != nil {
			return
		}
		if f.Type == wire.FrameMethod && m.Decode(f.Payload) == nil {
			answers <- m.DeliveryTag
		}
	}
}

// BenchmarkConsume reads a queue that another connection fills, acking every so
// many deliveries at once; 0 is no-ack mode.
func BenchmarkConsume(b *testing.B) {
	for _, tc := range []struct {
		name     string
		size     int
		ackEvery int
	}{
		{"no-ack/100B", 100, 0},
		{"ack-each/100B", 100, 1},
		{"ack-100/100B", 100, 100},
		{"no-ack/10KiB", 10 << 10, 0},
		{"no-ack/100KiB", 100 << 10, 0},
	} {
		b.Run(tc.name, func(b *testing.B) {
			r := startServer(b)
			c := r.open(b)
			benchQueue(c)
			if err := c.nc.SetReadDeadline(farAway()); err != nil {
				b.Fatal(err)
			}
			body := make([]byte, tc.size)
			props := wire.RawProperties{0x10, 0, 2}
			r.b.mu.Lock()
			q := r.b.queues["q"]
			for range b.N {
				r.b.ids++
				q.ready = append(q.ready, &memMessage{id: r.b.ids, key: "q", props: props, body: body})
			}
			r.b.mu.Unlock()
			b.SetBytes(int64(tc.size))
			b.ReportAllocs()
			b.ResetTimer()
			c.send(1, &wire.BasicConsume{Queue: "q", NoAck: tc.ackEvery == 0, NoWait: true})
			var acks []byte
			seen := 0
			for bytes, headers := 0, 0; headers < b.N || bytes < b.N*tc.size; {
				f, err := c.fr.Next()
				if err != nil {
					b.Fatal(err)
				}
				switch f.Type {
				case wire.FrameHeader:
					headers++
					seen++
					if tc.ackEvery > 0 && (seen%tc.ackEvery == 0 || seen == b.N) {
						acks = (&wire.BasicAck{DeliveryTag: uint64(seen), Multiple: tc.ackEvery > 1}).AppendFrame(acks, 1)
					}
				case wire.FrameBody:
					bytes += len(f.Payload)
				}
				if len(acks) > 0 && !c.fr.Ready() {
					c.bytes(acks)
					acks = acks[:0]
				}
			}
			reportRate(b)
		})
	}
}

// BenchmarkClient is amqp091-go from publish to delivery and ack.
func BenchmarkClient(b *testing.B) {
	r := startServer(b)
	ch := r.channel(b)
	if _, err := ch.QueueDeclare("q", false, false, false, false, nil); err != nil {
		b.Fatal(err)
	}
	ds, err := ch.Consume("q", "", false, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	errs := make(chan error, 1)
	go func() {
		for range b.N {
			if err := ch.Publish("", "q", false, false, amqp091.Publishing{Body: body}); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	for i := range b.N {
		d := <-ds
		if i%100 == 99 || i == b.N-1 {
			if err := d.Ack(true); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := <-errs; err != nil {
		b.Fatal(fmt.Errorf("publish: %w", err))
	}
	reportRate(b)
}
