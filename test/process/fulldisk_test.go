package process

import (
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

func setDisk(t *testing.T, n *cluster.Node, d cluster.Disk) {
	t.Helper()
	if err := n.SetDisk(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// TestFullDiskGoesOn shows that a node whose disk is full blocks the publishers of every node, that consumers go on meanwhile, that
// nothing is lost, and that all go on when there is room, the node with the full disk among them (U11).
func TestFullDiskGoesOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, breakable(t))
	startAll(t, c)
	publisher, blocked := blockedSession(t, c.Node(0))
	q := plainQueue(publisher, "q", nil)
	publisher.fill(q, numbered("m", 200)...)
	leader, _ := leaderOf(t, c, q)
	consumer := at(t, c.Node(2))
	acked := map[string]bool{}
	for round, full := range []*cluster.Node{leader, c.Node(1)} {
		setDisk(t, full, cluster.Disk{Full: true})
		wantBlocked(t, blocked, true, "low on disk")
		// One more may have been asked for from the socket before; what comes after it is not read before there is room.
		publisher.noError("publish", publisher.ch.Publish("", q, false, false, message("first "+strconv.Itoa(round))))
		time.Sleep(500 * time.Millisecond)
		confirmed := make(chan bool, 1)
		go func() {
			d, err := publisher.ch.PublishWithDeferredConfirm("", q, false, false, message("late "+strconv.Itoa(round)))
			confirmed <- err == nil && d.Wait()
		}()
		_, deliveries := consumer.consume(q, 10)
		for range 90 {
			d := consumer.next(deliveries)
			acked[string(d.Body)] = true
			consumer.noError("ack", d.Ack(false))
		}
		select {
		case <-confirmed:
			t.Error("confirmed while the disk was full")
		case <-time.After(time.Second):
		}
		consumer.noError("close", consumer.conn.Close())
		consumer = at(t, c.Node(2)) // what was not acked comes back
		setDisk(t, full, cluster.Disk{})
		wantBlocked(t, blocked, false, "")
		select {
		case ok := <-confirmed:
			if !ok {
				t.Error("the publish was refused")
			}
		case <-time.After(timeoutReply):
			t.Fatal("no confirm although there is room")
		}
	}
	publisher.fill(q, "last")
	seen := map[string]int{}
	for _, body := range consumer.drain(q) {
		seen[body]++
	}
	for _, body := range append(numbered("m", 200), "first 0", "late 0", "first 1", "late 1", "last") {
		if (seen[body] == 1) == acked[body] {
			t.Errorf("%s came %d times, acked before: %v", body, seen[body], acked[body])
		}
	}
}

// TestSlowDisk shows that publishers which outrun slow disks wait in their sockets: what a node keeps for them is bounded, the leader
// stays, and all is confirmed in the end.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, breakable(t))
	startAll(t, c)
	s := at(t, c.Node(0))
	q := plainQueue(s, "slow", nil)
	s.fill(q, "first")
	leader, _ := leaderOf(t, c, q)
	for _, n := range c.Nodes() {
		setDisk(t, n, cluster.Disk{SyncDelay: 300 * time.Millisecond})
	}
	before, begun := residentBytes(t, leader.PID(), "RssAnon:"), time.Now()
	f := startFlood(t, leader, q)
	for begun := time.Now(); time.Since(begun) < 4*time.Second; time.Sleep(250 * time.Millisecond) {
		if now := residentBytes(t, leader.PID(), "RssAnon:"); now > before+floodHeap {
			t.Errorf("the leader's memory grew from %d to %d bytes", before, now)
			break
		}
	}
	f.end()
	f.check(underWayStream + floodPublisher*underWayRead)
	if now, _ := leaderOf(t, c, q); now != leader && cluster.Stalled(begun) < 300*time.Millisecond {
		t.Errorf("%s leads instead of %s", now.Name, leader.Name)
	}
	var closed *amqp.Error
	select {
	case closed = <-s.ch.NotifyClose(make(chan *amqp.Error, 1)):
	default:
	}
	if closed != nil {
		t.Errorf("a channel was closed: %v", closed)
	}
}
