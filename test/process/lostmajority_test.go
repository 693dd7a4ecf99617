package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// lostPlan says which nodes die, and queues of each kind then.
type lostPlan struct {
	victims [2]*cluster.Node
	stays   *cluster.Node // clients are here
	// lostWork has lost its majority and its target has not, lostDead the other way round, and of both neither is left.
	lostWork, lostDead, both int
}

// twoToLose looks for two nodes whose death is what a test needs: fits is told which queues lose their majority by it.
func twoToLose(t *testing.T, c *cluster.Cluster, fits func(lost func(queue string) bool) bool) (victims [2]*cluster.Node, stays *cluster.Node) {
	t.Helper()
	members := map[string][]string{}
	list, err := patiently(func() ([]cluster.Queue, error) { return c.Node(0).Queues(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list {
		for _, m := range q.Members {
			name, _, _ := strings.Cut(m, "/")
			members[q.Name] = append(members[q.Name], name)
		}
	}
	for x := 3; x < len(c.Nodes()); x++ { // the catalog keeps its majority
		for y := range x {
			victims = [2]*cluster.Node{c.Node(x), c.Node(y)}
			lost := func(queue string) bool {
				return slices.Contains(members[queue], victims[0].Name) && slices.Contains(members[queue], victims[1].Name)
			}
			if fits(lost) {
				at := slices.IndexFunc(c.Nodes(), func(n *cluster.Node) bool { return n != victims[0] && n != victims[1] })
				return victims, c.Node(at)
			}
		}
	}
	t.Fatal("no two nodes are what the test needs")
	return victims, nil
}

// planLoss looks for two nodes whose death takes the majority of a queue, of another one's target, and of both of a third one.
func planLoss(t *testing.T, c *cluster.Cluster, pairs int) (p lostPlan) {
	t.Helper()
	p.victims, p.stays = twoToLose(t, c, func(lost func(string) bool) bool {
		p.lostWork, p.lostDead, p.both = -1, -1, -1
		for i := range pairs {
			switch work, dead := lost(fmt.Sprint("work", i)), lost(fmt.Sprint("dead", i)); {
			case work && dead:
				p.both = i
			case work:
				p.lostWork = i
			case dead:
				p.lostDead = i
			}
		}
		return p.lostWork >= 0 && p.lostDead >= 0 && p.both >= 0
	})
	return p
}

// rejectSome rejects the first messages of a queue.
func (s *session) rejectSome(queue string, n int) {
	s.Helper()
	for range n {
		d := s.get(queue)
		if err := d.Reject(false); err != nil {
			s.Fatal(err)
		}
	}
}

// recovered is what `recover_queues --formatter json` tells.
type recovered struct {
	VHost, Name, State, Keep, Why string
	Messages                      int
	Again                         int `json:"sent_again"`
}

func recoverQueues(t *testing.T, n *cluster.Node, args ...string) (list []recovered, trouble string) {
	t.Helper()
	code, out, failure := ctl(t, n, append([]string{"recover_queues", "-q", "--formatter", "json"}, args...)...)
	if code != 0 {
		return nil, failure
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return list, ""
}

// TestQueueIsRecovered takes two of five nodes away for good, with their disks: queues that had two of their three replicas there
// go on from the third one by `ctl recover_queues`, with all that it had, with their clients, and with the dead letters that were on their
// way from and to them. Other queues come and go all the time. It runs the procedure "Lost majority" of docs/operations.md.
func TestQueueIsRecovered(t *testing.T) {
	t.Parallel()
	const pairs, each, dead = 16, 12, 4
	c := startCluster(t, 5)
	first := at(t, c.Node(0))
	for i := range pairs {
		plainQueue(first, fmt.Sprint("dead", i), nil)
		plainQueue(first, fmt.Sprint("work", i), amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": fmt.Sprint("dead", i)})
	}
	p := planLoss(t, c, pairs)
	s := at(t, p.stays)
	for i := range pairs {
		work := fmt.Sprint("work", i)
		s.fill(work, numbered(work+"-", each)...)
		s.rejectSome(work, dead)
	}
	for i := range pairs {
		s.ready(fmt.Sprint("dead", i), dead)
	}
	lostWork, lostDead, both := fmt.Sprint("work", p.lostWork), fmt.Sprint("work", p.lostDead), fmt.Sprint("work", p.both)
	held := s.channel(s.dial())
	if err := held.Qos(3, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := held.Consume(lostWork, "holds", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	old := []amqp.Delivery{<-deliveries, <-deliveries, <-deliveries}
	for i := range pairs { // the third replicas have everything
		caughtUp(t, p.stays, fmt.Sprint("work", i), fmt.Sprint("dead", i))
	}

	defer comeAndGoAt(t, p)()
	for _, v := range p.victims {
		kill(t, v)
		if err := os.RemoveAll(v.DataDir()); err != nil {
			t.Fatal(err)
		}
	}
	s.rejectSome(lostDead, dead) // these wait for a target that has no majority
	late, err := s.channel(s.dial()).PublishWithDeferredConfirmWithContext(t.Context(), "", lostWork, false, false, message("late"))
	if err != nil {
		t.Fatal(err)
	}
	lost := "--lost=" + p.victims[0].Name + "," + p.victims[1].Name
	var plan []recovered
	trouble := ""
	for deadline := time.Now().Add(timeoutStart); ; time.Sleep(200 * time.Millisecond) { // until they are known to be down
		plan, trouble = recoverQueues(t, p.stays, lost)
		if trouble == "" && !slices.ContainsFunc(plan, func(q recovered) bool { return q.State != "possible" }) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v %s", plan, trouble)
		}
	}
	select {
	case <-late.Done():
		t.Error("a publish was confirmed without a majority")
	default:
	}
	done, trouble := recoverQueues(t, p.stays, lost, "--yes")
	if trouble != "" {
		t.Fatalf("recovered %+v of %+v: %s", done, plan, trouble)
	}
	all := done
	if done, plan = lasting(done), lasting(plan); len(done) != len(plan) || len(done) < 4 {
		t.Fatalf("recovered %+v of %+v", done, plan)
	}
	t.Logf("%d queues are recovered, and %d of those that come and go", len(done), len(all)-len(done))
	for _, q := range all {
		if q.State != "recovered" && (lasts(q) || q.State != "deleted") || q.Again != 0 {
			t.Errorf("%+v", q)
		}
	}
	if again, trouble := recoverQueues(t, p.stays, lost); trouble != "" || len(lasting(again)) != 0 {
		t.Errorf("there is more to recover: %+v %s", again, trouble)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
	defer cancel()
	if ok, err := late.WaitContext(ctx); err != nil || !ok {
		t.Errorf("what was published before the recovery: %v %v", ok, err)
	}
	// What the client held is no more its own; the consumer goes on and gets it again.
	for _, d := range old {
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	var bodies []string
	for range each - dead + 1 {
		select {
		case d := <-deliveries:
			bodies = append(bodies, string(d.Body))
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatalf("the consumer got %q and no more", bodies)
		}
	}
	if want := append(numbered(lostWork+"-", each)[dead:], "late"); !slices.Equal(sorted(bodies), sorted(want)) {
		t.Errorf("the consumer got %q, want %q", bodies, want)
	}
	// Letters go on between queues of each kind, once each.
	s.rejectSome(both, dead)
	s.ready(strings.Replace(both, "work", "dead", 1), 2*dead)
	s.ready(strings.Replace(lostDead, "work", "dead", 1), 2*dead)
	for i := range pairs {
		work, letters := fmt.Sprint("work", i), dead
		if work == lostDead || work == both {
			letters *= 2
		}
		s.holdsAll(fmt.Sprint("dead", i), numbered(work+"-", each)[:letters]...)
		if work == lostWork {
			s.ready(work, 0)
			continue
		}
		s.holdsAll(work, numbered(work+"-", each)[letters:]...)
	}
	regrown(t, p, done)
}

// comeAndGoAt has queues come and go at the nodes that stay; some have replicas on the others when these are lost. What it returns ends that.
func comeAndGoAt(t *testing.T, p lostPlan) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	conn := at(t, p.stays).dial()
	for i := range 8 {
		work.Go(func() { comeAndGo(ctx, conn, fmt.Sprint("goes", i)) })
	}
	return func() {
		cancel()
		conn.Close() // a call may wait for what does not come any more
		work.Wait()
	}
}

// lasts tells whether a queue is none of comeAndGoAt's.
func lasts(q recovered) bool { return !strings.HasPrefix(q.Name, "goes") }

func lasting(list []recovered) []recovered {
	return slices.DeleteFunc(slices.Clone(list), func(q recovered) bool { return !lasts(q) })
}

// regrown waits until queues that were recovered have as many replicas as before, on the nodes that are left.
func regrown(t *testing.T, p lostPlan, recovered []recovered) {
	t.Helper()
	short := map[string]bool{}
	for _, q := range recovered {
		short[q.Name] = true
	}
	for deadline := time.Now().Add(timeoutStart); ; time.Sleep(100 * time.Millisecond) {
		list, err := patiently(func() ([]cluster.Queue, error) { return p.stays.Queues(t.Context()) })
		if err != nil {
			t.Fatal(err)
		}
		var still []string
		for _, q := range list {
			lost := func(m string) bool {
				return strings.HasPrefix(m, p.victims[0].Name+"/") || strings.HasPrefix(m, p.victims[1].Name+"/")
			}
			if short[q.Name] && (len(q.Members) != 3 || slices.ContainsFunc(q.Members, lost)) {
				still = append(still, fmt.Sprintf("%s is on %v", q.Name, q.Members))
			}
		}
		if len(still) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d queues have not regrown: %s", len(still), len(short), strings.Join(still, "; "))
		}
	}
}

// caughtUp waits until all replicas of queues have what their leaders have.
func caughtUp(t *testing.T, n *cluster.Node, queues ...string) {
	t.Helper()
	for _, queue := range queues {
		eventually(t, func() error {
			all := quorumStatus(t, n, queue)
			for _, l := range all {
				if fmt.Sprint(l.Lag) != "0" {
					return fmt.Errorf("%s: %v", queue, all)
				}
			}
			return nil
		})
	}
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
