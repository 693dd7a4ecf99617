package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
	"github.com/warrenmq/warren/store/faultfs"
)

// TestForget kills a store that runs on a disk which forgets what was not synced: package
// faultfs must leave nothing but what a crash may leave, and the store must read it.
func TestForget(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			base := crashfs.New()
			d := driver{m: newModel(3), term: 1, pick: r.IntN}
			states := []model{d.m.clone()}
			for range 20 {
				fs := faultfs.New(base, faultfs.Options{Forget: true, KeepPercent: r.IntN(100)})
				s, err := store.Open(store.Options{
					Dir: "/s", FS: fs, SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10, OnFatal: func(error) {},
				})
				if err != nil {
					t.Fatal(err)
				}
				d.s, d.m = s, oneOf(t, states, s)
				states = work(t, &d, 1+r.IntN(40))
				fs.Set(faultfs.Faults{Failing: true}) // nothing of what is in memory comes to the disk any more
				_ = s.Close()
			}
		})
	}
}

// work does some steps and returns the states in which a crash may leave the store.
func work(t *testing.T, d *driver, steps int) []model {
	t.Helper()
	states := []model{d.m.clone()}
	for range steps {
		out, err := d.step()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.m.verify(d.s); err != nil {
			t.Fatal(err)
		}
		if out.durable {
			states = nil
		} else {
			states = append(states, out.between...)
		}
		states = append(states, d.m.clone())
	}
	return states
}

func oneOf(t *testing.T, states []model, s *store.Store) model {
	t.Helper()
	var errs []error
	for _, m := range states {
		err := m.verify(s)
		if err == nil {
			return m.clone()
		}
		errs = append(errs, err)
	}
	t.Fatalf("none of the possible states: %v", errors.Join(errs...))
	return nil
}
