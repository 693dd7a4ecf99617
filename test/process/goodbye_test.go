package process

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestStopSaysGoodbye: a node that is stopped tells the others, who neither suspect it nor ask each other; a killed one they find out about.
func TestStopSaysGoodbye(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	saw := func(node int, what string) bool {
		t.Helper()
		text, err := os.ReadFile(c.Node(node).LogFile())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), what)
	}
	stopNode(t, c.Node(2))
	for i := range 2 {
		eventually(t, func() error {
			if !saw(i, "state=dead refused=true left=true") {
				return errors.New("it has heard no goodbye")
			}
			return nil
		})
		if saw(i, "node is suspected") {
			t.Errorf("%s suspects a node that said goodbye", c.Node(i).Name)
		}
	}
	start(t, c.Node(2))
	kill(t, c.Node(2))
	for i := range 2 {
		eventually(t, func() error {
			if !saw(i, "left=false") || !saw(i, "node is suspected") {
				return errors.New("it has not noticed the death")
			}
			return nil
		})
	}
}
