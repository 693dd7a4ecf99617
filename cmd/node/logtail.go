package main

import (
	"bytes"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// logs is a node's log as it can be looked at and changed while the node runs.
type logs struct {
	level slog.LevelVar
	tail  logTail
	// flush waits for d at most until everything is written that was logged; nil if that is so anyway.
	flush func(d time.Duration)
}

// Bounds of what is kept of the log.
const (
	tailLinesMax = 1000
	tailBytesMax = 256 << 10
	tailLineMax  = 8 << 10 // bytes of one line; the rest of it is left out
)

// logTail keeps the newest lines of the log: who asks a node from elsewhere does not see its standard error.
type logTail struct {
	mu    sync.Mutex
	lines [][]byte // oldest first
	bytes int
	count uint64 // of all lines ever: the number of the newest
}

// Write implements io.Writer; slog's handlers write a line at a time. It never fails.
func (t *logTail) Write(line []byte) (int, error) {
	kept := bytes.TrimSuffix(line, []byte("\n"))
	kept = bytes.Clone(kept[:min(len(kept), tailLineMax)])
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, kept)
	t.bytes += len(kept)
	t.count++
	drop := 0
	for len(t.lines)-drop > tailLinesMax || t.bytes > tailBytesMax {
		t.bytes -= len(t.lines[drop])
		drop++
	}
	t.lines = slices.Delete(t.lines, 0, drop)
	return len(line), nil
}

// last returns the newest n lines, or as many as are kept, oldest first, and the number of the newest.
func (t *logTail) last(n int) (list []string, number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.from(max(0, len(t.lines)-n), n), t.count
}

// after returns the lines behind the one of this number that are kept, the oldest first and n at most, the number of the last of them, and how many
// in between are not kept any more. A number that there was not yet is of a node that was started again since: all lines are behind it.
func (t *logTail) after(number uint64, n int) (list []string, last, missed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if number > t.count {
		number = 0
	}
	oldest := t.count - uint64(len(t.lines)) // is behind this one
	if number < oldest {
		missed, number = oldest-number, oldest
	}
	list = t.from(int(number-oldest), n)
	return list, number + uint64(len(list)), missed
}

// from copies lines; the mutex is held.
func (t *logTail) from(i, n int) []string {
	list := make([]string, 0, min(n, len(t.lines)-i))
	for _, l := range t.lines[i:min(len(t.lines), i+cap(list))] {
		list = append(list, string(l))
	}
	return list
}
