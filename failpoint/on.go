//go:build failpoints

package failpoint

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Enabled tells whether this build has failpoints.
const Enabled = true

// EnvArmed is the environment variable with the points that are armed at the start.
const EnvArmed = "WARREN_FAILPOINTS"

// holdMax bounds how long a goroutine is held, so that a test that went away leaves
// no node behind that cannot be stopped.
const holdMax = time.Minute

// Action is what happens at an armed point.
type Action string

// The actions.
const (
	Kill  Action = "kill"
	Hold  Action = "hold"
	Count Action = "count"
)

// Trap is an armed point.
type Trap struct {
	Point  Point  `json:"point"`
	Queue  uint64 `json:"queue"` // 0: any
	Action Action `json:"action"`
	At     uint64 `json:"at"` // the pass that counts, from 1
}

// Armed is a Trap and what has happened at it.
type Armed struct {
	Trap
	Passes uint64 `json:"passes"`
	Held   bool   `json:"held"`
}

type trap struct {
	Trap
	passes  atomic.Uint64
	held    atomic.Bool
	release chan struct{}
}

// armed is replaced as a whole; nil while nothing is armed.
var armed atomic.Pointer[[]*trap]

// arming serialises changes of armed.
var arming sync.Mutex

func init() {
	if err := armAll(os.Getenv(EnvArmed)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", EnvArmed, err)
		os.Exit(2)
	}
}

// armAll arms what a list like "move.routed:17=kill@3;move.taken=count" names.
func armAll(list string) error {
	for text := range strings.SplitSeq(list, ";") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		t, err := parse(text)
		if err == nil {
			err = Arm(t)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
	}
	return nil
}

func parse(text string) (t Trap, err error) {
	where, what, ok := strings.Cut(text, "=")
	if !ok {
		return t, errors.New("is not of the form point[:queue]=action[@pass]")
	}
	point, queue, some := strings.Cut(where, ":")
	if some {
		if t.Queue, err = strconv.ParseUint(queue, 10, 64); err != nil {
			return t, err
		}
	}
	action, at, some := strings.Cut(what, "@")
	t.Point, t.Action, t.At = Point(point), Action(action), 1
	if some {
		t.At, err = strconv.ParseUint(at, 10, 64)
	}
	return t, err
}

// Arm arms a point, besides those that are armed already.
func Arm(t Trap) error {
	if !slices.Contains(Points(), t.Point) {
		return fmt.Errorf("there is no point %q", t.Point)
	}
	if !slices.Contains([]Action{Kill, Hold, Count}, t.Action) {
		return fmt.Errorf("there is no action %q", t.Action)
	}
	if t.At == 0 {
		return errors.New("passes count from 1")
	}
	arming.Lock()
	defer arming.Unlock()
	list := append(slices.Clone(current()), &trap{Trap: t, release: make(chan struct{})})
	armed.Store(&list)
	return nil
}

// Disarm takes all points away and releases what is held.
func Disarm() {
	arming.Lock()
	defer arming.Unlock()
	for _, t := range current() {
		close(t.release)
	}
	armed.Store(nil)
}

func current() []*trap {
	if list := armed.Load(); list != nil {
		return *list
	}
	return nil
}

// State lists the armed points.
func State() []Armed {
	list := []Armed{}
	for _, t := range current() {
		list = append(list, Armed{t.Trap, t.passes.Load(), t.held.Load()})
	}
	return list
}

// Pass is called at a point by what works for the queue.
func Pass(p Point, queue uint64) {
	for _, t := range current() {
		if t.Point == p && (t.Queue == 0 || t.Queue == queue) && t.passes.Add(1) == t.At {
			t.spring()
		}
	}
}

// Passing is a function that passes the point, nil if there are no failpoints.
func Passing(p Point, queue uint64) func() { return func() { Pass(p, queue) } }

func (t *trap) spring() {
	switch t.Action {
	case Kill:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing behind the point may happen before the signal has come
	case Hold:
		t.held.Store(true)
		defer t.held.Store(false)
		late := time.NewTimer(holdMax)
		defer late.Stop()
		select {
		case <-t.release:
		case <-late.C:
		}
	}
}
