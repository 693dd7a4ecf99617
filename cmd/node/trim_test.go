package main

import (
	"runtime"
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
}

// gogc is a trimmer with a setting of its own, and how it looks through d.
func gogc(percent int) (tr *trimmer, set *int, pass func(d time.Duration)) {
	set = &percent
	tr = &trimmer{free: func() {}, percent: func(p int) int { before := percent; percent = p; return before }}
	now := time.Unix(1000, 0)
	return tr, set, func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(alarmPeriod) {
			tr.look(now)
		}
	}
}

// TestTrimOwnSetting leaves what the operator has set.
func TestTrimOwnSetting(t *testing.T) {
	for _, own := range []int{-1, trimPercent - 5} {
		tr, percent, pass := gogc(own)
		for _, crowd := range []int{0, 2 * trimBirths} {
			for range crowd {
				tr.born()
			}
			sink = append(sink[:0], make([]byte, 64<<20))
			pass(trimPeriod)
			if own < 0 && *percent != own || own > 0 && crowd == 0 && *percent != own {
				t.Fatalf("GOGC %d became %d at work, with %d births", own, *percent, crowd)
			}
			pass(2 * trimQuiet)
			if *percent != own {
				t.Fatalf("GOGC %d became %d", own, *percent)
			}
		}
	}
	sink = nil
	tr, percent, pass := gogc(100)
	tr.fixed = true
	pass(trimPeriod)
	for range 100 * trimBirths {
		tr.born()
	}
	if pass(alarmPeriod); *percent != 100 {
		t.Fatalf("GOGC of a burst of births is %d, and the operator has set it", *percent)
	}
}

// TestTrimBirths has more garbage pile up while many replicas begin, and no longer.
func TestTrimBirths(t *testing.T) {
	runtime.GC() // what other tests have left is not alive
	tr, percent, pass := gogc(100)
	pass(3 * trimQuiet)
	for range trimBirths - 1 {
		if tr.born() {
			t.Fatal("a look is due early")
		}
	}
	if pass(alarmPeriod); *percent > 100 {
		t.Fatalf("GOGC %d without a burst", *percent)
	}
	pass(trimPeriod)
	due := 0
	for range 3 * trimBirths {
		if tr.born() {
			due++
		}
	}
	if due != 1 {
		t.Fatalf("a look is due %d times", due)
	}
	tr.look(tr.looked.Add(time.Millisecond)) // at once
	if *percent <= 100 || *percent > trimRoomPercent {
		t.Fatalf("GOGC of a burst is %d", *percent)
	}
	if tr.pause != trimAfterBirths {
		t.Fatalf("the next trim is %v away", tr.pause)
	}
	pass(2 * trimPeriod)
	if *percent > 100 {
		t.Fatalf("GOGC after the burst is %d", *percent)
	}
	tr.pace(false, 1<<30, 1<<30)
	tr.crowded = true
	if tr.pace(false, 1<<30, 1<<30); *percent != 100 {
		t.Fatalf("GOGC of a burst with a GiB alive is %d", *percent)
	}
}

// TestTrimEnds leaves GOGC to a node that is built anew in the process.
func TestTrimEnds(t *testing.T) {
	tr, percent, pass := gogc(100)
	pass(3 * trimQuiet)
	if *percent != trimPercent {
		t.Fatalf("GOGC of an idle node is %d", *percent)
	}
	if tr.end(); *percent != 100 {
		t.Fatalf("it leaves GOGC %d", *percent)
	}
	var unused trimmer
	unused.end()
}

// TestTrimMuch has more garbage pile up while a node works that has much alive, unless memory is short.
func TestTrimMuch(t *testing.T) {
	for what, x := range map[string]struct {
		idle, crowded, fixed bool
		live, watermark      uint64
		scanned              uint64
		working, want        int
	}{
		"much":                      {false, false, false, trimMuch, 8 << 30, trimMuch / 2, 100, trimMuchPercent},
		"large messages":            {false, false, false, trimMuch, 8 << 30, trimMuch/trimScanShare - 1, 100, 100},
		"little":                    {false, false, false, trimMuch - 1, 8 << 30, trimMuch / 2, 100, 100},
		"idle":                      {true, false, false, trimMuch, 8 << 30, trimMuch / 2, 100, trimPercent},
		"replicas begin":            {false, true, false, trimMuch, 8 << 30, trimMuch / 2, 100, 100},
		"as much as memory allows":  {false, false, false, trimMuch, trimMuchShare * trimMuch, trimMuch / 2, 100, trimMuchPercent},
		"more":                      {false, false, false, trimMuch + 1, trimMuchShare * trimMuch, trimMuch / 2, 100, 100},
		"the operator's GOGC":       {false, false, true, trimMuch, 8 << 30, trimMuch / 2, 100, 100},
		"no collector":              {false, false, false, trimMuch, 8 << 30, trimMuch / 2, -1, -1},
		"more than that by default": {false, false, false, trimMuch, 8 << 30, trimMuch / 2, 300, 300},
	} {
		got := x.working
		tr := trimmer{working: x.working, now: x.working, fixed: x.fixed, crowded: x.crowded, watermark: x.watermark, percent: func(p int) int { got = p; return 0 }}
		if tr.pace(x.idle, x.live, x.scanned); got != x.want {
			t.Errorf("%s: GOGC %d, want %d", what, got, x.want)
		}
	}
}
