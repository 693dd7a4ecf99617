// Package trace keeps what a simulation has seen, and which promises were broken in it.
package trace

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// failuresMax bounds the failures kept of a run.
const failuresMax = 20

// Trace is what has happened in a run, by the clock of the caller's bubble. Its methods may be called at the same time.
type Trace struct {
	began time.Time
	live  io.Writer

	mu       sync.Mutex // guards the rest
	lines    []string
	failures []string
}

// New returns an empty trace that begins now. live gets its lines as they come; it may be nil.
func New(live io.Writer) *Trace { return &Trace{began: time.Now(), live: live} }

// Fail records a broken promise.
func (t *Trace) Fail(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.write(format+"  <== FAILED", args...)
	if len(t.failures) < failuresMax {
		t.failures = append(t.failures, line)
	}
}

// Note records an event.
func (t *Trace) Note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write(format, args...)
}

// write adds a line. Called with mu held.
func (t *Trace) write(format string, args ...any) string {
	line := fmt.Sprintf("%10.4fs ", time.Since(t.began).Seconds()) + fmt.Sprintf(format, args...)
	t.lines = append(t.lines, line)
	if t.live != nil {
		fmt.Fprintln(t.live, line)
	}
	return line
}

// OK tells whether no promise has been broken so far.
func (t *Trace) OK() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) == 0
}

// Verdict is what is wrong with the run of a seed, which ended with err, with all that has happened; nil if nothing is.
func (t *Trace) Verdict(seed uint64, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && len(t.failures) == 0 {
		return nil
	}
	return fmt.Errorf("seed %d: %w\n%s\ntrace:\n%s", seed, errors.Join(err, fmt.Errorf("promises broken: %d", len(t.failures))),
		strings.Join(t.failures, "\n"), strings.Join(t.lines, "\n"))
}
