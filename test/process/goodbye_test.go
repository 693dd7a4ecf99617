package process

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
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
	suspected := func(node int) int {
		t.Helper()
		return said(t, c.Node(node), "node is suspected")
	}
	begun, before := time.Now(), [2]int{suspected(0), suspected(1)} // a late one may have been
	stopNode(t, c.Node(2))
	for i := range 2 {
		eventually(t, func() error {
			if !saw(i, "state=dead refused=true left=true") {
				return errors.New("it has heard no goodbye")
			}
			return nil
		})
		if suspected(i) > before[i] && cluster.Stalled(begun) < 300*time.Millisecond {
			t.Errorf("%s suspects a node that said goodbye", c.Node(i).Name)
		}
	}
	start(t, c.Node(2))
	kill(t, c.Node(2))
	for i := range 2 {
		eventually(t, func() error {
			if !saw(i, "left=false") || suspected(i) == before[i] {
				return errors.New("it has not noticed the death")
			}
			return nil
		})
	}
}
