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
	if trims != 0 || percent < 100 {
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
	if percent < 100 {
		t.Fatalf("GOGC of a node at work again is %d", percent)
	}
}

// TestPace: much garbage may pile up where little is alive and the node is at work, little where it is idle, and what the operator says where that is
// set.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		working       int
		own           bool
		live          uint64
		work, resting int
	}{
		{100, false, 0, workPercentMax, trimPercent},
		{100, false, workRoom / 8, workPercentMax, trimPercent},
		{100, false, workRoom / 2, 200, trimPercent},
		{100, false, workRoom, 100, trimPercent},
		{100, false, 100 * workRoom, 100, trimPercent},
		{100, true, workRoom / 8, 100, trimPercent},
		{800, true, workRoom / 8, 800, trimPercent},
		{trimPercent - 5, true, workRoom / 8, trimPercent - 5, trimPercent - 5},
		{-1, true, workRoom / 8, -1, -1},
	} {
		percent := c.working
		tr := trimmer{own: c.own, working: c.working, now: c.working, percent: func(p int) int { percent = p; return 0 }}
		for range 2 {
			if tr.pace(false, c.live); percent != c.work {
				t.Errorf("%+v: GOGC %d at work", c, percent)
			}
			if tr.pace(true, c.live); percent != c.resting {
				t.Errorf("%+v: GOGC %d when idle", c, percent)
			}
		}
	}
	changes := 0
	tr := trimmer{working: 100, percent: func(int) int { changes++; return 0 }}
	for i := range uint64(100) {
		tr.pace(false, workRoom/2+i*workRoom/1000)
	}
	if changes != 1 {
		t.Errorf("GOGC changed %d times for a tenth more", changes)
	}
}
