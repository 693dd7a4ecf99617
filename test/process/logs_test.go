package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/warrenmq/warren/test/cluster"
)

// TestLogIsJSON: every line of a node's log is an object with time, level, message and node, also those that libraries write, from its start
// to its end.
func TestLogIsJSON(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Args = []string{"--log-format", "json", "--log-level", "debug"} })
	startAll(t, c)
	s := at(t, c.Node(0))
	s.fill(plainQueue(s, "logged", nil), "one", "two")
	kill(t, c.Node(1))
	stopNode(t, c.Node(0))
	text, err := os.ReadFile(c.Node(0).LogFile())
	if err != nil {
		t.Fatal(err)
	}
	debug := 0
	for line := range strings.Lines(string(text)) {
		var l struct{ Time, Level, Msg, Node string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Time == "" || l.Level == "" || l.Msg == "" || l.Node != c.Node(0).Name {
			t.Errorf("%q: %v", line, err)
		}
		if l.Level == "DEBUG" {
			debug++
		}
	}
	if debug == 0 {
		t.Error("no line of level debug")
	}
}

// TestLogThatNobodyTakes: a node whose standard error is a pipe that nobody reads goes on, and ends when it is told to.
func TestLogThatNobodyTakes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Args = []string{"--log-level", "debug"} })
	n := c.Node(0)
	if err := os.MkdirAll(n.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(n.LogFile(), 0o644); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(n.LogFile(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(n.LogFile()); err != nil { // who looks for the log at the end finds none, and does not wait for it
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	s := at(t, n)
	for i := range 300 {
		s.fill(plainQueue(s, fmt.Sprint("unheard", i), nil), "one")
	}
	stopNode(t, n)
}
