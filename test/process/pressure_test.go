package process

import (
	"context"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// What publishers may have under way: at a node its stream to the queue and, for each connection, what was read from it last;
// and what both ends of the socket of each connection hold.
const (
	underWayStream = 16 << 20
	underWayRead   = 1 << 20
	underWaySocket = 8 << 20
	floodHeap      = 256 << 20
	floodPublisher = 4
	floodBody      = 16 << 10
)

// flood publishes without waiting until it is stopped.
type flood struct {
	t         *testing.T
	published atomic.Int64
	confirmed atomic.Int64
	most      int // unconfirmed at once, as the node says: the client may hear late of what is confirmed
	conns     []*amqp.Connection
	publisher sync.WaitGroup
	confirms  sync.WaitGroup
	watcher   sync.WaitGroup
	stop      chan struct{}
}

func startFlood(t *testing.T, n *cluster.Node, queue string) *flood {
	t.Helper()
	f := &flood{t: t, stop: make(chan struct{})}
	for range floodPublisher {
		s := at(t, n)
		f.conns = append(f.conns, s.conn)
		confirms := s.ch.NotifyPublish(make(chan amqp.Confirmation, 1<<16))
		f.confirms.Go(func() {
			for c := range confirms {
				if !c.Ack {
					t.Error("a message was refused")
				}
				f.confirmed.Add(1)
			}
		})
		f.publisher.Go(func() {
			body := make([]byte, floodBody)
			for {
				select {
				case <-f.stop:
					return
				default:
				}
				if err := s.ch.Publish("", queue, false, false, amqp.Publishing{Body: body, DeliveryMode: 2}); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
				f.published.Add(1)
			}
		})
	}
	f.watcher.Go(func() {
		for {
			select {
			case <-f.stop:
				return
			case <-time.After(50 * time.Millisecond):
				text, err := n.Fetch(t.Context(), "/metrics")
				if m := unconfirmed.FindSubmatch(text); err == nil && m != nil {
					now, _ := strconv.Atoi(string(m[1])) // digits
					f.most = max(f.most, now)
				}
			}
		}
	})
	return f
}

var unconfirmed = regexp.MustCompile(`(?m)^rabbitmq_channel_messages_unconfirmed (\d+)`)

// end stops the publishers and waits for all confirms.
func (f *flood) end() {
	f.t.Helper()
	close(f.stop)
	f.publisher.Wait()
	f.watcher.Wait()
	for deadline := time.Now().Add(4 * timeoutReply); f.confirmed.Load() < f.published.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Errorf("%d of %d messages are confirmed", f.confirmed.Load(), f.published.Load())
			break
		}
	}
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.confirms.Wait()
}

func (f *flood) check(most int) {
	f.t.Helper()
	f.t.Logf("%d messages of %d bytes, up to %d KiB of them unconfirmed", f.published.Load(), floodBody, f.most*floodBody>>10)
	if b := f.most * floodBody; b == 0 || b > most {
		f.t.Errorf("%d bytes were unconfirmed at once, want at most %d", b, most)
	}
}

// TestPublisherIsSlowed shows that publishers that outrun the quorum wait in their
// sockets: what a node keeps of messages that are not confirmed is bounded, in a
// flood and when the quorum does not answer at all.
func TestPublisherIsSlowed(t *testing.T) {
	t.Parallel()
	const bound = underWayStream + floodPublisher*underWayRead
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	q := plainQueue(s, "flood", nil)
	s.fill(q, "first")
	leader, others := leaderOf(t, c, q)
	heap := func(n *cluster.Node) int {
		ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
		defer cancel()
		text, err := n.Fetch(ctx, "/debug/pprof/heap?debug=1")
		if err != nil {
			t.Fatal(err)
		}
		m := heapAlloc.FindSubmatch(text)
		if m == nil {
			t.Fatal("the profile does not tell the heap")
		}
		size := 0
		for _, d := range m[1] {
			size = 10*size + int(d-'0')
		}
		return size
	}
	t.Run("flood", func(t *testing.T) {
		before := heap(leader)
		f := startFlood(t, leader, q)
		for begun := time.Now(); time.Since(begun) < 4*time.Second; time.Sleep(500 * time.Millisecond) {
			if now := heap(leader); now > before+floodHeap {
				t.Errorf("the heap grew from %d to %d bytes", before, now)
				break
			}
		}
		f.end()
		f.check(bound)
	})
	t.Run("quorum that does not answer", func(t *testing.T) {
		leader, others = leaderOf(t, c, q)
		before := heap(leader)
		f := startFlood(t, leader, q)
		for _, n := range others {
			if err := n.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		stuck := f.published.Load()
		time.Sleep(2 * time.Second)
		if more := f.published.Load() - stuck; more*floodBody > floodPublisher*underWaySocket {
			t.Errorf("%d messages were taken while nothing was confirmed", more)
		}
		if now := heap(leader); now > before+floodHeap {
			t.Errorf("the heap grew from %d to %d bytes", before, now)
		}
		for _, n := range others {
			if err := n.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		f.end()
		f.check(bound)
	})
}

// A new secret of the same user is taken on an open connection; a wrong one ends it.
func TestUpdateSecret(t *testing.T) {
	t.Parallel()
	needWarren(t)
	s := newSession(t, target{name: "three", url: sharedCluster(t, 3).Node(1).URL(), warren: true})
	s.noError("the password again", s.conn.UpdateSecret("guest", "rotated"))
	s.queue("q", nil)
	closed := s.conn.NotifyClose(make(chan *amqp.Error, 1))
	if err := s.conn.UpdateSecret("wrong", "rotated"); err == nil {
		t.Error("a wrong secret was taken")
	}
	select {
	case err := <-closed:
		if err == nil || err.Code != 530 {
			t.Errorf("closed with %v, want 530", err)
		}
	case <-time.After(timeoutReply):
		t.Error("the connection stays open")
	}
}

// N06: a node that stops tells its clients.
func TestShutdownText(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	s := at(t, c.Node(0))
	closed := s.conn.NotifyClose(make(chan *amqp.Error, 1))
	stopNode(t, c.Node(0))
	select {
	case err := <-closed:
		if err == nil || err.Code != 320 || err.Reason != "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'" {
			t.Errorf("closed with %v", err)
		}
	case <-time.After(timeoutReply):
		t.Error("the connection was not closed")
	}
}
