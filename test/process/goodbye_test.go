package process

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// verdictsOn finds the verdicts on the node of that name in another's log: what it is, and whether it said goodbye.
func verdictsOn(name string) *regexp.Regexp {
	return regexp.MustCompile(`msg="node verdict" .*peer=` + regexp.QuoteMeta(name) + `/\S+ state=(\S+) refused=\S+ (left=\S+)`)
}

// TestStopSaysGoodbye: a node that is stopped tells the others, who neither suspect it nor ask each other; a killed one they find out about.
func TestStopSaysGoodbye(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	notes := func(node, of int, state, left string) { // waits until one says so of the other
		t.Helper()
		verdicts := verdictsOn(c.Node(of).Name)
		eventually(t, func() error {
			all := verdicts.FindAllSubmatch(logOf(t, c.Node(node)), -1)
			if n := len(all); n == 0 || string(all[n-1][1]) != state || string(all[n-1][2]) != left {
				return fmt.Errorf("%s does not take %s for %s, %s: %q", c.Node(node).Name, c.Node(of).Name, state, left, all)
			}
			return nil
		})
	}
	for i := range 2 { // nodes that do not watch each other yet, in the first moments of a cluster, say no goodbye
		notes(i, 2, "alive", "left=false")
		notes(2, i, "alive", "left=false")
	}
	suspected := func(node int) int {
		t.Helper()
		return said(t, c.Node(node), "node is suspected")
	}
	begun, before := time.Now(), [2]int{suspected(0), suspected(1)} // a late one may have been
	stopNode(t, c.Node(2))
	for i := range 2 {
		notes(i, 2, "dead", "left=true")
		if suspected(i) > before[i] && cluster.Stalled(begun) < 300*time.Millisecond {
			t.Errorf("%s suspects a node that said goodbye", c.Node(i).Name)
		}
	}
	start(t, c.Node(2))
	for i := range 2 { // one that has not been seen again is dead, whatever becomes of it
		notes(i, 2, "alive", "left=false")
	}
	kill(t, c.Node(2))
	for i := range 2 {
		notes(i, 2, "dead", "left=false")
		if suspected(i) == before[i] {
			t.Errorf("%s has not suspected a node that was killed", c.Node(i).Name)
		}
	}
}
