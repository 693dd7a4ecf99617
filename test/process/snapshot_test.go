package process

import (
	"fmt"
	"strings"
	"testing"
)

// TestCompactedLog leaves a node behind while the queue's log is cut off behind
// it: it gets a snapshot with the messages that are still there, scattered over
// the old log. Then the cluster depends on it, and at last everything restarts.
func TestCompactedLog(t *testing.T) {
	t.Parallel()
	const (
		messages = 10000
		keep     = 20 // one of so many stays
	)
	c := startCluster(t, 3)
	first := at(t, c.Node(0))
	queue := plainQueue(first, "compacted", nil)
	kill(t, c.Node(2))

	pad := strings.Repeat("x", 2000)
	bodies := make([]string, messages)
	var kept []string
	for i := range bodies {
		bodies[i] = fmt.Sprintf("%06d%s", i, pad)
		if i%keep == 0 {
			kept = append(kept, bodies[i])
		}
	}
	for from := 0; from < messages; from += 1000 {
		first.fill(queue, bodies[from:from+1000]...)
	}
	ch, deliveries := first.consume(queue, 0)
	for i := range messages {
		if d := first.next(deliveries); i%keep != 0 {
			first.noError("ack", d.Ack(false))
		}
	}
	first.noError("close the channel", ch.Close())
	first.ready(queue, len(kept))

	start(t, c.Node(2))
	at(t, c.Node(2)).fill(queue, "caught up") // needs the third node or the second
	kill(t, c.Node(0))
	late := at(t, c.Node(2))
	late.fill(queue, "without the first") // needs the third node
	stopAll(t, c)
	startAll(t, c)
	at(t, c.Node(2)).holds(queue, append(kept, "caught up", "without the first")...)
}
