package process

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// sleepy are the settings of a cluster whose queues sleep after a second.
func sleepy(cfg *cluster.Config) { cfg.Args = []string{"--sleep-after", "1s"} }

var replicasAsleep = regexp.MustCompile(`(?m)^warren_replicas_asleep (\S+)$`)

// asleep waits until so many replicas sleep on the nodes together.
func asleep(t *testing.T, want int, nodes ...*cluster.Node) {
	t.Helper()
	n := 0
	await(t, 2*timeoutReply, fmt.Sprintf("%d replicas sleep", want), func() bool {
		n = 0
		for _, node := range nodes {
			n += metric(t, node, replicasAsleep)
		}
		return n == want
	})
}

// TestQueuesSleep has queues fall asleep that nobody uses, and uses them again: with publishes, dead letters, gets, consumers and policies, after the
// death of the node that led them, and after its return. Nothing is lost or comes twice.
func TestQueuesSleep(t *testing.T) {
	t.Parallel()
	const queues = 8
	c := newCluster(t, 3, sleepy)
	startAll(t, c)
	s := at(t, c.Node(0))
	plainQueue(s, "dead", nil)
	names := []string{"dead"}
	for i := range queues {
		through := at(t, c.Node(i%3)) // where it is led
		names = append(names, plainQueue(through, fmt.Sprint("idle", i), amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}))
		through.fill(names[i+1], "1")
	}
	waiting := plainQueue(s, "waiting", amqp.Table{"x-message-ttl": int32(3600 * 1000)})
	s.fill(waiting, "due in an hour")
	_, deliveries := s.consume(plainQueue(s, "consumed", nil), 1)
	asleep(t, 3*len(names), c.Nodes()...)
	for i, n := range c.Nodes() {
		if g := metric(t, n, regexp.MustCompile(`(?m)^warren_queues_without_leader (\S+)$`)); g != 0 {
			t.Errorf("node %d looks for %d leaders", i, g)
		}
	}
	s.fill("consumed", "at once")
	s.noError("ack", s.next(deliveries).Ack(false))

	// Each is woken by something else, through a node that does not lead it.
	begun := time.Now()
	for i := range queues {
		at(t, c.Node((i+1)%3)).fill(names[i+1], "2")
	}
	t.Logf("%d queues that slept took a message each in %v", queues, time.Since(begun))
	begun = time.Now()
	for i := range queues { // dead is woken by its letters
		through := at(t, c.Node((i+2)%3))
		d := through.get(names[i+1])
		s.noError("reject", d.Reject(false))
		through.ready(names[i+1], 1)
	}
	s.ready("dead", queues)
	t.Logf("%d dead letters were in a target that slept after %v", queues, time.Since(begun))
	asleep(t, 3*len(names), c.Nodes()...)

	leader, others := leaderOf(t, c, names[1])
	kill(t, leader)
	s = at(t, others[0])
	begun = time.Now()
	for i := range queues {
		at(t, others[i%2]).fill(names[i+1], "3")
	}
	if took, most := time.Since(begun), bound(5*time.Second, begun); took > most {
		t.Errorf("%d queues were used again %v after a death", queues, took)
	}
	asleep(t, 2*len(names), others...)
	start(t, leader)
	asleep(t, 3*len(names), c.Nodes()...)
	for i := range queues {
		at(t, leader).fill(names[i+1], "4")
	}
	for i := range queues {
		if got, want := at(t, leader).drain(names[i+1]), []string{"2", "3", "4"}; !slices.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", names[i+1], got, want)
		}
	}
	if got := at(t, leader).drain("dead"); len(got) != queues {
		t.Errorf("%d dead letters, want %d", len(got), queues)
	}
	s.ready(waiting, 1)
}
