package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// goesOn is what `recover_cluster --formatter json` tells of a node.
type goesOn struct {
	Node, State string
	Term, Index uint64
	Keep        bool
}

// recoverCluster asks on a node's control socket.
func recoverCluster(t *testing.T, n *cluster.Node, args ...string) (list []goesOn, trouble string) {
	t.Helper()
	socket := "unix://" + filepath.Join(n.DataDir(), "control.sock")
	code, out, failure := ctl(t, n, append([]string{"--url", socket, "-q", "--formatter", "json", "recover_cluster"}, args...)...)
	if code != 0 {
		return nil, failure
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return list, ""
}

// publishUntilEnd publishes with confirms to queues in turn, until the connection ends. It sends how many each queue has confirmed. It returns
// when each has some.
func publishUntilEnd(s *session, queues []string) <-chan map[string][]string {
	s.Helper()
	var rounds atomic.Int64
	ch := s.channel(s.dial())
	if err := ch.Confirm(false); err != nil {
		s.Fatal(err)
	}
	done := make(chan map[string][]string, 1)
	go func() { // ends with the connection
		confirmed := map[string][]string{}
		defer func() { done <- confirmed }()
		for i := 0; ; i++ {
			queue, body := queues[i%len(queues)], fmt.Sprint("load-", i)
			c, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, false, false, message(body))
			if err != nil {
				return
			}
			select {
			case <-c.Done():
				if !c.Acked() {
					return
				}
				confirmed[queue] = append(confirmed[queue], body)
				rounds.Store(int64((i + 1) / len(queues)))
			case <-time.After(timeoutStart):
				return
			}
		}
	}()
	s.until("each queue to have confirmed some", func() bool { return rounds.Load() > 2 })
	return done
}

// TestClusterIsRecovered kills three of the catalog's five voters for good, with their disks, while clients publish: the other two of five nodes, one of which
// was started again meanwhile, go on by `ctl recover_cluster` with all that they have. A lost folder that comes back is refused, and new nodes
// join under the old names. It runs the procedure "Lost majority" of docs/operations.md.
func TestClusterIsRecovered(t *testing.T) {
	t.Parallel()
	const pairs, each, dead = 8, 6, 2
	c := startCluster(t, 5)
	untilVoters(t, c.Node(0), 5)
	lost, left := c.Nodes()[:3], c.Nodes()[3:]
	s := at(t, left[1])
	for i := range pairs {
		plainQueue(s, fmt.Sprint("dead", i), nil)
		plainQueue(s, fmt.Sprint("work", i), amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": fmt.Sprint("dead", i)})
	}
	for i := range pairs {
		work := fmt.Sprint("work", i)
		s.fill(work, numbered(work+"-", each)...)
		s.rejectSome(work, dead)
		s.ready(fmt.Sprint("dead", i), dead)
	}
	names := "--lost=" + lost[0].Name + "," + lost[1].Name + "," + lost[2].Name
	if _, trouble := recoverCluster(t, left[1], names, "--yes"); !strings.Contains(trouble, "is linked to it") && !strings.Contains(trouble, "has a leader") {
		t.Fatalf("a cluster that is well: %q", trouble)
	}
	for i := range pairs { // all replicas have everything
		caughtUp(t, left[1], fmt.Sprint("work", i), fmt.Sprint("dead", i))
	}
	safe := queuesOn(t, left[1], left, 2)
	load := publishUntilEnd(s, safe)
	old := filepath.Join(lost[0].Dir, "old")
	for _, v := range lost {
		kill(t, v)
	}
	if err := errors.Join(os.Rename(lost[0].DataDir(), old), os.RemoveAll(lost[1].DataDir()), os.RemoveAll(lost[2].DataDir())); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	kill(t, left[0])
	if err := left[0].Launch(); err != nil { // it will wait for the catalog
		t.Fatal(err)
	}
	var plan []goesOn
	trouble := ""
	for deadline := time.Now().Add(timeoutStart); ; time.Sleep(200 * time.Millisecond) {
		if plan, trouble = recoverCluster(t, left[0], names); trouble == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(trouble)
		}
	}
	if keep := slices.IndexFunc(plan, func(n goesOn) bool { return n.Keep }); len(plan) != 5 || keep < 0 || plan[keep].State != "goes_on" {
		t.Fatalf("plan %+v", plan)
	}
	if _, trouble := recoverCluster(t, left[0], "--lost="+lost[0].Name); !strings.Contains(trouble, lost[1].Name) {
		t.Errorf("a node that was not named: %q", trouble)
	}
	begun := time.Now()
	if done, trouble := recoverCluster(t, left[0], names, "--yes"); trouble != "" || len(done) != 5 {
		t.Fatalf("%+v %s", done, trouble)
	}
	confirmed := <-load
	var queues []recovered
	for deadline := time.Now().Add(timeoutStart); ; time.Sleep(200 * time.Millisecond) {
		if queues, trouble = recoverQueues(t, left[1], names, "--yes"); trouble == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s\n%s", trouble, c.Logs())
		}
	}
	for _, q := range queues {
		if q.State != "recovered" {
			t.Errorf("%+v", q)
		}
	}
	waitReady(t, left...)
	t.Logf("all nodes are ready %v after the command, %d queues were recovered, %d had a majority", time.Since(begun), len(queues), len(safe))

	// The disk that was said to be lost comes back: it is let in neither as what it was nor as a new node.
	if err := os.Rename(old, lost[0].DataDir()); err != nil {
		t.Fatal(err)
	}
	if err := lost[0].Launch(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if code, err := lost[0].Wait(ctx); err != nil || code != 1 || !strings.Contains(lost[0].LogTail(), "goes on as") {
		t.Fatalf("a lost node that comes back: exit code %d, %v\n%s", code, err, lost[0].LogTail())
	}
	if err := os.RemoveAll(lost[0].DataDir()); err != nil {
		t.Fatal(err)
	}
	for _, v := range lost {
		if err := v.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	waitReady(t, c.Nodes()...)

	s = at(t, lost[0])
	for i := range pairs {
		work := fmt.Sprint("work", i)
		bodies := numbered(work+"-", each)[dead:]
		got := s.drain(work)
		for _, body := range append(bodies, confirmed[work]...) {
			if n := count(got, body); n != 1 {
				t.Errorf("%s has %q %d times", work, body, n)
			}
		}
		s.holdsAll(fmt.Sprint("dead", i), numbered(work+"-", each)[:dead]...)
	}
	for _, queue := range safe {
		if len(confirmed[queue]) == 0 {
			t.Errorf("nothing was published to %s", queue)
		}
	}
	// Everything can be declared, and dies, as before.
	plainQueue(s, "new", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead0"})
	s.fill("new", "again")
	s.rejectSome("new", 1)
	s.ready("dead0", 1)
}

// TestLastNodeGoesOn kills two of three nodes for good: the third one, started again, goes on alone with all its queues, and is joined by new ones.
func TestLastNodeGoesOn(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	last, lost := c.Node(1), []*cluster.Node{c.Node(0), c.Node(2)}
	s := at(t, last)
	plainQueue(s, "dead", nil)
	plainQueue(s, "work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
	s.fill("work", numbered("m-", 9)...)
	s.rejectSome("work", 3)
	s.ready("dead", 3)
	caughtUp(t, last, "work", "dead")
	for _, v := range c.Nodes() {
		kill(t, v)
	}
	for _, v := range lost {
		if err := os.RemoveAll(v.DataDir()); err != nil {
			t.Fatal(err)
		}
	}
	if err := last.Launch(); err != nil {
		t.Fatal(err)
	}
	names := "--lost=" + lost[0].Name + "," + lost[1].Name
	trouble := ""
	for deadline := time.Now().Add(timeoutStart); ; time.Sleep(100 * time.Millisecond) {
		if _, trouble = recoverCluster(t, last, names, "--yes"); trouble == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s\n%s", trouble, last.LogTail())
		}
	}
	var queues []recovered
	for deadline := time.Now().Add(timeoutStart); ; time.Sleep(100 * time.Millisecond) {
		if queues, trouble = recoverQueues(t, last, names, "--yes"); trouble == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s\n%s", trouble, last.LogTail())
		}
	}
	waitReady(t, last)
	for _, v := range lost {
		if err := v.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	waitReady(t, lost...)
	t.Logf("recovered %+v", queues)
	s = at(t, lost[0])
	s.ready("dead", 3)
	s.rejectSome("work", 6)
	s.holdsAll("dead", numbered("m-", 9)...)
	// Over the network nobody is asked to do that.
	resp, err := http.Post(last.HTTP()+"/api/warren/recovery/cluster", "application/json", strings.NewReader(`{"lost":["node1"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("asked over the network: %s, %v", resp.Status, err)
	}
}

func count(list []string, s string) (n int) {
	for _, x := range list {
		if x == s {
			n++
		}
	}
	return n
}

func waitReady(t *testing.T, nodes ...*cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	for _, n := range nodes {
		if err := n.WaitReady(ctx); err != nil {
			t.Fatalf("%s: %v\n%s", n.Name, err, n.LogTail())
		}
	}
}

// queuesOn are the queues called work that have at least so many replicas on the given nodes.
func queuesOn(t *testing.T, at *cluster.Node, nodes []*cluster.Node, replicas int) (names []string) {
	t.Helper()
	list, err := patiently(func() ([]cluster.Queue, error) { return at.Queues(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list {
		there := 0
		for _, m := range q.Members {
			name, _, _ := strings.Cut(m, "/")
			if slices.ContainsFunc(nodes, func(n *cluster.Node) bool { return n.Name == name }) {
				there++
			}
		}
		if there >= replicas && strings.HasPrefix(q.Name, "work") {
			names = append(names, q.Name)
		}
	}
	return names
}
