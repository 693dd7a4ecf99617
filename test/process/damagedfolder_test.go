package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestDamagedFolders damages files of a stopped node's folder, one after the other. The node does not start with less than it had confirmed: it ends, without
// a trace of a stack, and names the file. With an empty folder it is filled from the others, and nothing is missing.
func TestDamagedFolders(t *testing.T) {
	t.Parallel()
	const messages = 60
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	name := plainQueue(s, "kept", amqp.Table{"x-queue-type": "quorum"})
	bodies := make([]string, messages)
	for i := range bodies {
		bodies[i] = strings.Repeat("x", 64<<10)
	}
	s.fill(name, bodies...)
	leader, others := leaderOf(t, c, name)
	victim := others[0]
	s.noError("close", s.conn.Close())
	stopNode(t, victim)
	first := filepath.Join(victim.DataDir(), "log", "00000001.seg")
	db := filepath.Join(victim.DataDir(), "catalog", "log.db")
	page := os.Getpagesize()
	for what, d := range map[string]struct {
		file   string
		change func([]byte) []byte
	}{
		"a segment is emptied":        {first, func([]byte) []byte { return nil }},
		"a segment is cut":            {first, func(b []byte) []byte { return b[:len(b)/2] }},
		"a segment's beginning":       {first, func(b []byte) []byte { clear(b[:2*page]); return b }},
		"the catalog is emptied":      {db, func([]byte) []byte { return nil }},
		"the catalog is cut":          {db, func(b []byte) []byte { return b[:3*page] }},
		"all pages of the catalog":    {db, func(b []byte) []byte { clear(b[2*page:]); return b }},
		"the node's identity is gone": {filepath.Join(victim.DataDir(), "node.json"), func([]byte) []byte { return nil }},
	} {
		whole, err := os.ReadFile(d.file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.file, d.change(slices.Clone(whole)), 0o600); err != nil {
			t.Fatal(err)
		}
		refuses(t, victim, what, filepath.Base(d.file))
		if err := os.WriteFile(d.file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(victim.DataDir(), victim.DataDir()+"-aside"); err != nil {
		t.Fatal(err)
	}
	start(t, victim)
	await(t, timeoutStart, "the queue has its replica again", func() bool {
		return slices.Equal(members(t, leader, name), []string{"node1", "node2", "node3"})
	})
	at(t, victim).ready(name, messages)
}

// refuses starts a node that must end with one line which names a file.
func refuses(t *testing.T, n *cluster.Node, what, file string) {
	t.Helper()
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	code, err := n.Wait(ctx)
	if err != nil {
		t.Errorf("%s: the node runs\n%s", what, n.LogTail())
		kill(t, n)
		return
	}
	lines := strings.Split(strings.TrimSpace(n.LogTail()), "\n")
	last := lines[len(lines)-1]
	if code != 1 || n.Crash() != "" || !strings.Contains(last, file) || !strings.Contains(last, "aside") && !strings.Contains(last, "wipe") {
		t.Errorf("%s: exit code %d, %q", what, code, last)
	}
}

// TestLostAndExchangedSegments takes a file out of the log of a stopped node, and then exchanges two for each other. What is not there is filled from the
// other nodes; files under each other's names are refused, and stay.
func TestLostAndExchangedSegments(t *testing.T) {
	t.Parallel()
	const messages = 60
	c := startCluster(t, 3)
	untilFlags(t, c, "enabled enabled")
	s := at(t, c.Node(0))
	name := plainQueue(s, "kept", amqp.Table{"x-queue-type": "quorum"})
	s.fill(name, slices.Repeat([]string{strings.Repeat("x", 64<<10)}, messages)...)
	id := strconv.FormatUint(queueID(t, c, name), 10)
	_, others := leaderOf(t, c, name)
	victim := others[0]
	s.noError("close", s.conn.Close())
	stopNode(t, victim)
	path := func(name string) string { return filepath.Join(victim.DataDir(), "log", name) }
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(path(from), path(to)); err != nil {
			t.Fatal(err)
		}
	}
	const one, two = "00000001.seg", "00000002.seg"
	exchange := func() {
		rename(one, "aside")
		rename(two, one)
		rename("aside", two)
	}
	exchange()
	refuses(t, victim, "segments are exchanged", two)
	exchange()
	rename(one, "aside")
	start(t, victim)
	untilLog(t, victim, "a damaged replica begins anew")
	await(t, timeoutStart, "the replica is filled", func() bool {
		var q inspected
		return inspectJSON(t, victim, &q, "queue", id) && q.Messages == messages
	})
}
