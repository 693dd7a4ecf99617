package process

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// haltingConn writes so much and goes on when it may.
type haltingConn struct {
	net.Conn
	left *atomic.Int64
	goOn <-chan struct{}
}

func (c *haltingConn) Write(b []byte) (int, error) {
	if c.left.Add(-int64(len(b))) < 0 {
		<-c.goOn
	}
	return c.Conn.Write(b)
}

// smallNode is a node with so many bytes of memory to spare below its watermark.
func smallNode(t *testing.T, spare int) *cluster.Node {
	t.Helper()
	n := startCluster(t, 1).Node(0)
	restartWith(t, n, "--memory-high-watermark", fmt.Sprint(residentBytes(t, n.PID(), "RssAnon:")+spare))
	return n
}

// TestUnfinishedMessages: what many publishers have half sent does not raise an alarm that keeps them from sending the rest.
func TestUnfinishedMessages(t *testing.T) {
	t.Parallel()
	const publishers, size = 200, 1 << 20
	n := smallNode(t, 100<<20)
	q := plainQueue(at(t, n), "q", nil)
	goOn := make(chan struct{})
	body := make([]byte, size)
	var all sync.WaitGroup
	var confirmed atomic.Int64
	for range publishers {
		all.Go(func() {
			if err := publishHalting(n.URL(), q, body, goOn); err != nil {
				t.Error(err)
				return
			}
			confirmed.Add(1)
		})
	}
	time.Sleep(5 * time.Second) // for all that find room; whether they have does not matter
	close(goOn)
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(timeoutReply + time.Minute):
		t.Errorf("%d of %d messages were confirmed", confirmed.Load(), publishers)
		_ = n.Kill() // else those who wait could not end
	}
}

// publishHalting publishes a message, the last tenth of it when it may.
func publishHalting(url, queue string, body []byte, goOn <-chan struct{}) error {
	var left atomic.Int64
	left.Store(int64(len(body)) * 9 / 10)
	conn, err := connectWith(url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		conn, err := amqp.DefaultDial(30*time.Second)(network, addr)
		return &haltingConn{conn, &left, goOn}, err
	}})
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	d, err := ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: body})
	if err != nil {
		return err
	}
	if !d.Wait() {
		return errors.New("not confirmed")
	}
	return nil
}

// TestUncommittedMessages: what many clients have published in transactions that they have not committed is refused before it raises an alarm that would keep
// them from committing.
func TestUncommittedMessages(t *testing.T) {
	t.Parallel()
	n := smallNode(t, 100<<20)
	q := plainQueue(at(t, n), "q", nil)
	body := make([]byte, 1<<20)
	var open []*amqp.Channel
	refused := 0
	for range 25 {
		s := at(t, n)
		ch := s.txChannel()
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		for range 7 {
			if ch.Publish("", q, false, false, amqp.Publishing{Body: body}) != nil {
				break // closed already
			}
		}
		if _, err := ch.QueueDeclarePassive(q, true, false, false, false, nil); err == nil {
			open = append(open, ch)
			continue
		}
		refused++
		if e := <-closed; e == nil || e.Code != amqp.PreconditionFailed || !strings.Contains(e.Reason, "open transactions of the node exceed") {
			t.Errorf("closed with %v", e)
		}
	}
	if len(open) == 0 || refused == 0 {
		t.Errorf("%d are open, %d were refused", len(open), refused)
	}
	for _, ch := range open {
		if err := ch.TxCommit(); err != nil {
			t.Errorf("commit: %v", err)
		}
	}
	s := at(t, n)
	s.publish("", q, message("another"))
	s.ready(q, 7*len(open)+1)
}

// TestUncommittedReturns: neither does what they will have returned to them.
func TestUncommittedReturns(t *testing.T) {
	t.Parallel()
	const clients, each, size = 60, 3, 1 << 20
	n := smallNode(t, 100<<20)
	q := plainQueue(at(t, n), "q", nil)
	body := make([]byte, size)
	var open []*session
	refused := 0
	for range clients {
		s := at(t, n)
		s.ch = s.txChannel()
		closed := s.ch.NotifyClose(make(chan *amqp.Error, 1))
		for range each {
			if s.ch.Publish("", s.name("none"), true, false, amqp.Publishing{Body: body}) != nil {
				break // closed already
			}
		}
		if _, err := s.ch.QueueDeclarePassive(q, true, false, false, false, nil); err == nil {
			open = append(open, s)
			continue
		}
		refused++
		if e := <-closed; e == nil || e.Code != amqp.PreconditionFailed || !strings.Contains(e.Reason, "open transactions of the node exceed") {
			t.Errorf("closed with %v", e)
		}
	}
	if len(open) == 0 || refused == 0 {
		t.Errorf("%d are open, %d were refused", len(open), refused)
	}
	for _, s := range open {
		returns := s.ch.NotifyReturn(make(chan amqp.Return, each))
		s.noError("commit", s.ch.TxCommit())
		for range each {
			if r := s.nextReturn(returns); len(r.Body) != size {
				t.Errorf("%d bytes were returned", len(r.Body))
			}
		}
	}
}

// TestReadRequestsUnderAlarm: what gRPC publishers have sent when the memory alarm comes does not keep it up for good.
func TestReadRequestsUnderAlarm(t *testing.T) {
	t.Parallel()
	const streams, size = 120, 2 << 20
	n := smallNode(t, 180<<20)
	s, blocked := blockedSession(t, n)
	q := plainQueue(s, "q", nil)
	memory, err := s.ch.QueueDeclare("memory", false, false, false, false, nil)
	s.noError("declare", err)
	var open []grpc.BidiStreamingClient[warrenv1.PublishStreamRequest, warrenv1.PublishStreamResponse]
	for range streams {
		open = append(open, rpcAt(t, n, "guest", "guest").publisher())
	}
	other := at(t, n)
	filled := make(chan struct{})
	go func() { // a publisher that is not read waits in its write
		defer close(filled)
		for range 200 {
			if err := s.ch.Publish("", memory.Name, false, false, amqp.Publishing{Body: make([]byte, 1<<20)}); err != nil {
				t.Errorf("publish: %v", err)
			}
		}
	}()
	wantBlocked(t, blocked, true, "low on memory")
	for _, stream := range open {
		s.noError("send", stream.Send(&warrenv1.PublishStreamRequest{Publications: []*warrenv1.Publication{forQueue(q, strings.Repeat("x", size))}}))
	}
	for _, stream := range open {
		for results := 0; results == 0; {
			resp, err := stream.Recv()
			s.noError("receive", err)
			results = len(resp.GetResults())
		}
	}
	_, err = other.ch.QueuePurge(memory.Name, false)
	s.noError("purge", err)
	wantBlocked(t, blocked, false, "")
	<-filled
	other.ready(q, streams)
}
