package main

import (
	"testing"
	"time"
)

var sink [][]byte

// TestTrim shows that memory goes back to the system once a node has been idle for a while, not while it works and not
// all the time.
func TestTrim(t *testing.T) {
	trims, sheds := 0, 0
	now := time.Unix(1000, 0)
	percent := 100
	tr := trimmer{
		shed: func() { sheds++ }, free: func() { trims++ },
		percent: func(p int) int { before := percent; percent = p; return before },
	}
	work := func() {
		for range 64 {
			sink = append(sink, make([]byte, 1<<20))
		}
		sink = nil
	}
	pass := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(alarmPeriod) {
			tr.look(now)
		}
	}
	for range 10 {
		work()
		pass(trimPeriod)
	}
	if trims != 0 || percent != 100 {
		t.Fatalf("%d trims under load, GOGC %d", trims, percent)
	}
	// It leaves garbage, unless the runtime has collected that meanwhile and given it back: then there is nothing to trim.
	for tries := 0; trims == 0 && tries < 20; tries++ {
		work()
		pass(2 * trimQuiet)
	}
	if trims != 1 || sheds != 1 {
		t.Fatalf("%d trims after the load, caches shed %d times, want 1", trims, sheds)
	}
	pass(trimPause / 2)
	if trims != 1 {
		t.Fatalf("%d trims right after one", trims)
	}
	for range 8 { // garbage, and less in a period than work leaves
		sink = append(sink[:0], make([]byte, 3<<20))
		pass(trimPause / 4)
	}
	sink = nil
	pass(trimPause)
	if trims != 1 {
		t.Fatalf("%d trims, and no work since the first", trims)
	}
	for tries := uint64(0); trims == 1 && tries < 20; tries++ { // until the garbage is found before the runtime gives it back
		for range 8 {
			sink = append(sink[:0], make([]byte, 3<<20))
			pass(trimPeriod)
		}
		sink = nil
		tr.freed(now, tries+1)
		pass(2 * trimQuiet)
	}
	if trims != 2 {
		t.Fatalf("%d trims after replicas have fallen asleep", trims)
	}
	if percent != trimPercent {
		t.Fatalf("GOGC of an idle node is %d", percent)
	}
	work()
	pass(trimPeriod)
	if percent != 100 {
		t.Fatalf("GOGC of a node at work again is %d", percent)
	}
	for _, own := range []int{-1, trimPercent - 5} { // what the operator has set
		percent = own
		pass(2 * trimQuiet)
		if percent != own {
			t.Fatalf("GOGC %d became %d", own, percent)
		}
		work()
		pass(trimPeriod)
		if percent != own {
			t.Fatalf("GOGC %d became %d after work", own, percent)
		}
	}
}
