package deep

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag     = flag.Uint64("deep.seed", 0, "run this seed alone")
	seedsFlag    = flag.Int("deep.seeds", 2, "how many seeds TestSeeds runs")
	firstFlag    = flag.Uint64("deep.first", 1, "the first seed")
	loadFlag     = flag.Duration("deep.load", 5*time.Second, "how long faults happen in each seed, in virtual time, in rounds of 10 to 40 s")
	timeFlag     = flag.Duration("deep.time", 0, "go on with seeds for this real time instead of deep.seeds")
	parallelFlag = flag.Int("deep.parallel", runtime.GOMAXPROCS(0), "how many seeds run at a time")
	overlapFlag  = flag.Duration("deep.overlap", 0, "how long two nodes may have the lease of one group, in virtual time; 0: any time, only reported")
	virtualFlag  = flag.Duration("deep.virtual", 0, "go on with seeds until so much virtual time has passed instead of deep.seeds, or until deep.time is over")
	calmFlag     = flag.Bool("deep.calm", false, "slow clients and rare faults: many virtual minutes for little")
	traceFlag    = flag.Bool("deep.trace", false, "print events as they happen, for what ends in a panic")
	logFlag      = flag.Bool("deep.log", false, "print the nodes' logs")
)

// A seed that makes no progress for so long is stuck outside of virtual time.
const stuckAfter = 10 * time.Minute

// gcPercent is how much garbage may be there before it is collected, in percent of what lives, unless all of it is more than memoryLimit: the
// disks of a seed whose members move are some hundred MiB.
const (
	gcPercent   = 800
	memoryLimit = 3 << 30
)

// TestSeeds runs clusters of three to five nodes under all faults, several at a time.
func TestSeeds(t *testing.T) { seeds(t, false, false) }

// TestSleepers is TestSeeds with groups that fall asleep all the time; in every other seed their members move, too.
func TestSleepers(t *testing.T) { seeds(t, false, true) }

func seeds(t *testing.T, moves, sleepy bool) {
	first, n := *firstFlag, *seedsFlag
	if *seedFlag != 0 {
		first, n = *seedFlag, 1
	}
	// What lives is small and what is thrown away is much: with the default a fifth of the time is the collector's.
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit))
	began := time.Now()
	all := suite{next: first, moves: moves, sleepy: sleepy}
	more := func() (uint64, bool) {
		all.mu.Lock()
		defer all.mu.Unlock()
		seed := all.next
		over := seed >= first+uint64(n)
		if *timeFlag > 0 || *virtualFlag > 0 {
			over = *timeFlag > 0 && time.Since(began) >= *timeFlag || *virtualFlag > 0 && all.report.Virtual >= *virtualFlag
		}
		if over {
			return 0, false
		}
		all.next++
		return seed, true
	}
	var workers sync.WaitGroup
	for range max(1, *parallelFlag) {
		workers.Go(func() {
			for seed, ok := more(); ok; seed, ok = more() {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { all.run(t, seed) })
			}
		})
	}
	workers.Wait()
	took, minutes := time.Since(began), all.report.Virtual.Minutes()
	t.Logf("%d seeds, %.0f virtual minutes in %v, %.1f a second, %.1f strikes a virtual minute", all.next-first, minutes,
		took.Round(time.Second), minutes/took.Seconds(), float64(all.report.Strikes)/minutes)
	t.Logf("together %v", all.report)
}

// TestMembersMove is TestSeeds with groups whose members change all the time, and nodes that lose their disks for good and come back with empty ones.
func TestMembersMove(t *testing.T) { seeds(t, true, false) }

// suite is what the seeds of a test have in common.
type suite struct {
	moves, sleepy bool

	mu     sync.Mutex // guards the rest
	next   uint64
	report Report
}

// run lives through one seed in a bubble of its own.
func (s *suite) run(t *testing.T, seed uint64) {
	watchdog := time.AfterFunc(stuckAfter, func() { panic(fmt.Sprintf("seed %d is stuck", seed)) })
	defer watchdog.Stop()
	start := time.Now()
	var report Report
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Seed: seed, Nodes: 3 + int(seed%3), Groups: 3 + int(seed%4), Load: *loadFlag, Calm: *calmFlag, OverlapMax: *overlapFlag, Moves: s.moves || s.sleepy && seed%2 == 0, Sleepy: s.sleepy}
		if cfg.Moves {
			cfg.Nodes = 4 + int(seed%3)
		}
		if *logFlag {
			cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		}
		if *traceFlag {
			cfg.Trace = os.Stderr
		}
		var err error
		report, err = Run(cfg)
		t.Log(report)
		if err != nil {
			t.Error(err)
		}
	})
	t.Logf("took %v", time.Since(start).Round(time.Millisecond))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Add(report)
}
