package gate

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestTakesTurns has one source fill all places, and another one come through after one turn.
func TestTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, 3)
		if !g.Enter(t.Context(), "a") {
			t.Fatal("no way through")
		}
		var mu sync.Mutex
		order := ""
		come := func(source string) {
			go func() {
				ok := g.Enter(t.Context(), source)
				mu.Lock()
				defer mu.Unlock()
				if !ok {
					source = "-" + source
				}
				order += source
			}()
			synctest.Wait()
		}
		for range 5 {
			come("a")
		}
		if order != "-a-a" {
			t.Errorf("with three places: %s", order)
		}
		come("b") // takes a place of the longest line
		if order != "-a-a-a" {
			t.Errorf("with another source: %s", order)
		}
		for range 3 {
			g.Leave()
			synctest.Wait()
		}
		if order != "-a-a-aaba" {
			t.Errorf("turns: %s", order)
		}
		g.Leave()
		if g.free != 1 || g.places != 3 || len(g.lines) != 0 || len(g.turns) != 0 || g.refused != 3 {
			t.Errorf("left %+v", g)
		}
		g.Enter(t.Context(), "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if g.Enter(ctx, "b") || g.places != 3 || len(g.lines) != 0 {
			t.Error("waits longer than it may")
		}
		g.Leave()
		if g.free != 1 {
			t.Error("a turn is lost with who did not wait")
		}
	})
}

// TestEverybodyHasATurn has sources come, give up and leave in any order: no more are inside than may be, nobody waits while there is a way, and no
// place is lost.
func TestEverybodyHasATurn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			ways, places := rapid.IntRange(1, 3).Draw(rt, "ways"), rapid.IntRange(0, 5).Draw(rt, "places")
			g := New(ways, places)
			var mu sync.Mutex
			inside, waiting := 0, 0
			var cancels []context.CancelFunc
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				switch do := rapid.IntRange(0, 3).Draw(rt, "do"); {
				case do <= 1:
					source := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "source")
					ctx, cancel := context.WithCancel(context.Background())
					cancels = append(cancels, cancel)
					mu.Lock()
					waiting++
					mu.Unlock()
					go func() {
						ok := g.Enter(ctx, source)
						mu.Lock()
						waiting--
						if ok {
							inside++
						}
						mu.Unlock()
					}()
				case do == 2 && len(cancels) > 0:
					cancels[rapid.IntRange(0, len(cancels)-1).Draw(rt, "who")]()
				case inside > 0:
					inside--
					g.Leave()
				}
				synctest.Wait()
				if inside > ways || waiting > places || waiting > 0 && inside < ways || g.places != places-waiting || g.free != ways-inside {
					rt.Fatalf("%d inside of %d, %d wait of %d; free %d, places %d", inside, ways, waiting, places, g.free, g.places)
				}
			}
			for _, cancel := range cancels {
				cancel()
			}
			for synctest.Wait(); inside > 0; synctest.Wait() {
				inside--
				g.Leave()
			}
		})
	})
}
