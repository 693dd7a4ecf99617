package meta

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag     = flag.Uint64("meta.seed", 0, "run this seed alone")
	seedsFlag    = flag.Int("meta.seeds", 8, "how many seeds TestSeeds runs")
	firstFlag    = flag.Uint64("meta.first", 1, "the first seed")
	loadFlag     = flag.Duration("meta.load", 30*time.Second, "how long faults happen in each seed, in virtual time, in rounds of 10 to 40 s")
	timeFlag     = flag.Duration("meta.time", 0, "go on with seeds for this real time instead of meta.seeds")
	parallelFlag = flag.Int("meta.parallel", runtime.GOMAXPROCS(0), "how many seeds run at a time")
	traceFlag    = flag.Bool("meta.trace", false, "print events as they happen, for what ends in a panic")
	logFlag      = flag.Bool("meta.log", false, "print the nodes' logs")
)

// A seed that makes no progress for so long is stuck outside of virtual time.
const stuckAfter = 5 * time.Minute

// folder is where files are quick to sync: what is durable is a matter of the simulation.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "warren")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestSeeds runs clusters of three to seven nodes under all faults, several at a time.
func TestSeeds(t *testing.T) {
	first, n := *firstFlag, *seedsFlag
	if *seedFlag != 0 {
		first, n = *seedFlag, 1
	}
	began, dir := time.Now(), folder(t)
	var mu sync.Mutex
	var all Report
	next := first
	more := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if over := *timeFlag == 0 && next >= first+uint64(n) || *timeFlag > 0 && time.Since(began) >= *timeFlag; over {
			return 0, false
		}
		next++
		return next - 1, true
	}
	var workers sync.WaitGroup
	for range max(1, *parallelFlag) {
		workers.Go(func() {
			for seed, ok := more(); ok; seed, ok = more() {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					r := run(t, Config{Seed: seed, Dir: dir, Nodes: 3 + int(seed%5), Load: *loadFlag})
					mu.Lock()
					defer mu.Unlock()
					all.Add(r)
				})
			}
		})
	}
	workers.Wait()
	t.Logf("%d seeds in %v, together %v", next-first, time.Since(began).Round(time.Second), all)
}

// bubble runs a simulation in virtual time. A process that ended because of its log leaves goroutines behind that wait for raft; what is to be known is in err
// then, and not that they do.
func bubble(t *testing.T, cfg Config) (report Report, err error) {
	defer func() {
		if r := recover(); r != nil && err == nil {
			err = fmt.Errorf("seed %d: %v", cfg.Seed, r)
		}
	}()
	synctest.Test(t, func(*testing.T) { report, err = Run(cfg) })
	return report, err
}

// run lives through one seed in a bubble of its own.
func run(t *testing.T, cfg Config) Report {
	watchdog := time.AfterFunc(stuckAfter, func() { panic(fmt.Sprintf("seed %d is stuck", cfg.Seed)) })
	defer watchdog.Stop()
	if *logFlag {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if *traceFlag {
		cfg.Trace = os.Stderr
	}
	start := time.Now()
	report, err := bubble(t, cfg)
	if err != nil {
		t.Error(err)
	}
	t.Logf("took %v: %v", time.Since(start).Round(time.Millisecond), report)
	return report
}
