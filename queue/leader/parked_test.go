package leader

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

// Many parked letters are all looked at, and letters that come meanwhile too, while the catalog changes all
// the time and a look takes longer than the pause between two.
func TestParkedLettersAreAllLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const letters, batch = 1_500, 128
		a := node(1)
		set := plain()
		set.DeadLetter, set.AtLeastOnce, set.MaxLength = true, true, 0
		r := newRig(t, set, a)
		defer r.l.Stop()
		r.answerRoll(a)
		die := func(n int) {
			for ; n > 0; n -= min(n, batch) {
				r.publish(a, make([]string, min(n, batch))...)
			}
		}
		die(letters)
		done := make(chan struct{})
		defer close(done)
		go func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
					r.l.CatalogChanged()
				}
			}
		}()
		// The mover, for which each letter costs 100 µs.
		looks := make(map[dlx.ItemID]int)
		decide := func() (again bool) {
			var items []dlx.Item
			r.replica.View(func(m *fsm.Machine) { items = m.Outbox().Unrouted(batch) })
			c := fsm.Route{}
			for _, it := range items {
				looks[it.ID]++
				c.Items = append(c.Items, fsm.Routed{Item: it.ID, NoRoute: fsm.ParkUnrouted})
			}
			time.Sleep(time.Millisecond + time.Duration(len(items))*100*time.Microsecond)
			r.propose(c)
			return len(items) > 0
		}
		for until := time.Now().Add(10 * time.Second); decide() && time.Now().Before(until); {
		}
		clear(looks)
		for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
			if decide(); len(looks) == letters {
				die(10)
			}
		}
		var last dlx.ItemID
		r.replica.View(func(m *fsm.Machine) { last = m.Outbox().Last() })
		if looks[1] < 3 || looks[letters] < looks[1]-1 {
			t.Errorf("the first letter was looked at %d times, the last %d times", looks[1], looks[letters])
		}
		if last == letters || looks[last] == 0 {
			t.Errorf("%d letters, the newest looked at %d times", last, looks[last])
		}
	})
}

// Large parked letters are not read anew for each change of a catalog that changes all the time.
func TestLargeParkedLettersAreLookedAtSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const letters, each, looking = 8, 4 << 20, 2 * time.Second
		a := node(1)
		set := plain()
		set.DeadLetter, set.AtLeastOnce, set.MaxLength = true, true, 0
		r := newRig(t, set, a)
		defer r.l.Stop()
		r.answerRoll(a)
		r.publish(a, slices.Repeat([]string{string(make([]byte, each))}, letters)...)
		looks := 0
		for until := time.Now().Add(looking); time.Now().Before(until); time.Sleep(time.Millisecond) {
			r.l.CatalogChanged()
			synctest.Wait()
			c := fsm.Route{}
			r.replica.View(func(m *fsm.Machine) {
				for _, it := range m.Outbox().Unrouted(letters) {
					c.Items = append(c.Items, fsm.Routed{Item: it.ID, NoRoute: fsm.ParkUnrouted})
				}
			})
			if len(c.Items) > 0 {
				looks++
				r.propose(c)
			}
		}
		if most := 2 + int(looking/(letters*each>>20*releasePauseMiB)); looks < 2 || looks > most {
			t.Errorf("looked %d times, want %d at most", looks, most)
		}
	})
}

// The next leader has everything decided on that is parked: so it knows why that is.
func TestNextLeaderLooksAtParkedLetters(t *testing.T) {
	a := node(1)
	set := plain()
	set.DeadLetter, set.AtLeastOnce, set.MaxLength = true, true, 0
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1", "2")
	r.propose(fsm.Route{Items: []fsm.Routed{{Item: 1, NoRoute: fsm.ParkUnrouted}, {Item: 2, NoRoute: fsm.ParkCycle}}})
	r.lead()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		n := 0
		r.replica.View(func(m *fsm.Machine) { n = m.Outbox().Count(dlx.Unrouted) })
		if n == 2 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d unrouted", n)
		}
	}
}
