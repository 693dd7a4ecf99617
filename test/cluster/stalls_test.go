package cluster

import (
	"testing"
	"time"
)

func TestStallsAreSummed(t *testing.T) {
	begin := time.Now()
	s := &stalls{list: []stall{{begin.Add(-time.Second), time.Second}, {begin.Add(100 * time.Millisecond), 300 * time.Millisecond}, {begin.Add(time.Second), 50 * time.Millisecond}}}
	if sum := s.since(begin); sum != 150*time.Millisecond {
		t.Errorf("stalls of %v, want 150ms", sum)
	}
}
