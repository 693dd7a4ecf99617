package sim

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
	seedFlag  = flag.Uint64("sim.seed", 0, "run this seed alone")
	seedsFlag = flag.Int("sim.seeds", 5, "how many seeds TestSeeds runs")
	firstFlag = flag.Uint64("sim.first", 1, "the first seed")
	loadFlag  = flag.Duration("sim.load", 1500*time.Millisecond, "how long clients publish and faults happen, in virtual time")
	stormFlag = flag.Bool("sim.storm", false, "many more faults")
	logFlag   = flag.Bool("sim.log", false, "print the brokers' logs")
)

func runSeed(t *testing.T, cfg Config) {
	t.Run(fmt.Sprintf("%d", cfg.Seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			if *logFlag {
				cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
			}
			if err := Run(cfg); err != nil {
				t.Error(err)
			}
		})
	})
}

// TestCalm runs without faults.
func TestCalm(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		runSeed(t, Config{Seed: seed, Nodes: 3, Load: 500 * time.Millisecond, Calm: true})
	}
}

// TestSeeds runs seeds with all faults.
func TestSeeds(t *testing.T) {
	first, n := *firstFlag, *seedsFlag
	if *seedFlag != 0 {
		first, n = *seedFlag, 1
	}
	for seed := first; seed < first+uint64(n); seed++ {
		runSeed(t, Config{Seed: seed, Nodes: 3 + int(seed%3), Load: *loadFlag, Storm: *stormFlag || seed%4 == 0})
	}
}
