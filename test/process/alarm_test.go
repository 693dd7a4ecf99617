package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// blockedSession is a session that hears of connection.blocked. Its library, while it waits in a write, hears no heartbeats and gives up after three intervals
// (amqp091-go: Connection.heartbeater): so they are as long as the node's.
func blockedSession(t *testing.T, n *cluster.Node) (*session, <-chan amqp.Blocking) {
	t.Helper()
	conn, err := connectWith(n.URL(), amqp.Config{Heartbeat: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &session{T: t, to: target{name: n.Name, url: n.URL(), warren: true}, conn: conn, id: fmt.Sprintf("t%08x", rand.Uint32())}
	s.ch = s.channel(conn)
	t.Cleanup(func() {
		if t.Failed() {
			_ = n.Kill() // a connection that is blocked could not be closed
		}
	})
	return s, s.conn.NotifyBlocked(make(chan amqp.Blocking, 8))
}

func wantBlocked(t *testing.T, on <-chan amqp.Blocking, active bool, reason string) {
	t.Helper()
	select {
	case b := <-on:
		if b.Active != active || b.Reason != reason {
			t.Errorf("got %+v, want active=%v %q", b, active, reason)
		}
	case <-time.After(timeoutReply):
		t.Fatalf("no blocking came, want active=%v %q", active, reason)
	}
}

// TestMemoryAlarm shows that one node's alarm blocks publishers on every node,
// told after a publish only, while consumers go on (U11).
func TestMemoryAlarm(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	short := c.Node(2)
	publisher, blocked := blockedSession(t, c.Node(0))
	idle, idleBlocked := blockedSession(t, c.Node(1))
	q := plainQueue(publisher, "q", nil)
	publisher.fill(q, numbered("m", 20)...)
	restartWith(t, short, "--memory-high-watermark", "1B")
	wantBlocked(t, blocked, true, "low on memory")
	select {
	case b := <-idleBlocked:
		t.Errorf("a connection that has not published was told %+v", b)
	default:
	}
	// Consumers go on, on a connection that does not publish.
	_, deliveries := idle.consume(q, 5)
	for range 20 {
		idle.noError("ack", idle.next(deliveries).Ack(false))
	}
	// The first publish under alarm is answered by it, and nothing after it is read.
	late, lateBlocked := blockedSession(t, c.Node(1))
	late.noError("publish", late.ch.Publish("", q, false, false, message("under alarm")))
	wantBlocked(t, lateBlocked, true, "low on memory")
	body := `{"properties":{},"routing_key":"` + q + `","payload":"m","payload_encoding":"string"}`
	if status, answer := httpPublish(t, c.Node(1).HTTP(), "amq.default", body); status != 503 || !strings.Contains(answer, "low on memory") {
		t.Errorf("publish by HTTP under alarm: %d %s", status, answer)
	}
	clear := make(chan struct{})
	confirmed := make(chan bool, 1)
	go func() {
		d, err := late.ch.PublishWithDeferredConfirm("", q, false, false, message("last"))
		if err != nil {
			t.Error(err)
			confirmed <- false
			return
		}
		select {
		case <-clear:
		case <-d.Done():
			t.Error("confirmed under alarm")
		}
		confirmed <- d.Wait()
	}()
	time.Sleep(12 * time.Second) // longer than heartbeats, and than an alarm that is not repeated
	close(clear)
	restartWith(t, short)
	wantBlocked(t, blocked, false, "")
	select {
	case ok := <-confirmed:
		if !ok {
			t.Error("the last publish was refused")
		}
	case <-time.After(timeoutReply):
		t.Error("no confirm after the alarm")
	}
	publisher.fill(q, "free again")
	// The alarm of a node that dies ends with it.
	restartWith(t, short, "--memory-high-watermark", "0")
	wantBlocked(t, blocked, true, "low on memory")
	kill(t, short)
	wantBlocked(t, blocked, false, "")
}

// TestNodeThatStartsKnowsAlarms: a node that starts while another is in alarm blocks its first publisher at once, not when the alarm is said again.
func TestNodeThatStartsKnowsAlarms(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	short, starting := c.Node(2), c.Node(0)
	q := plainQueue(at(t, c.Node(1)), "q", nil)
	restartWith(t, short, "--memory-high-watermark", "1B")
	for try := range 4 {
		kill(t, starting)
		start(t, starting)
		s, blocked := blockedSession(t, starting)
		s.fill(q, "the first") // it is answered by connection.blocked, and the next is not read
		d, err := s.ch.PublishWithDeferredConfirm("", q, false, false, message("under alarm"))
		s.noError("publish", err)
		select {
		case <-d.Done():
			t.Errorf("start %d: confirmed under alarm", try+1)
		case <-time.After(200 * time.Millisecond):
		}
		wantBlocked(t, blocked, true, "low on memory")
	}
	kill(t, starting) // a connection that is blocked could not be closed
}

// TestMemoryAlarmByLoad fills a node's memory with messages until it stops its
// publisher, and empties it again.
func TestMemoryAlarmByLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	n := c.Node(0)
	watermark := residentBytes(t, n.PID(), "RssAnon:") + 100<<20
	restartWith(t, n, "--memory-high-watermark", fmt.Sprint(watermark))
	s, blocked := blockedSession(t, n)
	queue, err := s.ch.QueueDeclare("memory", false, false, false, false, nil)
	s.noError("declare", err)
	other := at(t, n)
	body := make([]byte, 1<<20)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { // a publisher that is not read waits in its write
		defer close(ended)
		for range 4096 {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.ch.Publish("", queue.Name, false, false, amqp.Publishing{Body: body}); err != nil {
				t.Errorf("publish: %v", err)
				return
			}
		}
	}()
	wantBlocked(t, blocked, true, "low on memory")
	close(stop)
	n2, err := other.ch.QueuePurge(queue.Name, false)
	if err != nil || n2 == 0 {
		t.Fatalf("purged %d messages, %v", n2, err)
	}
	wantBlocked(t, blocked, false, "")
	<-ended
	s.publish("", queue.Name, message("free again"))
}

// restartWith stops a node and starts it with other settings.
func restartWith(t *testing.T, n *cluster.Node, args ...string) {
	t.Helper()
	stopNode(t, n)
	if err := n.Launch(args...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// residentBytes reads one line of a process's memory.
func residentBytes(t *testing.T, pid int, line string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if f := strings.Fields(l); len(f) > 1 && f[0] == line {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no %s of process %d", line, pid)
	return 0
}
