package deep

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag  = flag.Uint64("deep.seed", 0, "run this seed alone")
	seedsFlag = flag.Int("deep.seeds", 2, "how many seeds TestSeeds runs")
	firstFlag = flag.Uint64("deep.first", 1, "the first seed")
	loadFlag  = flag.Duration("deep.load", 5*time.Second, "how long faults happen in each seed, in virtual time, in rounds of 10 to 40 s")
	timeFlag  = flag.Duration("deep.time", 0, "go on with seeds for this real time instead of deep.seeds")
	traceFlag = flag.Bool("deep.trace", false, "print events as they happen, for what ends in a panic")
	logFlag   = flag.Bool("deep.log", false, "print the nodes' logs")
)

// A seed that makes no progress for so long is stuck outside of virtual time.
const stuckAfter = 10 * time.Minute

// TestSeeds runs clusters of three to five nodes under all faults.
func TestSeeds(t *testing.T) {
	first, n := *firstFlag, *seedsFlag
	if *seedFlag != 0 {
		first, n = *seedFlag, 1
	}
	began := time.Now()
	var virtual time.Duration
	for seed := first; *timeFlag > 0 && time.Since(began) < *timeFlag || *timeFlag == 0 && seed < first+uint64(n); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			watchdog := time.AfterFunc(stuckAfter, func() { panic(fmt.Sprintf("seed %d is stuck", seed)) })
			defer watchdog.Stop()
			start := time.Now()
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Seed: seed, Nodes: 3 + int(seed%3), Groups: 3 + int(seed%4), Load: *loadFlag}
				if *logFlag {
					cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
				}
				if *traceFlag {
					cfg.Trace = os.Stderr
				}
				report, err := Run(cfg)
				virtual += report.Virtual
				t.Log(report)
				if err != nil {
					t.Error(err)
				}
			})
			t.Logf("took %v", time.Since(start).Round(time.Millisecond))
		})
	}
	t.Logf("%.0f virtual minutes in %v", virtual.Minutes(), time.Since(began).Round(time.Second))
}
