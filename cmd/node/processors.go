package main

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warrenmq/warren/store"
)

// Bounds of keeping to one processor.
const (
	// crewPeriod is the time between two looks, crewRest that of a node which has used no more than crewIdle of a processor: looks are wake-ups as well.
	crewPeriod = 20 * time.Millisecond
	crewRest   = 100 * time.Millisecond
	crewIdle   = 0.05
	// crewBusy is the part of one processor's time, between two looks, from which on a node gets all processors at once.
	crewBusy = 0.85
	// crewFull is the same where the only processor's waits for the disk with the log's flusher count as used: between each of crewRow looks one after the other,
	// when a write has waited for no more than crewSyncUsual (a slow one now and then is no work), or over crewWhile, with all of the wait.
	crewFull      = 0.95
	crewRow       = 2
	crewSyncUsual = 400 * time.Microsecond
	crewWhile     = 500 * time.Millisecond
	// crewCalm is what a node that keeps to one has used at most over all of crewQuiet, crewRoom that with the disk: with one processor, more is done in one go and less
	// time used.
	crewCalm  = 0.6
	crewRoom  = 1.1
	crewQuiet = time.Second
	// crewSyncMax is what a write and sync of the log take at most in the mean where one processor does, and crewSyncLate one that is outstanding: the only
	// processor waits with it for the disk, until Go's monitor takes it away, five to ten milliseconds later.
	crewSyncMax  = time.Millisecond
	crewSyncLate = 4 * time.Millisecond
	// crewTardy is how much later than it should have run a look tells that goroutines wait for a processor, whatever has it: a request that computes, reads of
	// a disk. The timer itself may be two milliseconds late (slackWanted, and the kernel's wait in whole ones).
	crewTardy = 6 * time.Millisecond
	// crewLiveMax is how much of the heap may be alive: more processors have to wait for a collection of garbage to end, and one takes long to mark much.
	crewLiveMax = 64 << 20
)

// crew has Go keep to one processor (GOMAXPROCS 1) while a node has little to do, and gives it all of them back as soon as it has more. A message that comes alone
// passes a dozen goroutines, and with a second processor most of these wake-ups look for another thread, too, which then finds nothing to do (ADR 51).
type crew struct {
	one    bool
	all    atomic.Int32 // processors without a limit of ours
	newest work         // at the newest look
	recent work         // at the first look of the present crewWhile
	full   int          // looks one after the other that found it in full use
	since  work         // at the first look of a stretch that may become a quiet one
}

// work is what a node has done until a moment.
type work struct {
	at    time.Time
	tardy time.Duration // that it should have been looked at earlier
	cpu   time.Duration // of all threads
	syncs uint64
	disk  time.Duration // in which the log waited for the disk, one write and sync after the other
	late  time.Duration // for how long one of them has been outstanding
	live  uint64        // bytes of the heap, as of the newest collection
}

// look tells whether one processor does from now on, and when to look again.
func (c *crew) look(now work) (one bool, next time.Duration) {
	before := c.newest
	c.newest = now
	passed := now.at.Sub(before.at)
	next = crewPeriod
	if c.one && now.used(before) <= share(crewIdle, passed) {
		next = crewRest
	}
	busy := now.cpu-before.cpu >= share(crewBusy, passed) || now.late >= crewSyncLate || now.tardy >= crewTardy || c.one && c.isFull(before)
	switch passed = now.at.Sub(c.since.at); {
	case before.at.IsZero(), busy:
		c.one, c.since = false, now
	case passed >= crewQuiet:
		slow := now.disk-c.since.disk > time.Duration(now.syncs-c.since.syncs)*crewSyncMax
		calm := c.one || now.cpu-c.since.cpu <= share(crewCalm, passed) && now.used(c.since) <= share(crewRoom, passed)
		c.one, c.since = calm && !slow && now.live <= crewLiveMax, now
	}
	if !c.one {
		c.full, c.recent = 0, now
	}
	return c.one, next
}

// isFull tells whether the only processor is always at work or waits for the disk.
func (c *crew) isFull(before work) bool {
	now := c.newest
	usual := min(now.disk-before.disk, time.Duration(now.syncs-before.syncs)*crewSyncUsual)
	if now.cpu-before.cpu+usual < share(crewFull, now.at.Sub(before.at)) {
		c.full = 0
	} else if c.full++; c.full >= crewRow {
		return true
	}
	passed, used := now.at.Sub(c.recent.at), now.used(c.recent)
	if passed < crewWhile {
		return false
	}
	c.recent = now
	return used >= share(crewFull, passed)
}

// used is what one processor would have been used since before.
func (w work) used(before work) time.Duration { return w.cpu - before.cpu + w.disk - before.disk }

func share(part float64, of time.Duration) time.Duration { return time.Duration(part * float64(of)) }

// keepCrew looks after Go's processors until the node closes. Whoever sets GOMAXPROCS has it as it is set.
func (n *running) keepCrew() {
	n.crew.all.Store(int32(runtime.GOMAXPROCS(0)))
	if os.Getenv("GOMAXPROCS") != "" || n.crew.all.Load() == 1 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { n.crew.run(ctx, n.store) })
	n.onClose("processors", func() error {
		cancel()
		wg.Wait()
		return nil
	})
}

func (c *crew) run(ctx context.Context, s *store.Store) {
	t := time.NewTimer(crewPeriod)
	defer t.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	due := time.Now().Add(crewPeriod)
	for one := false; ; {
		select {
		case <-ctx.Done():
			if one {
				c.limit(false)
			}
			return
		case <-t.C:
		}
		ownSlack()
		now := work{at: time.Now(), late: s.SyncOutstanding()}
		now.tardy = now.at.Sub(due)
		now.syncs, now.disk = s.SyncCost()
		if now.at.Sub(c.since.at) >= crewQuiet {
			metrics.Read(live)
			now.live = live[0].Value.Uint64()
		}
		var used unix.Rusage
		if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
			now.cpu = time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
		does, next := c.look(now)
		if does != one {
			one = does
			c.limit(one)
		}
		due = time.Now().Add(next)
		t.Reset(next)
	}
}

// limit changes what Go uses. It stops the world for some ten microseconds, and waits for a collection of garbage first.
func (c *crew) limit(one bool) {
	if one {
		runtime.GOMAXPROCS(1)
		return
	}
	runtime.SetDefaultGOMAXPROCS()
	c.all.Store(int32(runtime.GOMAXPROCS(0)))
}
