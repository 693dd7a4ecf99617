package amqp

import (
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/gateway/unread"
)

// What clients do not read is counted until it is written, or forgotten with its channel or
// connection.
func TestUnreadIsCounted(t *testing.T) {
	t.Parallel()
	narrow := new(atomic.Bool)
	r := startServer(t, func(c *Config) { c.Unread = unread.New(1<<20, narrow.Store) })
	c := r.open(t)
	c.send(1, &wire.ChannelOpen{})
	want[*wire.ChannelOpenOk](c, 1)
	c.send(1, &wire.BasicQos{PrefetchCount: 1, Global: true})
	want[*wire.BasicQosOk](c, 1)
	c.send(1, &wire.QueueDeclare{Queue: "q", NoWait: true}, &wire.BasicConsume{Queue: "q", ConsumerTag: "c"})
	want[*wire.BasicConsumeOk](c, 1)
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d bytes are unread, narrow %v", what, r.s.cfg.Unread.Bytes(), narrow.Load())
			}
		}
	}
	body := string(make([]byte, 400<<10))
	for range 5 { // the channel-wide limit lets one go to the client
		c.publish(1, wire.BasicPublish{RoutingKey: "q"}, body)
	}
	want[*wire.BasicDeliver](c, 1)
	if n := r.s.cfg.Unread.Bytes(); n < 0 {
		t.Errorf("%d bytes are unread", n)
	}
	c.nc.Close()
	until("the connection has ended", func() bool { return r.s.cfg.Unread.Bytes() == 0 && !narrow.Load() })
}
