package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Bounds of giving memory back.
const (
	trimPeriod = time.Second
	// trimQuietBytes is what an idle node allocates in trimPeriod at most: one that is at work
	// needs the memory again at once.
	trimQuietBytes = 4 << 20
	// trimQuiet is for how long it has to be idle, trimPause the least time between two trims:
	// each collects all garbage.
	trimQuiet = 2 * time.Second
	trimPause = time.Minute
	// trimWorth is what has to be gained: these bytes at least, and this part of the heap.
	trimWorth      = 8 << 20
	trimWorthShare = 8
	// trimPercent is GOGC of an idle node, trimRest the share of what is alive that it allocates in trimPeriod at most: a collection in a
	// quarter of a minute, and fewer.
	trimPercent = 25
	trimRest    = 64
)

// trimmer gives the memory of a burst of work back to the system once the node is idle, and keeps it small as long as it is. Go's runtime
// keeps as much again as is in use, for garbage to come, and of an idle node little comes: the declaration of many queues
// would be paid for with their memory twice.
type trimmer struct {
	looked, busy, trimmed time.Time
	ended                 uint64    // see freed
	stirred               time.Time // more than trimRest was allocated
	allocated             uint64
	samples               []metrics.Sample
	resting               bool
	working               int           // GOGC of a node at work; that of resting if it is no larger
	percent               func(int) int // debug.SetGCPercent
	shed                  func()        // gives up what is kept only to be quick
	free                  func()        // freeMemory
}

// freeMemory gives unused memory back. Pools hand theirs out at the second collection, and stacks shrink by half with each.
func freeMemory() {
	runtime.GC()
	debug.FreeOSMemory()
}

// freed tells how many replicas have fallen asleep until now. Their stacks are garbage like what work leaves.
func (t *trimmer) freed(now time.Time, total uint64) {
	if total != t.ended {
		t.ended, t.busy = total, now
	}
}

// look decides, now and then.
func (t *trimmer) look(now time.Time) {
	if now.Sub(t.looked) < trimPeriod {
		return
	}
	t.looked = now
	if t.samples == nil {
		t.samples = []metrics.Sample{
			{Name: "/gc/heap/allocs:bytes"},
			{Name: "/memory/classes/heap/free:bytes"},
			{Name: "/memory/classes/heap/objects:bytes"},
			{Name: "/gc/heap/live:bytes"},
		}
		t.busy, t.stirred = now, now
		if t.free == nil {
			t.free, t.percent = freeMemory, debug.SetGCPercent
		}
	}
	metrics.Read(t.samples)
	value := func(i int) uint64 { return t.samples[i].Value.Uint64() }
	allocated, unused, objects, live := value(0), value(1), value(2), value(3)
	if allocated-t.allocated > trimQuietBytes {
		t.busy = now
	}
	if (allocated-t.allocated)*trimRest > live {
		t.stirred = now
	}
	t.rest(now.Sub(t.stirred) >= trimQuiet)
	t.allocated = allocated
	gain := unused + objects - min(objects, live)
	// Once for each stretch of work: what an idle node leaves between two collections of its own is a quarter of what it keeps, and with
	// ten thousand queues it would be collected twice a minute for nothing.
	if !t.busy.After(t.trimmed) || now.Sub(t.busy) < trimQuiet || now.Sub(t.trimmed) < trimPause || gain < trimWorth || gain < objects/trimWorthShare {
		return
	}
	if t.shed != nil {
		t.shed()
	}
	t.free()
	t.trimmed = now
}

// rest has little garbage pile up while the node is idle. Whoever has set GOGC lower, or has turned it off, is left to it.
func (t *trimmer) rest(idle bool) {
	switch {
	case idle && !t.resting:
		t.working = t.percent(trimPercent)
		if t.working <= trimPercent {
			t.percent(t.working)
		}
	case !idle && t.resting && t.working > trimPercent:
		t.percent(t.working)
	}
	t.resting = idle
}
