// Package passwords checks and makes password hashes that take long by design, without letting that take the node.
//
// A [Keeper] computes few of them at a time; others wait their turn, a bounded number for a bounded time. It remembers
// which passwords were right, so that who logs in for every request pays once: not the passwords, but a keyed hash of user,
// password and stored hash, with a key that never leaves the process. What is remembered is worth nothing once the user's stored hash is
// another one. A wrong password, an unknown user and a user without a password take equally long.
//
// Hashes of RabbitMQ's, which take a microsecond, pass by all of this. A Keeper has no goroutines and is safe for concurrent use.
package passwords

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/auth/gate"
)

// ErrBusy reports that too many logins wait to be looked at. It says nothing about the password.
var ErrBusy = errors.New("too many logins at a time")

// Config bounds a Keeper. All fields but Hashing are required.
type Config struct {
	// Hashing is how new passwords are hashed.
	Hashing auth.Hashing
	// Parallel is how many hashes are computed at a time, each on a processor of its own.
	Parallel int
	// Waiting is how many more may wait for that, and Wait how long.
	Waiting int
	Wait    time.Duration
	// Known is how many right passwords are remembered.
	Known int
}

// Keeper checks and makes hashes.
type Keeper struct {
	cfg  Config
	gate *gate.Gate
	key  [sha256.Size]byte

	mu    sync.Mutex
	known *simplelru.LRU[mark, struct{}]
	// decoy is what an unknown user's password is compared with: as costly as the hashing, or as the costliest hash that was met.
	decoy auth.PasswordHash

	computed, remembered atomic.Uint64
}

// mark stands for a user, a password and a stored hash that fit.
type mark [sha256.Size]byte

// New returns a Keeper that remembers nothing.
func New(cfg Config) *Keeper {
	known, err := simplelru.NewLRU[mark, struct{}](cfg.Known, nil)
	if err != nil {
		panic(fmt.Sprintf("passwords: %v", err)) // not a size
	}
	k := &Keeper{cfg: cfg, gate: gate.New(cfg.Parallel, cfg.Waiting), known: known, decoy: cfg.Hashing.Decoy()}
	_, _ = rand.Read(k.key[:]) // never fails, by its documentation
	return k
}

// Try is somebody who wants to log in.
type Try struct {
	// Source is where they come from: those of one source wait for each other first.
	Source string
	// Name is whom they name, and User that user, nil if there is none.
	Name     string
	User     *auth.User
	Password string
	// Still is asked when a wait is over, if it is not nil: an error of it ends the try before anything is computed.
	Still func() error
}

// Check returns nil if the password is that of the user. Else the error wraps [auth.ErrLogin] or [ErrBusy], or is that of Still; its
// text is for the log.
func (k *Keeper) Check(ctx context.Context, t *Try) error {
	wrong := fmt.Errorf("%w: wrong password for user '%s'", auth.ErrLogin, t.Name)
	stored := auth.PasswordHash("")
	if t.User == nil {
		wrong = fmt.Errorf("%w: no such user", auth.ErrLogin)
	} else {
		stored = t.User.PasswordHash
	}
	if !stored.Costly() {
		if stored.Matches(t.Password) {
			return nil
		}
		if stored = k.decoyNow(); stored == "" {
			return wrong
		}
	}
	m := k.mark(t.Name, t.Password, stored)
	if k.knows(m) {
		return nil
	}
	if err := k.enter(ctx, t.Source); err != nil {
		return err
	}
	defer k.gate.Leave()
	if k.knows(m) { // many clients of one application came at once, and the first one was right
		return nil
	}
	if t.Still != nil {
		if err := t.Still(); err != nil {
			return err
		}
	}
	k.computed.Add(1)
	matches := stored.Matches(t.Password)
	k.mu.Lock()
	defer k.mu.Unlock()
	if cost := stored.BcryptCost(); cost > k.decoy.BcryptCost() {
		k.decoy = auth.Hashing{BcryptCost: cost}.Decoy()
	}
	if !matches {
		return wrong
	}
	k.known.Add(m, struct{}{})
	return nil
}

// Hash hashes a new password. The error is [ErrBusy], or says which passwords can not be hashed.
func (k *Keeper) Hash(ctx context.Context, source, password string) (auth.PasswordHash, error) {
	if k.cfg.Hashing.BcryptCost > 0 {
		if err := k.enter(ctx, source); err != nil {
			return "", err
		}
		defer k.gate.Leave()
		k.computed.Add(1)
	}
	return k.cfg.Hashing.Hash(password)
}

func (k *Keeper) enter(ctx context.Context, source string) error {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Wait)
	defer cancel()
	if !k.gate.Enter(ctx, source) {
		return ErrBusy
	}
	return nil
}

func (k *Keeper) decoyNow() auth.PasswordHash {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.decoy
}

func (k *Keeper) knows(m mark) bool {
	k.mu.Lock()
	_, ok := k.known.Get(m)
	k.mu.Unlock()
	if ok {
		k.remembered.Add(1)
	}
	return ok
}

func (k *Keeper) mark(name, password string, stored auth.PasswordHash) (m mark) {
	h := hmac.New(sha256.New, k.key[:])
	for _, s := range []string{name, password, string(stored)} {
		writeText(h, s)
	}
	h.Sum(m[:0])
	return m
}

// writeText writes a text so that two of them can not be taken for one.
func writeText(h hash.Hash, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	_, _ = h.Write(n[:]) // never fails
	_, _ = h.Write([]byte(s))
}

// Counts are what became of checks of costly hashes.
type Counts struct {
	// Computed were looked at, Remembered were known to be right, Busy had no turn.
	Computed, Remembered, Busy uint64
}

// Counts are those since New.
func (k *Keeper) Counts() Counts {
	return Counts{k.computed.Load(), k.remembered.Load(), k.gate.Refused()}
}
