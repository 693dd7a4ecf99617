package meta

import (
	"strings"
	"testing"
	"time"
)

// A simulation that cannot fail shows nothing: each lie below must be found out within a few seeds.
func TestLiesAreFound(t *testing.T) {
	dir := folder(t)
	for _, lie := range []Lie{LieSync, LieAnswer} {
		t.Run(string(lie), func(t *testing.T) {
			began := time.Now()
			for seed := uint64(1); seed <= 25; seed++ {
				if _, err := bubble(t, Config{Seed: seed, Dir: dir, Load: 20 * time.Second, Lie: lie}); err != nil {
					text, _, _ := strings.Cut(err.Error(), "\ntrace:")
					t.Logf("found in seed %d, after %v: %.200s", seed, time.Since(began).Round(time.Millisecond), text)
					return
				}
			}
			t.Errorf("nobody noticed for %v", time.Since(began))
		})
	}
}
