package process

import (
	"fmt"
	"os"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestLargeLetterToManyQueues has one large message die in a queue whose letters go to many others: each gets a copy of its own, and the node does
// not hold all of them at one time.
func TestLargeLetterToManyQueues(t *testing.T) {
	t.Parallel()
	needWarren(t)
	const targets, size = 80, 16 << 20
	const growMax = targets * size / 2 // half a copy of each; with all under way at once it was three copies
	c := startCluster(t, 1)
	s := at(t, c.Node(0))
	fan := s.exchange("fan", "fanout", nil)
	names := make([]string, targets)
	for i := range names {
		names[i] = plainQueue(s, fmt.Sprint("target", i), nil)
		s.bind(names[i], "", fan, nil)
	}
	source := plainQueue(s, "source", amqp.Table{"x-dead-letter-exchange": fan})
	s.publish("", source, amqp.Publishing{Body: make([]byte, size), DeliveryMode: amqp.Persistent})
	d := s.get(source)
	before := residentBytes(t, c.Node(0).PID(), "VmHWM:")
	s.noError("reject", d.Reject(false))
	for _, name := range names {
		s.ready(name, 1)
	}
	grown := residentBytes(t, c.Node(0).PID(), "VmHWM:") - before
	t.Logf("the node grew by %d MiB", grown>>20)
	if grown > growMax && os.Getenv(cluster.RaceEnv) == "" { // the detector keeps notes of all memory
		t.Errorf("the node grew by %d MiB for %d MiB of letters", grown>>20, targets*size>>20)
	}
}
