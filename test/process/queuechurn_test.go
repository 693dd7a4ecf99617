package process

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/warrenmq/warren/test/cluster"
)

// Queues that are declared and deleted: with soakEnv set, and else.
const (
	churnFull   = 10_000
	churnSample = 200
	churnAtOnce = 16
)

// churnLeftHeap is what may be left in memory of all queues but those of the first round: the
// catalog remembers the outcomes of its newest 8,192 requests, and the store of each deleted group
// that it is, until the segment with its records is freed.
const churnLeftHeap = 8 << 20

var (
	liveBytes = regexp.MustCompile(`(?m)^warren_store_live_bytes ([0-9.e+]+)$`)
	segments  = regexp.MustCompile(`(?m)^warren_store_segments ([0-9.e+]+)$`)
)

// TestQueueChurnLeavesNothing declares and deletes replicated queues, a message in each, and checks that no
// goroutine, file, memory or byte of the log is left of them, nor an entry in the catalog.
func TestQueueChurnLeavesNothing(t *testing.T) {
	t.Parallel()
	total := churnSample
	if os.Getenv(soakEnv) != "" {
		total = churnFull
	}
	c := startCluster(t, 3)
	sessions := make([]*session, churnAtOnce)
	for i := range sessions {
		sessions[i] = at(t, c.Node(i%3))
	}
	churn := func(n int) {
		t.Helper()
		var g errgroup.Group
		for w, s := range sessions {
			g.Go(func() error {
				for i := w; i < n; i += len(sessions) {
					name := "churn-" + strconv.Itoa(i)
					if _, err := s.ch.QueueDeclare(name, true, false, false, false, amqp.Table{}); err != nil {
						return err
					}
					if err := s.ch.Publish("", name, false, false, message("x")); err != nil {
						return err
					}
					if _, err := s.ch.QueueDelete(name, false, false, false); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		waitGone(t, c)
	}
	churn(total / 4) // pools, maps and logs fill once
	before := make([]footprint, 3)
	live := make([]int, 3)
	for i := range before {
		before[i], live[i] = measure(t, c.Node(i)), metric(t, c.Node(i), liveBytes)
	}
	churn(total)
	for i := range before {
		var after footprint
		var bytes int
		for limit := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
			after, bytes = measure(t, c.Node(i)), metric(t, c.Node(i), liveBytes)
			if after.goroutines <= before[i].goroutines+leftGoroutines && after.files <= before[i].files+leftFiles &&
				after.heap <= before[i].heap+churnLeftHeap && bytes <= live[i] {
				break
			}
			if time.Now().After(limit) {
				t.Errorf("node%d: left of %d queues: %v and %d bytes of the log; before: %v and %d", i+1, total, after, bytes, before[i], live[i])
				break
			}
		}
		t.Logf("node%d: before %v, after %v, %d segments", i+1, before[i], after, metric(t, c.Node(i), segments))
	}
}

// metric reads one figure of a node.
func metric(t *testing.T, n *cluster.Node, form *regexp.Regexp) int {
	t.Helper()
	text, err := n.Fetch(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	m := form.FindSubmatch(text)
	if m == nil {
		t.Fatalf("/metrics does not tell %v", form)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(v)
}

// waitGone waits until no node knows a queue, closing ones included.
func waitGone(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	limit := time.Now().Add(time.Minute)
	for i := range 3 {
		for {
			list, err := c.Node(i).Queues(t.Context())
			if err == nil && len(list) == 0 {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("node%d still has %d queues (%v)", i+1, len(list), err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}
