package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/travel"
)

// confirmMax bounds the longest confirm while nodes are restarted one by one.
func confirmMax() time.Duration {
	if os.Getenv(cluster.RaceEnv) != "" {
		return 5 * time.Second
	}
	return 2 * time.Second
}

// TestRollingRestart stops and starts each of three nodes in turn while publishers at all of them publish at a fixed rate
// to queues whose messages expire into others: nothing that was confirmed is lost, no dead letter is
// doubled, no confirm takes long, and leaders change hands by being moved and not by elections.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const queues, publishers, every = 30, 6, 25 * time.Millisecond
	c := newCluster(t, 3)
	startAll(t, c)
	s := at(t, c.Node(0))
	var names []string
	dead := []string{"dead0", "dead1", "dead2"}
	for _, name := range dead {
		plainQueue(s, name, nil)
	}
	for i := range queues {
		names = append(names, plainQueue(at(t, c.Node(i%3)), fmt.Sprint("rolling", i), amqp.Table{
			"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead[i%len(dead)],
		}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*travel.Publisher
	var work sync.WaitGroup
	travelled := time.Now()
	for i := range publishers {
		p := &travel.Publisher{
			Name: fmt.Sprint("p", i), Queues: append(slices.Clone(names[i:]), names[:i]...), Every: every, URLs: c.URLs, First: i,
		}
		all = append(all, p)
		work.Go(func() { p.Run(ctx) })
	}
	elections := func(nodes ...*cluster.Node) (n int) {
		for _, node := range nodes {
			n += figure(t, node, "warren_leader_elections_total")
		}
		return n
	}
	for i := range 3 {
		time.Sleep(time.Second)
		others := []*cluster.Node{c.Node((i + 1) % 3), c.Node((i + 2) % 3)}
		before := elections(others...)
		begun := time.Now()
		stopNode(t, c.Node(i))
		stopped := time.Since(begun)
		time.Sleep(500 * time.Millisecond)
		held := elections(others...) - before
		start(t, c.Node(i))
		t.Logf("%s: stopped in %v, away for %v, %d elections", c.Node(i).Name, stopped, time.Since(begun), held)
		stalled := cluster.Stalled(begun) > 300*time.Millisecond
		if held > 0 && !stalled && os.Getenv(cluster.RaceEnv) == "" { // a starved node is taken for dead
			t.Errorf("%d elections while %s was stopped: leaders were not moved", held, c.Node(i).Name)
		}
	}
	time.Sleep(time.Second)
	cancel()
	work.Wait()
	checkTravellers(t, c, travelled, all, dead, names)
}

// checkTravellers compares what publishers know with what is in the queues of dead letters, once all others are empty.
func checkTravellers(t *testing.T, c *cluster.Cluster, begun time.Time, all []*travel.Publisher, dead, sources []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	v, err := travel.Judge(ctx, c, c.Node(0).URL(), all, sources, dead)
	if err != nil {
		t.Error(err)
	}
	t.Log(v)
	for _, why := range v.Moves {
		if !strings.Contains(why, "320") && why != "<nil>" {
			t.Errorf("a publisher was sent away with %s", why)
		}
	}
	if v.Lost > 0 || v.Doubled > 0 || len(v.Silent) > 0 {
		t.Errorf("%d lost, %d dead letters doubled, no answer to %q", v.Lost, v.Doubled, v.Silent)
	}
	if most := confirmMax() + 2*cluster.Stalled(begun); v.Longest > most {
		t.Errorf("a confirm took %v, want %v at most", v.Longest, most)
	}
}
