package deep

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// seedsMost bounds the seeds in which a lie must be found out. The same seed does not always show the same, because goroutines of one moment run in any order: in
// 100 runs the last lie below showed within four seeds 96 times, and once only in the 23rd.
const seedsMost = 50

// A simulation that cannot fail shows nothing: each lie below must be found out within a few seeds.
func TestLiesAreFound(t *testing.T) {
	for _, lie := range []Lie{LieSync, LieTail, LieTerm, LieConfirm, LieAnswer} {
		t.Run(string(lie), func(t *testing.T) {
			began := time.Now()
			for seed := uint64(1); seed <= seedsMost; seed++ {
				var err error
				synctest.Test(t, func(t *testing.T) {
					_, err = Run(Config{Seed: seed, Load: 5 * time.Second, Lie: lie})
				})
				if err != nil {
					t.Logf("found in seed %d, after %v: %.160s", seed, time.Since(began).Round(time.Millisecond), firstLines(err))
					return
				}
			}
			t.Errorf("nobody noticed for %v", time.Since(began))
		})
	}
}

// firstLines is an error without its trace.
func firstLines(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\ntrace:")
	return text
}
