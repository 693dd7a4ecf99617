package process

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// lossOfOne looks for two nodes whose death takes the majority of a queue and of neither of the two beside it.
func lossOfOne(t *testing.T, c *cluster.Cluster, sets int) (victims [2]*cluster.Node, stays *cluster.Node, set int) {
	t.Helper()
	victims, stays = twoToLose(t, c, func(lost func(string) bool) bool {
		for set = range sets {
			if lost(fmt.Sprint("taken", set)) && !lost(fmt.Sprint("slow", set)) && !lost(fmt.Sprint("fans", set)) {
				return true
			}
		}
		return false
	})
	return victims, stays, set
}

// TestRecoveredTargetGetsLettersOnce has letters that one of their two targets has taken wait for the other one, which is full, while the
// first one loses its majority and is recovered. Under its new id it is the queue that has them: they are not sent to it again, also when
// they are called back because a binding was added.
func TestRecoveredTargetGetsLettersOnce(t *testing.T) {
	t.Parallel()
	const sets, letters = 16, 4
	c := startCluster(t, 5)
	declareFans(at(t, c.Node(0)), sets)
	victims, stays, set := lossOfOne(t, c, sets)
	taken, slow, fan, fans := fmt.Sprint("taken", set), fmt.Sprint("slow", set), fmt.Sprint("fan", set), fmt.Sprint("fans", set)
	s := at(t, stays)
	s.fill(slow, "first")
	s.fill(fans, numbered("letter-", letters)...)
	s.rejectSome(fans, letters)
	s.ready(taken, letters)
	eventually(t, func() error { // that it has them is in the log of their queue
		code, out, failure := ctl(t, stays, "outbox_status", "-s", fans)
		if code != 0 || strings.Contains(out, taken) || !strings.Contains(out, slow) {
			return fmt.Errorf("%d %s %s", code, out, failure)
		}
		return nil
	})
	caughtUp(t, stays, taken)
	recoverWithout(t, stays, victims, taken)
	s = at(t, stays)
	s.ready(taken, letters)
	plainQueue(s, "late", nil)
	s.bind("late", "", fan, nil)
	s.ready("late", letters) // the letters were called back, and have their new ways
	for _, body := range append([]string{"first"}, numbered("letter-", letters)...) {
		s.ready(slow, 1)
		d := s.get(slow)
		if string(d.Body) != body {
			t.Errorf("%q comes in place of %q", d.Body, body)
		}
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if code, out, failure := ctl(t, stays, "outbox_status", "-s"); code != 0 || strings.Contains(out, fans) {
			return fmt.Errorf("%d %s %s", code, out, failure)
		}
		return nil
	})
	s.holdsAll("late", numbered("letter-", letters)...)
	s.holdsAll(taken, numbered("letter-", letters)...)
}

// declareFans declares queues whose dead letters go to two others each, one of which has room for one message.
func declareFans(s *session, sets int) {
	s.Helper()
	for i := range sets {
		taken, slow, fan := fmt.Sprint("taken", i), fmt.Sprint("slow", i), fmt.Sprint("fan", i)
		if err := s.ch.ExchangeDeclare(fan, "fanout", true, false, false, false, nil); err != nil {
			s.Fatal(err)
		}
		plainQueue(s, taken, nil)
		plainQueue(s, slow, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
		plainQueue(s, fmt.Sprint("fans", i), amqp.Table{"x-dead-letter-exchange": fan})
		s.bind(taken, "", fan, nil)
		s.bind(slow, "", fan, nil)
	}
}

// recoverWithout takes two nodes and their disks away for good, and recovers what has lost its majority by that, the queue among it.
func recoverWithout(t *testing.T, stays *cluster.Node, victims [2]*cluster.Node, queue string) {
	t.Helper()
	for _, v := range victims {
		kill(t, v)
		if err := os.RemoveAll(v.DataDir()); err != nil {
			t.Fatal(err)
		}
	}
	lost := "--lost=" + victims[0].Name + "," + victims[1].Name
	for deadline := time.Now().Add(timeoutStart); ; time.Sleep(200 * time.Millisecond) { // until they are known to be down
		done, trouble := recoverQueues(t, stays, lost, "--yes")
		if trouble == "" && slices.ContainsFunc(done, func(q recovered) bool { return q.Name == queue && q.State == "recovered" }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v %s", done, trouble)
		}
	}
}
