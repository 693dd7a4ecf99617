package passwords

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

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
