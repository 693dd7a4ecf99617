package process

import (
	"fmt"
	"testing"
)

// TestFastRestart kills the node that leads a queue and starts it again at once,
// before anybody can have judged it dead. Its leaderships, the catalog's among
// them, must not wait for timers of many seconds.
func TestFastRestart(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	for round := range 3 {
		t.Run(fmt.Sprint(round+1), func(t *testing.T) {
			queue := plainQueue(at(t, c.Node(round)), fmt.Sprint("fast", round+1), nil)
			leader, others := leaderOf(t, c, queue)
			l := startLoad(t, queue, others[0].URL(), []string{others[0].URL(), others[1].URL()}, 500)
			l.progress(300)
			kill(t, leader)
			start(t, leader)
			l.progress(1000)
			plainQueue(at(t, others[0]), fmt.Sprint("declared after ", round+1), nil)
			confirms, deliveries := l.finish()
			l.pauses("restart", confirms, deliveries)
		})
	}
}
