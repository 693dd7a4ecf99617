package group

import (
	"testing"
	"testing/synctest"
	"time"
)

// What is late makes the elections at once fewer, but once for all that were under way together, and what is in time makes them more again.
func TestFewerElectionsAtOnceWhereTheyAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAtOnce(256)
		underWay := func(n int) func() int { return func() int { return n } }
		want := func(n int) {
			t.Helper()
			if a.now != n {
				t.Fatalf("%d at once, want %d", a.now, n)
			}
		}
		together := time.Now()
		time.Sleep(slowElection)
		a.ended(together, true, underWay(100)) // it was won, but late
		want(50)
		a.ended(together, false, underWay(99))
		want(50)
		began := time.Now().Add(time.Millisecond)
		time.Sleep(time.Second)
		a.ended(began, true, underWay(50))
		want(51)
		a.ended(began, false, underWay(3)) // nobody voted
		want(atOnceMin)
		for range 300 {
			a.ended(time.Now(), true, underWay(1))
		}
		want(256)
	})
}
