package process

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/travel"
)

// TestStopTellsClients: a client of a node that stops is told so, after the answers to all that the
// node has read of it: what is in the queue afterwards is what was confirmed, not one message more.
func TestStopTellsClients(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	plainQueue(at(t, c.Node(0)), "told", nil)
	for i := range 2 {
		victim, other := c.Node(i), c.Node(2)
		s := at(t, victim)
		closed := s.conn.NotifyClose(make(chan *amqp.Error, 1))
		confirms := s.ch.NotifyPublish(make(chan amqp.Confirmation, 1<<16))
		stopped := make(chan error, 1)
		sent, confirmed := 0, 0
		for ; s.ch.Publish("", "told", false, false, message(fmt.Sprint(sent))) == nil; sent++ {
			if sent == 500 {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), timeoutStop)
					defer cancel()
					stopped <- victim.Stop(ctx)
				}()
			}
			time.Sleep(200 * time.Microsecond)
		}
		for c := range confirms {
			if c.Ack {
				confirmed++
			}
		}
		if why := <-closed; why == nil || why.Code != 320 {
			t.Errorf("the connection ended with %v", why)
		}
		if sent <= 500 {
			t.Fatalf("it ended after %d messages, before the stop", sent)
		}
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		await(t, timeoutReply, "the queue is there", func() bool {
			_, err := at(t, other).ch.QueueDeclarePassive("told", true, false, false, false, nil)
			return err == nil
		})
		copies, err := travel.Collect(other.URL(), "told")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d sent, %d confirmed, %d stored", sent, confirmed, len(copies))
		if len(copies) != confirmed || confirmed < 500 {
			t.Errorf("%d messages are stored, %d were confirmed", len(copies), confirmed)
		}
		start(t, victim)
	}
}

// TestStopIsBounded: neither a frozen node nor clients that read nothing keep a node from stopping in time.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 9 * time.Second
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Args = []string{"--stop-timeout", limit.String()} })
	startAll(t, c)
	victim, frozen := c.Node(0), c.Node(1)
	s := at(t, victim)
	for i := range 10 {
		plainQueue(s, fmt.Sprint("bounded", i), nil)
	}
	for range 128 { // more than sockets hold
		s.publish("", "bounded0", message(string(make([]byte, 64<<10))))
	}
	deaf := dialWire(t, target{url: victim.URL()})
	deaf.login()
	deaf.send(method(1, 60, 20, uint16(0), "bounded0", "", byte(0), []byte(nil))) // and it reads nothing any more
	t.Cleanup(func() { _ = frozen.Signal(syscall.SIGCONT) })
	if err := frozen.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	stopNode(t, victim)
	took := time.Since(begun)
	t.Logf("stopped in %v beside a frozen node and a client that does not read", took)
	if took > bound(limit+time.Second, begun) {
		t.Errorf("the stop took %v", took)
	}
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	start(t, victim)
}

// TestSilentClientHoldsNoOthersUp: a gRPC client that does not react any more, for which a node that stops waits five seconds, does not keep the
// node's AMQP clients from being told to go: a publisher is not read meanwhile.
func TestSilentClientHoldsNoOthersUp(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	n := c.Node(0)
	silent, err := net.Dial("tcp", n.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := silent.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)); err != nil {
		t.Fatal(err)
	}
	s := at(t, n)
	s.publish("", plainQueue(s, "silent", nil), message("first"))
	closed := s.conn.NotifyClose(make(chan *amqp.Error, 1))
	begun := time.Now()
	if err := n.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var why *amqp.Error
	select {
	case why = <-closed:
	case <-time.After(timeoutStop):
	}
	took := time.Since(begun)
	if why == nil || why.Code != 320 || took > bound(4*time.Second, begun) {
		t.Errorf("told %v after %v", why, took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStop)
	defer cancel()
	if code, err := n.Wait(ctx); err != nil || code != 0 { // not stopNode: a second signal would end the wait
		t.Errorf("exit code %d, %v", code, err)
	}
	t.Logf("told after %v, the process ended after %v", took, time.Since(begun))
}

// TestSecondSignal: a node that is asked to stop twice does not wait for its clients any more.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Args = []string{"--stop-timeout", "5m"} })
	startAll(t, c)
	n := c.Node(0)
	mute := dialWire(t, target{url: n.URL()}) // never answers connection.close, for which the node has five seconds
	mute.login()
	begun := time.Now()
	if err := n.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, timeoutReply, "not ready", func() bool {
		_, err := n.Fetch(t.Context(), "/readyz")
		return err != nil
	})
	stopNode(t, n)
	if took := time.Since(begun); took > 4*time.Second+2*cluster.Stalled(begun) {
		t.Errorf("the stop took %v", took)
	}
}

// TestLameDuck: a node that stops is not ready before it refuses clients.
func TestLameDuck(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Args = []string{"--lame-duck", "5s"} })
	startAll(t, c)
	n := c.Node(0)
	begun := time.Now()
	if err := n.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, timeoutReply, "not ready", func() bool {
		code, _, step := readyNow(t, n.HTTP())
		return code == 503 && step == "stopping"
	})
	plainQueue(at(t, n), "last", nil) // a client that has not heard of it
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStop)
	defer cancel()
	// Not stopNode: a second signal would end the wait.
	if code, err := n.Wait(ctx); err != nil || code != 0 {
		t.Errorf("exit code %d, %v", code, err)
	}
	if took := time.Since(begun); took < 5*time.Second {
		t.Errorf("the node was gone after %v", took)
	}
}

// TestDrainedNodeIsNoLameDuck: one that is drained has no listener that anybody could still come to, and stops at once.
func TestDrainedNodeIsNoLameDuck(t *testing.T) {
	t.Parallel()
	const lame = 10 * time.Second
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Args = []string{"--lame-duck", lame.String()} })
	startAll(t, c)
	n := c.Node(0)
	begun := time.Now()
	mustCtl(t, n, "drain")
	if took := time.Since(begun); took < lame {
		t.Errorf("drained after %v", took)
	}
	begun = time.Now()
	stopNode(t, n)
	if took, most := time.Since(begun), lame/2+2*cluster.Stalled(begun); took > most {
		t.Errorf("the drained node stopped after %v, want %v at most", took, most)
	}
}
