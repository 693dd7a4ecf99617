package process

import (
	"regexp"
	"runtime"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// goProcessors is GOMAXPROCS of a node.
var goProcessors = regexp.MustCompile(`(?m)^go_sched_gomaxprocs_threads (\S+)$`)

// TestProcessorsByLoad has a node that is idle keep to one processor, and use all once it is flooded. It runs by itself: on a machine that others keep
// busy a node has more.
func TestProcessorsByLoad(t *testing.T) {
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Env = append(cfg.Env, "GOMAXPROCS=") })
	startAll(t, c)
	n := c.Node(0)
	await(t, 4*timeoutReply, "an idle node keeps to one processor", func() bool { return metric(t, n, goProcessors) == 1 })

	stop := make(chan struct{})
	var flood sync.WaitGroup
	for range 4 {
		s := at(t, n)
		flood.Go(func() {
			for {
				select {
				case <-stop:
					return
				default: // there is no queue: only the node's processors have work
				}
				if err := s.ch.PublishWithContext(t.Context(), "amq.fanout", "", false, false, amqp.Publishing{Body: []byte("dropped")}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	await(t, 4*timeoutReply, "a node that is flooded has all processors", func() bool { return metric(t, n, goProcessors) > 1 || runtime.NumCPU() == 1 })
	close(stop)
	flood.Wait()
	await(t, 4*timeoutReply, "and gives them back", func() bool { return metric(t, n, goProcessors) == 1 })
}

// TestProcessorsAsSet leaves GOMAXPROCS to whoever sets it.
func TestProcessorsAsSet(t *testing.T) {
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Env = append(cfg.Env, "GOMAXPROCS=3") })
	startAll(t, c)
	s := at(t, c.Node(0))
	s.fill(plainQueue(s, "queue", nil), "a message")
	for range 3 {
		time.Sleep(time.Second) // is what it takes to be quiet
		if p := metric(t, c.Node(0), goProcessors); p != 3 {
			t.Fatalf("GOMAXPROCS is %d", p)
		}
	}
}
