package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// inspect runs `warren inspect` of the tested binary on a node's folder.
func inspect(t *testing.T, n *cluster.Node, what string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"inspect", what, n.DataDir()}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failed.ExitCode(), out.String(), errs.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, out.String(), errs.String()
}

// inspectJSON decodes a report; false if there was none.
func inspectJSON(t *testing.T, n *cluster.Node, to any, what string, args ...string) bool {
	t.Helper()
	code, out, failure := inspect(t, n, what, append(args, "--json")...)
	if code != 0 {
		t.Logf("inspect %s %v: %d, %s", what, args, code, failure)
		return false
	}
	if err := json.Unmarshal([]byte(out), to); err != nil {
		t.Fatalf("inspect %s: %v in %s", what, err, out)
	}
	return true
}

// inspected is what the tests look at of the reports of queues and messages.
type inspected struct {
	Name     string
	Messages int
	Outbox   int
	Parked   int
	Certain  uint64
}

type inspectedMessage struct {
	Payload, State, Reason, Exchange string
	Keys                             []string `json:"routing_keys"`
}

// TestInspect reads the folders of three nodes while they run, and when they are stopped: what is in a queue and its outbox, and the
// catalog. Nothing in the folders changes by it.
func TestInspect(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	name := plainQueue(s, "looked.at", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "amq.direct", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"})
	s.fill(name, numbered("m", 50)...)
	ch, deliveries := s.consume(name, 0)
	for i := range 15 {
		if d := s.next(deliveries); i < 10 {
			s.noError("ack", d.Ack(false))
		} else {
			s.noError("reject", d.Reject(false)) // nothing is bound: the letters are parked
		}
	}
	s.noError("close the channel", ch.Close())
	s.ready(name, 35)
	id := strconv.FormatUint(queueID(t, c, name), 10)

	for _, n := range c.Nodes() {
		var q inspected
		s.until("the folder of a running node shows the queue", func() bool {
			q = inspected{}
			return inspectJSON(t, n, &q, "queue", id) && q.Name == name && q.Messages == 35 && q.Outbox == 5 && q.Parked == 5
		}, &q)
	}
	if code, _, failure := inspect(t, c.Node(0), "catalog"); code != 1 || !strings.Contains(failure, "in use by a running node") {
		t.Errorf("the catalog of a running node: %d, %s", code, failure)
	}
	// The leader last: a new one would try the parked letters again.
	leader, others := leaderOf(t, c, name)
	for _, n := range append(others, leader) {
		stopNode(t, n)
	}
	for _, n := range c.Nodes() {
		before := listing(t, n.DataDir())
		inspectStopped(t, n, id, name)
		if after := listing(t, n.DataDir()); after != before {
			t.Errorf("looking changed the folder: before\n%s\nafter\n%s", before, after)
		}
	}
	for _, bad := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"queue", "12345678"}, 1, "no replica of this queue here"},
		{[]string{"queue", "none"}, 2, "want a number"},
		{[]string{"queue"}, 2, "usage: warren inspect queue DIR ID"},
		{[]string{"log", id, "--limit", "-1"}, 2, "want 0 or more"},
	} {
		if code, _, failure := inspect(t, c.Node(0), bad.args[0], bad.args[1:]...); code != bad.code || !strings.Contains(failure, bad.want) {
			t.Errorf("%v: %d, %s", bad.args, code, failure)
		}
	}
}

// queueID finds a queue's id.
func queueID(t *testing.T, c *cluster.Cluster, name string) uint64 {
	t.Helper()
	q, err := c.Queue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return q.ID
}

func inspectStopped(t *testing.T, n *cluster.Node, id, name string) {
	t.Helper()
	var messages, letters []inspectedMessage
	if !inspectJSON(t, n, &messages, "messages", id) || !inspectJSON(t, n, &letters, "outbox", id) {
		t.Fatal("no reports")
	}
	if len(messages) != 35 || messages[0].Payload != "m16" || messages[34].Payload != "m50" || messages[0].Keys[0] != name {
		t.Errorf("%d messages: %+v", len(messages), messages)
	}
	if len(letters) != 5 || letters[0].Payload != "m11" || letters[0].Reason != "rejected" || letters[0].State != "parked-unrouted" {
		t.Errorf("%d letters: %+v", len(letters), letters)
	}
	if inspectJSON(t, n, &messages, "messages", id, "--limit", "2", "--from", "20"); len(messages) != 2 || messages[0].Payload != "m20" {
		t.Errorf("two from the 20th on: %+v", messages)
	}
	var replicas []struct {
		Name    string
		Term    uint64
		Servers []struct{ ID, Suffrage string }
		Damage  string
	}
	if !inspectJSON(t, n, &replicas, "raft", id) || len(replicas) != 1 || replicas[0].Name != name || len(replicas[0].Servers) != 3 || replicas[0].Term == 0 || replicas[0].Damage != "" {
		t.Errorf("raft: %+v", replicas)
	}
	var catalog struct {
		Nodes, Servers []struct{ ID string }
		Queues         []struct {
			ID      uint64
			Name    string
			Members []string
		}
	}
	if !inspectJSON(t, n, &catalog, "catalog") || len(catalog.Nodes) != 3 || len(catalog.Servers) != 3 || len(catalog.Queues) != 1 || catalog.Queues[0].Name != name {
		t.Errorf("catalog: %+v", catalog)
	}
	for what, want := range map[string]string{"log": "publish", "segments": "entry", "identity": `"storage"`, "queue": "machine time", "snapshot": "\n", "messages": "ATTEMPTS", "outbox": "rejected", "raft": name, "catalog": name} {
		args := []string{id}
		if what == "segments" || what == "identity" || what == "catalog" {
			args = nil
		}
		if code, out, failure := inspect(t, n, what, args...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("inspect %s: %d, %s%s", what, code, out, failure)
		}
	}
}

// listing names everything in a folder with its size and time.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			b.WriteString(path + " " + strconv.FormatInt(info.Size(), 10) + " " + info.ModTime().String() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
