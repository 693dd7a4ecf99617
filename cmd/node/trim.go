package main

import (
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
)

// trimmer gives the memory of a burst of work back to the system once the node is idle. Go's runtime keeps as
// much again as is in use, for garbage to come, and of an idle node little comes: the declaration of many queues
// would be paid for with their memory twice.
type trimmer struct {
	looked, busy, trimmed time.Time
	allocated             uint64
	samples               []metrics.Sample
	shed                  func() // gives up what is kept only to be quick
	free                  func() // debug.FreeOSMemory
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
		t.busy = now
	}
	metrics.Read(t.samples)
	value := func(i int) uint64 { return t.samples[i].Value.Uint64() }
	allocated, unused, objects, live := value(0), value(1), value(2), value(3)
	if allocated-t.allocated > trimQuietBytes {
		t.busy = now
	}
	t.allocated = allocated
	gain := unused + objects - min(objects, live)
	if now.Sub(t.busy) < trimQuiet || now.Sub(t.trimmed) < trimPause || gain < trimWorth || gain < objects/trimWorthShare {
		return
	}
	if t.free == nil {
		t.free = debug.FreeOSMemory
	}
	if t.shed != nil {
		t.shed()
	}
	t.free()
	t.trimmed = now
}
