package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
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
	// trimBirths is how many replicas have to begin within trimPeriod for a burst of them: each leaves some 60 KiB of garbage, and what is alive on
	// a node with few queues would be marked after every hundredth.
	trimBirths = 16
	// trimRoom is what may pile up between two collections during such a burst, in bytes, trimRoomPercent the largest GOGC for it.
	trimRoom        = 64 << 20
	trimRoomPercent = 400
	// trimMuch is how much has to be alive, in bytes, for a node at work to let trimMuchPercent of it pile up: what a collection costs goes by what is alive, and with
	// thousands of queues in use, a message to each in turn, it was a quarter of the processor time (ADR 52). No more than one trimMuchShare of the memory
	// watermark may be alive then, and the collector has to look through one part in trimScanShare of it at least: of large messages, it looks at nothing.
	trimMuch        = 64 << 20
	trimMuchPercent = 200
	trimMuchShare   = 12
	trimScanShare   = 4
	// trimAfterBirths is the least time between a burst of them, which makes more garbage than work does otherwise, and the trim before.
	trimAfterBirths = 10 * time.Second
)

// trimmer gives the memory of a burst of work back to the system once the node is idle, and keeps it small as long as it is. Go's runtime
// keeps as much again as is in use, for garbage to come, and of an idle node little comes: the declaration of many queues
// would be paid for with their memory twice. While many replicas begin, or much is alive on a node at work, it lets more pile up (ADR 50, 52).
type trimmer struct {
	births  atomic.Uint64 // replicas that have begun
	known   atomic.Uint64 // of births, at the newest look
	fixed   bool          // the operator has set GOGC: no more than that
	crowded bool          // the newest look found a burst of births
	pause   time.Duration // until the next trim at least, after the one before

	looked, busy, trimmed time.Time
	ended                 uint64    // see freed
	stirred               time.Time // more than trimRest was allocated
	allocated             uint64
	samples               []metrics.Sample
	working               int           // GOGC of a node at work; that of an idle one if it is no larger
	watermark             uint64        // bytes that the process may use
	now                   int           // GOGC as it was set last
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

// born tells of a replica that has begun, and whether a look is due before the next one would be. It is safe from many goroutines.
func (t *trimmer) born() (due bool) { return t.births.Add(1) == t.known.Load()+trimBirths }

// look decides, now and then.
func (t *trimmer) look(now time.Time) {
	births := t.births.Load()
	burst := births >= t.known.Load()+trimBirths
	if now.Sub(t.looked) < trimPeriod && (t.crowded || !burst) {
		return
	}
	t.looked = now
	t.known.Store(births)
	if t.samples == nil {
		t.samples = []metrics.Sample{
			{Name: "/gc/heap/allocs:bytes"},
			{Name: "/memory/classes/heap/free:bytes"},
			{Name: "/memory/classes/heap/objects:bytes"},
			{Name: "/gc/heap/live:bytes"},
			{Name: "/gc/scan/heap:bytes"},
		}
		t.busy, t.stirred, t.pause = now, now, trimPause
		if t.free == nil {
			t.free, t.percent = freeMemory, debug.SetGCPercent
		}
		t.working = t.percent(trimPercent)
		t.now = t.working
		t.percent(t.working)
	}
	metrics.Read(t.samples)
	value := func(i int) uint64 { return t.samples[i].Value.Uint64() }
	allocated, unused, objects, live, scanned := value(0), value(1), value(2), value(3), value(4)
	if allocated-t.allocated > trimQuietBytes {
		t.busy = now
	}
	if (allocated-t.allocated)*trimRest > live {
		t.stirred = now
	}
	t.crowded = burst && !t.fixed
	t.pace(now.Sub(t.stirred) >= trimQuiet, live, scanned)
	t.allocated = allocated
	if t.crowded {
		t.pause = trimAfterBirths
	}
	gain := unused + objects - min(objects, live)
	// Once for each stretch of work: what an idle node leaves between two collections of its own is a quarter of what it keeps, and with
	// ten thousand queues it would be collected twice a minute for nothing.
	if !t.busy.After(t.trimmed) || now.Sub(t.busy) < trimQuiet || now.Sub(t.trimmed) < t.pause || gain < trimWorth || gain < objects/trimWorthShare {
		return
	}
	if t.shed != nil {
		t.shed()
	}
	t.free()
	t.trimmed, t.pause = now, trimPause
}

// end leaves GOGC as it was found, for a node that is built anew in this process.
func (t *trimmer) end() {
	if t.samples != nil {
		t.percent(t.working)
	}
}

// pace has little garbage pile up while the node is idle, and some more while replicas begin or where much is alive: live bytes, scanned of which the collector has to
// look through. Whoever has set GOGC lower, or has turned it off, is left to it.
func (t *trimmer) pace(idle bool, live, scanned uint64) {
	want := t.working
	switch {
	case want <= 0:
	case t.crowded:
		want = max(want, int(min(trimRoomPercent, trimRoom*100/max(live, 1))))
	case idle:
		want = min(want, trimPercent)
	case !t.fixed && live >= trimMuch && live <= t.watermark/trimMuchShare && scanned >= live/trimScanShare:
		want = max(want, trimMuchPercent)
	}
	if want != t.now {
		t.now = want
		t.percent(want)
	}
}
