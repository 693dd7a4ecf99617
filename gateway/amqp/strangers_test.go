package amqp

import (
	"testing"
	"time"
)

// TestStrangersLogIsPaced: what connections without a login have the node log is bounded, and what is left out is counted.
func TestStrangersLogIsPaced(t *testing.T) {
	var s strangers
	now, logged, told := time.Now(), 0, uint64(0)
	const lines, seconds = 10_000, 5
	for range seconds {
		for range lines {
			if missed, ok := s.may(now); ok {
				logged++
				told += missed
			}
			now = now.Add(time.Second / lines)
		}
	}
	if most := strangerLines + seconds*int(time.Second/strangerEvery); logged < most-1 || logged > most+1 {
		t.Errorf("%d lines were logged, want %d", logged, most)
	}
	now = now.Add(time.Minute)
	missed, ok := s.may(now)
	if told += missed; !ok || told+uint64(logged) != seconds*lines {
		t.Errorf("%d lines were logged and %d told of, of %d (%t)", logged, told, seconds*lines, ok)
	}
	for i := range strangerLines - 1 {
		if missed, ok := s.may(now); !ok || missed != 0 {
			t.Fatalf("after a quiet minute line %d is not logged (%d missed)", i+2, missed)
		}
	}
}
