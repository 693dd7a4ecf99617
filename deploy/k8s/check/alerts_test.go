package check

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// lossAlerts are those that lost nodes make fire at once, but for how long they have to last.
var lossAlerts = []string{"WarrenNodeDown", "WarrenNoMajority", "WarrenCatalogWithoutLeader", "WarrenQueuesWithoutLeader", "WarrenNodeNotReady"}

// awaitAlerts waits until of lossAlerts just these fire, the chart's and the plain ones, by what the nodes tell that run.
func awaitAlerts(t *testing.T, c *cluster.Cluster, want ...string) {
	t.Helper()
	var wanted, got []string
	for _, name := range want {
		wanted = append(wanted, "chart, "+name, "plain, "+name)
	}
	slices.Sort(wanted)
	all, engine := alertExpressions(t), newEngine()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := cluster.Poll(ctx, func() (bool, error) {
		s := &scraped{series: map[string]*storedSeries{}}
		if err := s.scrape(ctx, c.Nodes()); err != nil {
			return false, err
		}
		got = got[:0]
		for name, expr := range all {
			fires, err := s.evaluate(ctx, engine, expr)
			if err != nil {
				return false, err
			}
			if _, short, _ := strings.Cut(name, ", "); len(fires) > 0 && slices.Contains(lossAlerts, short) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, wanted), nil
	})
	if err != nil {
		t.Fatalf("alerts %q, want %q: %v\n%s", got, wanted, err, c.Logs())
	}
}

// The alerts about lost nodes fire for what is lost, and stop when it is back: a queue with its only replica on a dead node, the queues and the catalog
// without a majority.
func TestAlertsOfLostNodes(t *testing.T) {
	c := threeNodes(t)
	conn, err := amqp.Dial(c.Node(0).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for name, replicas := range map[string]int{"three": 3, "single": 1} { // the only one is at the node of the client
		if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": replicas}); err != nil {
			t.Fatal(err)
		}
	}
	kill := func(i int) {
		t.Helper()
		if err := c.Node(i).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	start := func() {
		t.Helper()
		if err := c.StartAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	awaitAlerts(t, c)
	kill(1)
	awaitAlerts(t, c, "WarrenNodeDown")
	start()
	awaitAlerts(t, c)
	kill(0)
	awaitAlerts(t, c, "WarrenNodeDown", "WarrenQueuesWithoutLeader")
	kill(1)
	awaitAlerts(t, c, lossAlerts...)
	start()
	awaitAlerts(t, c)
}

// firing are the alerts of both files that fire by what was scraped, without the file's name.
func firing(t *testing.T, s *scraped) map[string]bool {
	t.Helper()
	fires := map[string]bool{}
	engine := newEngine()
	for name, expr := range alertExpressions(t) {
		numbers, err := s.evaluate(t.Context(), engine, expr)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(numbers) > 0 {
			fires[name] = true
		}
	}
	return fires
}

// wantFiring checks that an alert fires, or does not, in both files.
func wantFiring(t *testing.T, s *scraped, name string, want bool) {
	t.Helper()
	fires := firing(t, s)
	for _, file := range []string{"chart, ", "plain, "} {
		if fires[file+name] != want {
			t.Errorf("%s%s fires: %t, want %t; all: %v", file, name, !want, want, fires)
		}
	}
}

// A node that Prometheus does not know, as it does not know a pod without an address, is missed, and so are all of them. A node that begins again and again is told
// of although it answers whenever it is asked.
func TestAlertsOfNodesThatAreNotSeenDown(t *testing.T) {
	c := threeNodes(t)
	scrape := func(s *scraped, nodes []*cluster.Node) {
		t.Helper()
		if err := s.scrape(t.Context(), nodes); err != nil {
			t.Fatal(err)
		}
	}
	all := &scraped{series: map[string]*storedSeries{}}
	scrape(all, c.Nodes())
	for _, name := range []string{"WarrenNodeNotScraped", "WarrenNodesAbsent", "WarrenNodeRestarts", "WarrenCatalogVotersMissing"} {
		wantFiring(t, all, name, false)
	}
	some := &scraped{series: map[string]*storedSeries{}}
	scrape(some, c.Nodes()[:2])
	wantFiring(t, some, "WarrenNodeNotScraped", true)
	wantFiring(t, some, "WarrenNodesAbsent", false)
	wantFiring(t, &scraped{series: map[string]*storedSeries{}, last: time.Now()}, "WarrenNodesAbsent", true)
	for range 3 {
		n := c.Node(2)
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.StartAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantFiring(t, all, "WarrenNodeRestarts", false)
		scrape(all, c.Nodes())
	}
	wantFiring(t, all, "WarrenNodeRestarts", true)
	wantFiring(t, all, "WarrenNodeDown", false)
}

// A node that was drained and that nobody revived is told of, as what it is.
func TestAlertOfANodeThatIsLeftInMaintenance(t *testing.T) {
	c := threeNodes(t)
	maintain := func(method string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, c.Node(1).HTTP()+"/api/warren/maintenance?for=10", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("guest", "guest")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode/100 != 2 {
			t.Fatal(resp.Status, err)
		}
	}
	look := func(want bool) {
		t.Helper()
		s := &scraped{series: map[string]*storedSeries{}}
		if err := s.scrape(t.Context(), c.Nodes()); err != nil {
			t.Fatal(err)
		}
		wantFiring(t, s, "WarrenNodeInMaintenance", want)
		wantFiring(t, s, "WarrenNodeNotReady", false)
	}
	look(false)
	maintain(http.MethodPut)
	look(true)
	maintain(http.MethodDelete)
	look(false)
}
