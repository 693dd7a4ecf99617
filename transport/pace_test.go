package transport

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: many senders together stay within the bound, each gets its turn, and one that is to end does not wait.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, senders, each = 1 << 20, 5, 2 << 20
		p := NewPace(bound)
		var all sync.WaitGroup
		begun := time.Now()
		ended := make([]time.Duration, senders)
		for i := range senders {
			all.Go(func() {
				if !p.Take(each, nil) {
					t.Error("it was not let go")
				}
				ended[i] = time.Since(begun)
			})
		}
		all.Wait()
		took := time.Since(begun)
		if least := time.Duration(senders*each-paceBytes) * time.Second / bound; took < least || took > least+time.Second {
			t.Errorf("%d bytes took %v, want %v", senders*each, took, least)
		}
		for i, e := range ended {
			if e < took*7/10 {
				t.Errorf("sender %d had all its bytes after %v of %v", i, e, took)
			}
		}
		if sent, waited := p.Stats(); sent != senders*each || waited < took {
			t.Errorf("sent %d, waited %v", sent, waited)
		}
		done := make(chan struct{})
		close(done)
		if p.Take(1<<30, done) {
			t.Error("it waited in spite of its end")
		}
	})
	if !NewPace(0).Take(1<<40, nil) || !(*Pace)(nil).Take(1<<40, nil) {
		t.Error("no bound is one")
	}
}
