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
	conn, err := amqp.DialConfig(url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
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
