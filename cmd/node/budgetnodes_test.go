//go:build !race && !invariants

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/test/cluster"
)

// startThree runs three whole nodes in this process until the test ends, and returns the
// AMQP address of the first.
func startThree(t *testing.T) string {
	t.Helper()
	var configs []config.Config
	var join []string
	for i := range 3 {
		c := config.Default()
		c.NodeID, c.DataDir = fmt.Sprintf("n%d", i+1), filepath.Join(t.TempDir(), "data")
		for _, addr := range []*string{&c.AMQPAddr, &c.HTTPAddr, &c.GRPCAddr, &c.ClusterAddr, &c.GossipAddr} {
			*addr = freeAddr(t)
		}
		c.BootstrapExpect = 3
		join = append(join, c.GossipAddr)
		configs = append(configs, c)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, len(configs))
	for _, c := range configs {
		c.Join = join
		go func() { ended <- run(ctx, c, slog.New(slog.DiscardHandler), new(logs)) }()
	}
	t.Cleanup(func() {
		stop()
		for range configs {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	for _, c := range configs {
		awaitReady(t, "http://"+c.HTTPAddr+"/readyz")
	}
	return configs[0].AMQPAddr
}

// freeAddr returns an address of loopback that is free for TCP and UDP, and that no other process of tests gives to a node.
func freeAddr(t *testing.T) string {
	t.Helper()
	ports, err := cluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

func awaitReady(t *testing.T, url string) {
	t.Helper()
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if resp, err := client.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
	}
	t.Fatalf("%s: not ready within a minute", url)
}

// budgetClient speaks AMQP in frames that were encoded before, and reads answers without
// decoding them into values: it allocates nothing for a message.
type budgetClient struct {
	t   *testing.T
	nc  net.Conn
	fr  *amqp.FrameReader
	out []byte

	confirmed uint64               // last tag
	tags      map[uint16]*[]uint64 // of the deliveries that came, by channel
}

func dialBudget(t *testing.T, addr string) *budgetClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &budgetClient{t: t, nc: nc, fr: amqp.NewFrameReader(nc), tags: map[uint16]*[]uint64{}}
	c.fr.SetMax(131072)
	h := amqp.Header091()
	c.write(h[:])
	c.await(0, amqp.ClassConnection, 10)
	c.call(0, &amqp.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"}, 30)
	c.out = (&amqp.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072}).AppendFrame(c.out[:0], 0)
	c.write(c.out)
	c.call(0, &amqp.ConnectionOpen{VirtualHost: "/"}, 41)
	return c
}

// channel opens a channel with confirms.
func (c *budgetClient) channel(n uint16) {
	tags := make([]uint64, 0, 4*budgetStep)
	c.tags[n] = &tags
	c.call(n, &amqp.ChannelOpen{}, 11)
	c.call(n, &amqp.ConfirmSelect{}, 11)
}

func (c *budgetClient) write(b []byte) {
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// call sends a method and waits for the answer with this number in its class.
func (c *budgetClient) call(channel uint16, m amqp.Method, answer uint16) {
	c.t.Helper()
	c.out = m.AppendFrame(c.out[:0], channel)
	class := binary.BigEndian.Uint16(c.out[7:])
	c.write(c.out)
	c.await(channel, class, answer)
}

func (c *budgetClient) await(channel, class, method uint16) {
	c.t.Helper()
	for {
		if ch, cl, m := c.next(); ch == channel && cl == class && m == method {
			return
		}
	}
}

// Methods of class basic that the client looks into.
const (
	methodDeliver = 60
	methodAck     = 80
	methodNack    = 120
)

// next reads a frame and notes what it confirms or delivers. It returns its channel and the
// class and method, zeroes for content.
func (c *budgetClient) next() (channel, class, method uint16) {
	c.t.Helper()
	if err := c.nc.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	f, err := c.fr.Next()
	if err != nil {
		c.t.Fatal(err)
	}
	if f.Type != amqp.FrameMethod {
		return f.Channel, 0, 0
	}
	p := f.Payload
	class, method, p = binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:]), p[4:]
	switch {
	case class == amqp.ClassBasic && method == methodAck:
		c.confirmed = max(c.confirmed, binary.BigEndian.Uint64(p))
	case class == amqp.ClassBasic && method == methodDeliver:
		tags := c.tags[f.Channel]
		*tags = append(*tags, binary.BigEndian.Uint64(p[1+int(p[0]):]))
	case class == amqp.ClassBasic && method == methodNack,
		class == amqp.ClassChannel && method == 40, class == amqp.ClassConnection && method == 50:
		c.t.Fatalf("the node refuses: class %d, method %d: %q", class, method, p)
	}
	return f.Channel, class, method
}

// deliveries waits until n have come over a channel.
func (c *budgetClient) deliveries(channel uint16, n int) {
	c.t.Helper()
	for len(*c.tags[channel]) < n {
		c.next()
	}
}

// settle acks or rejects the deliveries that have come over a channel, each by a method of its
// own, all in one write.
func (c *budgetClient) settle(channel uint16, ack bool) {
	c.out = c.out[:0]
	for _, tag := range *c.tags[channel] {
		if ack {
			c.out = (&amqp.BasicAck{DeliveryTag: tag}).AppendFrame(c.out, channel)
		} else {
			c.out = (&amqp.BasicReject{DeliveryTag: tag}).AppendFrame(c.out, channel)
		}
	}
	*c.tags[channel] = (*c.tags[channel])[:0]
	c.write(c.out)
}
