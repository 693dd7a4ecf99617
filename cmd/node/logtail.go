package main

import (
	"bytes"
	"log/slog"
	"slices"
	"sync"
)

// logs is a node's log as it can be looked at and changed while the node runs.
type logs struct {
	level slog.LevelVar
	tail  logTail
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
}

// Write implements io.Writer; slog's handlers write a line at a time. It never fails.
func (t *logTail) Write(line []byte) (int, error) {
	kept := bytes.TrimSuffix(line, []byte("\n"))
	kept = bytes.Clone(kept[:min(len(kept), tailLineMax)])
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, kept)
	t.bytes += len(kept)
	drop := 0
	for len(t.lines)-drop > tailLinesMax || t.bytes > tailBytesMax {
		t.bytes -= len(t.lines[drop])
		drop++
	}
	t.lines = slices.Delete(t.lines, 0, drop)
	return len(line), nil
}

// last returns the newest n lines, or as many as are kept, oldest first.
func (t *logTail) last(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]string, 0, min(n, len(t.lines)))
	for _, l := range t.lines[max(0, len(t.lines)-n):] {
		list = append(list, string(l))
	}
	return list
}
