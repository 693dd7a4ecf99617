package process

import (
	"encoding/json"
	"os"
	"strings"
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
