package process

import (
	"fmt"
	"regexp"
	"testing"
	"time"
)

// TestFastRestartGivesBackWhatClientsHeld kills a node whose clients hold messages of queues that another one leads, and starts it again while nobody
// can judge it dead, as the third one is away: what they held goes back all the same.
func TestFastRestartGivesBackWhatClientsHeld(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	const queues = 8
	home, victim := c.Node(0), c.Node(1)
	s := at(t, home)
	_, ch := mustDial(t, victim)
	for i := range queues {
		queue := plainQueue(s, fmt.Sprint("held", i), nil)
		s.fill(queue, "m")
		deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-deliveries:
		case <-time.After(timeoutReply):
			t.Fatal("nothing came")
		}
	}
	kill(t, c.Node(2))
	time.Sleep(2 * time.Second) // its leaderships have moved
	kill(t, victim)
	start(t, victim)
	begun := time.Now()
	for i := range queues {
		s.ready(fmt.Sprint("held", i), 1)
	}
	t.Logf("back %v after the start", time.Since(begun))
	if line := regexp.MustCompile(`node verdict".*peer=` + victim.Name + `/\S+ state=dead refused=true`).Find(logOf(t, home)); line != nil {
		t.Errorf("it was missed: %s", line)
	}
	if !regexp.MustCompile(`node verdict".*peer=` + victim.Name + `/\S+ state=dead refused=false`).Match(logOf(t, home)) {
		t.Error("its restart was not noticed")
	}
}
