package process

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// ctl runs `warren ctl` of the tested binary against a node. Any goroutine may call it: what keeps it from running is an error of the test and the exit code -1.
func ctl(t *testing.T, n *cluster.Node, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary, err := shared.binary()
	if err != nil {
		t.Error(err)
		return -1, "", err.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute) // cleanups too
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"ctl", "--url", n.HTTP()}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failed.ExitCode(), out.String(), errs.String()
	}
	if err != nil {
		t.Error(err)
		return -1, out.String(), err.Error()
	}
	return 0, out.String(), errs.String()
}

// ctlCluster is the shared cluster of three.
func ctlCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	needWarren(t)
	return sharedCluster(t, 3)
}

// mustCtl is ctl that has to succeed. Somebody who is told that the node cannot at the moment asks again.
func mustCtl(t *testing.T, n *cluster.Node, args ...string) string {
	t.Helper()
	for end := time.Now().Add(timeoutReply); ; time.Sleep(100 * time.Millisecond) {
		code, out, failure := ctl(t, n, args...)
		if code == 0 {
			return out
		}
		if code != exitUnavailable || time.Now().After(end) {
			t.Fatalf("warren ctl %q: exit code %d: %s", args, code, failure)
		}
	}
}

// exitUnavailable is the exit code of ctl when the node does not answer, or cannot at the moment.
const exitUnavailable = 69

// untilSays waits until a verb's output has a text. What other nodes know of comes a moment later than they know it, and
// not at all from one that does not answer in time.
func untilSays(t *testing.T, n *cluster.Node, want string, args ...string) (out string) {
	t.Helper()
	for end := time.Now().Add(timeoutReply); ; time.Sleep(50 * time.Millisecond) {
		if out = mustCtl(t, n, args...); strings.Contains(out, want) {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("warren ctl %q: %q is not in %q", args, want, out)
		}
	}
}

// TestCtlListQueues asks each node for the queues of the cluster, with the real binary.
func TestCtlListQueues(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	s := at(t, c.Node(0))
	q := s.queue("listed", amqp.Table{"x-queue-type": "quorum"})
	s.fill(q, "one", "two", "three")
	s.get(q)
	for i := range 3 {
		untilSays(t, c.Node(i), q+"\t3\t2\t1\t0\tquorum\n",
			"list_queues", "-q", "name", "messages", "messages_ready", "messages_unacknowledged", "consumers", "type")
	}
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"list_queues", "-p", "nowhere"}, 65},
		{[]string{"list_queues", "colour"}, 64},
		{[]string{"list_queues", "--password", "wrong"}, 77},
		{[]string{"nonsense"}, 64},
	} {
		if code, out, failure := ctl(t, c.Node(0), tc.args...); code != tc.code || failure == "" || out != "" {
			t.Errorf("%q: exit code %d, want %d; %q %q", tc.args, code, tc.code, out, failure)
		}
	}
}

// TestNamesWithSlash deletes what is beside another of the same name without the slash, and that stays.
func TestNamesWithSlash(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	s := at(t, c.Node(0))
	queue := s.name("slash")
	for _, name := range []string{queue, queue + "/", "..", "."} {
		if _, err := s.ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{queue + "/", "..", "."} {
		mustCtl(t, c.Node(1), "delete_queue", "-q", name)
		mustCtl(t, c.Node(1), "purge_queue", "-q", queue)
	}
	list := mustCtl(t, c.Node(1), "list_queues", "-s", "name")
	if lines := strings.Split(list, "\n"); slices.Contains(lines, queue+"/") || slices.Contains(lines, ".") || slices.Contains(lines, "..") {
		t.Errorf("left: %q", lines)
	}
	if code, _, failure := ctl(t, c.Node(1), "delete_queue", "-q", queue+"/"); code != 65 || !strings.Contains(failure, "no queue") {
		t.Errorf("again: %d %s", code, failure)
	}
	mustCtl(t, c.Node(1), "purge_queue", "-q", queue)
}
