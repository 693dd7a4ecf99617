package amqp

import (
	"strings"
	"testing"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/contain"
)

// guarded is a server whose faults are contained; ended is told why the process would end.
func guarded(t *testing.T) (r *rig, g *contain.Guard, ended chan string) {
	t.Helper()
	ended = make(chan string, 1)
	r = startServer(t, func(c *Config) {
		g = contain.New(contain.Config{
			Logger: c.Logger, Module: "github.com/warrenmq/warren/", Core: []string{"gateway/amqp.core"}, Patience: 200 * time.Millisecond,
			End: func(why string) { ended <- why },
		})
		c.Guard = g
	})
	g.Watch(r.s.Locks)
	t.Cleanup(g.Close)
	return r, g, ended
}

// coreDelivers stands for the code of the core that calls a channel.
func coreDelivers(s Sink, to Consumer) { s.Deliver(to, nil) }

func TestAFaultEndsItsConnection(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meet func(r *rig, c *rawClient)
		mute bool // the client is told nothing
	}{
		"in a method": {meet: func(r *rig, c *rawClient) {
			r.b.fetching = func(*memChannel) { panic("a fault") }
			c.send(1, &wire.BasicGet{Queue: "q"})
		}},
		"in what the broker tells": {meet: func(r *rig, c *rawClient) {
			c.send(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "tag"})
			want[*wire.BasicConsumeOk](c, 1)
			r.b.mu.Lock()
			cons := r.b.queues["q"].consumers[0]
			r.b.mu.Unlock()
			coreDelivers(cons.ch.sink, cons) // there is no delivery
		}},
		"in the writer": {mute: true, meet: func(r *rig, _ *rawClient) {
			o := r.s.connections()[0].out
			o.mu.Lock()
			defer o.mu.Unlock()
			q := o.queue()
			q.dirty = append(q.dirty, nil) // no channel
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, g, ended := guarded(t)
			c := r.open(t)
			c.channel(1)
			c.send(1, &wire.QueueDeclare{Queue: "q"})
			want[*wire.QueueDeclareOk](c, 1)
			tc.meet(r, c)
			if tc.mute {
				c.closed()
			} else if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != wire.InternalError || m.ReplyText != "INTERNAL_ERROR - internal error" {
				t.Errorf("close %d %q", m.ReplyCode, m.ReplyText)
			}
			if n := g.Contained()[work]; n != 1 {
				t.Errorf("%d faults contained", n)
			}
			other := r.open(t)
			other.alive(1)
			g.Close() // after the trial of the locks
			select {
			case why := <-ended:
				t.Errorf("the process would end: %s", why)
			default:
			}
		})
	}
}

func TestALockThatIsLeftHeldEndsTheProcess(t *testing.T) {
	t.Parallel()
	r, _, ended := guarded(t)
	left := make(chan *channel, 1)
	r.b.fetching = func(ch *memChannel) {
		x := ch.sink.(*channel) //nolint:forcetypeassert // it is one
		x.mu.Lock()
		left <- x
		panic("a fault")
	}
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.QueueDeclare{Queue: "q"})
	want[*wire.QueueDeclareOk](c, 1)
	c.send(1, &wire.BasicGet{Queue: "q"})
	if why := receive(t, ended, "the end"); !strings.Contains(why, "amqp.channel.mu") || !strings.Contains(why, "a fault") {
		t.Errorf("ended: %s", why)
	}
	(<-left).mu.Unlock()
}
