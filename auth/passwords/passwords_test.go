package passwords

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/auth"
)

var quick = auth.Hashing{BcryptCost: auth.BcryptCostMin}

func keeper(t *testing.T, change func(*Config)) *Keeper {
	t.Helper()
	cfg := Config{Hashing: quick, Parallel: 1, Waiting: 8, Wait: time.Minute, Known: 16}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func user(t *testing.T, h auth.Hashing, password string) *auth.User {
	t.Helper()
	hash, err := h.Hash(password)
	if err != nil {
		t.Fatal(err)
	}
	return &auth.User{Name: "u", PasswordHash: hash}
}

func try(u *auth.User, password string) *Try {
	return &Try{Source: "10.0.0.1", Name: "u", User: u, Password: password}
}

// TestCheck counts what is computed for right, wrong and unknown.
func TestCheck(t *testing.T) {
	k := keeper(t, nil)
	u := user(t, quick, "right")
	step := func(what string, t2 *Try, want error, computed, remembered uint64) {
		t.Helper()
		before := k.Counts()
		if err := k.Check(t.Context(), t2); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if c := k.Counts(); c.Computed-before.Computed != computed || c.Remembered-before.Remembered != remembered {
			t.Errorf("%s: %+v, before %+v", what, c, before)
		}
	}
	step("right", try(u, "right"), nil, 1, 0)
	step("right again", try(u, "right"), nil, 0, 1)
	step("wrong", try(u, "wrong"), auth.ErrLogin, 1, 0)
	step("wrong again", try(u, "wrong"), auth.ErrLogin, 1, 0)
	step("empty", try(u, ""), auth.ErrLogin, 1, 0)
	step("nobody", try(nil, "right"), auth.ErrLogin, 1, 0)
	step("without a password", try(&auth.User{Name: "u"}, "right"), auth.ErrLogin, 1, 0)
	other := try(u, "right")
	other.Name, other.User = "v", &auth.User{Name: "v", PasswordHash: u.PasswordHash}
	step("another user with the same hash", other, nil, 1, 0)
	step("a new hash of the same password", try(user(t, quick, "right"), "right"), nil, 1, 0)
	step("a new password", try(user(t, quick, "new"), "right"), auth.ErrLogin, 1, 0)
	step("RabbitMQ's hash", try(user(t, auth.Hashing{}, "right"), "right"), nil, 0, 0)
	step("wrong for RabbitMQ's hash", try(user(t, auth.Hashing{}, "right"), "wrong"), auth.ErrLogin, 1, 0)
	held := try(u, "wrong")
	held.Still = func() error { return errors.ErrUnsupported }
	step("held up", held, errors.ErrUnsupported, 0, 0)
	for i := range 20 { // forgets the oldest
		hash := user(t, quick, fmt.Sprint(i))
		step("one of many", try(hash, fmt.Sprint(i)), nil, 1, 0)
	}
	step("right, forgotten", try(u, "right"), nil, 1, 0)
	if h, err := k.Hash(t.Context(), "", "x"); err != nil || !h.Matches("x") || h.BcryptCost() != quick.BcryptCost {
		t.Errorf("%s %v", string(h), err)
	}
}

// TestDecoyGrows makes unknown users as slow as the costliest hash that was met, whatever new ones are.
func TestDecoyGrows(t *testing.T) {
	k := keeper(t, func(c *Config) { c.Hashing = auth.Hashing{} })
	if _ = k.Check(t.Context(), try(nil, "x")); k.Counts().Computed != 0 {
		t.Error("computed where all hashes are cheap")
	}
	for _, cost := range []int{5, 4} {
		if err := k.Check(t.Context(), try(user(t, auth.Hashing{BcryptCost: cost}, "x"), "x")); err != nil {
			t.Error(err)
		}
		before := k.Counts().Computed
		if err := k.Check(t.Context(), try(nil, "x")); !errors.Is(err, auth.ErrLogin) || k.Counts().Computed != before+1 || k.decoy.BcryptCost() != 5 {
			t.Errorf("after cost %d: %v, decoy of %d", cost, err, k.decoy.BcryptCost())
		}
	}
}

// TestSamePasswordAtOnce has many clients of one application come at once: one hash is computed.
func TestSamePasswordAtOnce(t *testing.T) {
	k := keeper(t, func(c *Config) { c.Waiting = 100 })
	u := user(t, auth.Hashing{BcryptCost: 8}, "right")
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := k.Check(t.Context(), try(u, "right")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if c := k.Counts(); c != (Counts{Computed: 1, Remembered: 49}) {
		t.Errorf("%+v", c)
	}
}

// TestGateTakesTurns has one source fill all places, and another one come through after one turn.
func TestGateTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 3)
		if !g.enter(t.Context(), "a") {
			t.Fatal("no way through")
		}
		var mu sync.Mutex
		order := ""
		come := func(source string) {
			go func() {
				ok := g.enter(t.Context(), source)
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
			g.leave()
			synctest.Wait()
		}
		if order != "-a-a-aaba" {
			t.Errorf("turns: %s", order)
		}
		g.leave()
		if g.free != 1 || g.places != 3 || len(g.lines) != 0 || len(g.turns) != 0 || g.refused != 3 {
			t.Errorf("left %+v", g)
		}
		g.enter(t.Context(), "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if g.enter(ctx, "b") || g.places != 3 || len(g.lines) != 0 {
			t.Error("waits longer than it may")
		}
		g.leave()
		if g.free != 1 {
			t.Error("a turn is lost with who did not wait")
		}
	})
}

// TestGate has sources come, give up and leave in any order: no more are inside than may be, nobody waits while there is a way, and no
// place is lost.
func TestGate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			ways, places := rapid.IntRange(1, 3).Draw(rt, "ways"), rapid.IntRange(0, 5).Draw(rt, "places")
			g := newGate(ways, places)
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
						ok := g.enter(ctx, source)
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
					g.leave()
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
				g.leave()
			}
		})
	})
}
