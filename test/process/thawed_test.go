package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// thawedAsks is how many queues a thawed node is asked for in one round.
const thawedAsks = 12

// TestThawedLeaderDeniesNothing stops the process of the catalog's leader, about as long as the others take to elect another one, and longer. They
// confirm queues meanwhile, and each of these is asked for at the stopped node at once, over AMQP and HTTP. What it answers when it goes on is not from before.
func TestThawedLeaderDeniesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	there := 0
	for round, beyond := range []time.Duration{0, 0, 4 * time.Second} {
		frozen, on := catalogLeader(t, c)
		x := &thawed{t: t, n: frozen, s: at(t, frozen)}
		for range thawedAsks {
			x.channels = append(x.channels, x.s.channel(x.s.conn))
		}
		declarer := at(t, on)
		if err := frozen.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for i := range thawedAsks {
			queue := plainQueue(declarer, fmt.Sprintf("thawed-%d-%d", round, i), nil) // returns when it is confirmed
			x.ask(i, queue)
			if i == 0 {
				t.Logf("another leader has confirmed after %v", time.Since(begun).Round(time.Millisecond))
				time.Sleep(beyond)
			}
		}
		if err := frozen.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		x.asked.Wait()
		t.Logf("thawed after %v: %d answers that it is there, %d of another kind", time.Since(begun).Round(time.Millisecond), x.there, x.other)
		there += x.there
		await(t, timeoutStart, "all are well", func() bool {
			code, _, _ := readyNow(t, frozen.HTTP())
			return code == http.StatusOK
		})
	}
	if there == 0 {
		t.Error("nobody was told that a queue is there")
	}
}

// catalogLeader is the node that leads the catalog, and another one.
func catalogLeader(t *testing.T, c *cluster.Cluster) (leader, other *cluster.Node) {
	t.Helper()
	leader = c.ByName(statusOf(t, c.Node(0)).Warren.Leader)
	for _, n := range c.Nodes() {
		if n != leader {
			return leader, n
		}
	}
	t.Fatal("one node")
	return nil, nil
}

// thawed are the questions to a node that is stopped.
type thawed struct {
	t        *testing.T
	n        *cluster.Node
	s        *session
	channels []*amqp.Channel // one for each question
	asked    sync.WaitGroup

	mu           sync.Mutex
	there, other int
}

// ask asks for a queue, over both protocols, and returns before the answers come.
func (x *thawed) ask(i int, queue string) {
	x.asked.Go(func() {
		_, err := x.channels[i].QueueDeclarePassive(queue, true, false, false, false, nil)
		refusal, _ := errors.AsType[*amqp.Error](err)
		x.answered("AMQP", queue, err == nil, refusal != nil && refusal.Code == amqp.NotFound)
	})
	x.asked.Go(func() {
		ctx, cancel := context.WithTimeout(x.t.Context(), timeoutReply)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.n.HTTP()+"/api/queues/%2F/"+queue, http.NoBody)
		if err != nil {
			x.t.Error(err)
			return
		}
		req.SetBasicAuth("guest", "guest")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			x.answered("HTTP", queue, false, false)
			return
		}
		defer resp.Body.Close()
		x.answered("HTTP", queue, resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusNotFound)
	})
}

func (x *thawed) answered(how, queue string, there, denied bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case denied:
		x.t.Errorf("%s: %s is not there, %s says, after its declaration was confirmed", how, queue, x.n.Name)
	case there:
		x.there++
	default:
		x.other++
	}
}
