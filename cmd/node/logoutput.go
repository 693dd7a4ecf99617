package main

import (
	"io"
	"sync"
	"time"
)

// logOutputMax is how many bytes of lines wait to be written, logSpareMax how many bytes of memory are kept for those to come.
const (
	logOutputMax = 1 << 20
	logSpareMax  = 64 << 10
)

// logOutput passes lines on to a writer that may hang: a terminal that somebody has stopped, a pipe whose reader waits for a disk. Nobody
// who logs waits for it, since that would be everybody in the end. What there is no room for is left out and counted, and told once the writer goes on.
type logOutput struct {
	w io.Writer
	// tell makes the line that tells of n lines that were left out.
	tell func(n uint64) []byte

	mu      sync.Mutex
	lines   []byte
	lost    uint64
	writing bool
	ended   bool
	wake    chan struct{} // capacity 1; closed at the end
	idle    chan struct{} // closed and replaced when everything is written
}

// newLogOutput begins to write. Whoever calls it calls close.
func newLogOutput(w io.Writer, tell func(n uint64) []byte) *logOutput {
	o := &logOutput{w: w, tell: tell, wake: make(chan struct{}, 1), idle: make(chan struct{})}
	go o.run()
	return o
}

// Write implements io.Writer; slog's handlers write a line at a time. It never waits, and never fails.
func (o *logOutput) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return len(line), nil
	}
	if len(o.lines)+len(line) > logOutputMax {
		o.lost++
	} else {
		o.lines = append(o.lines, line...)
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

func (o *logOutput) run() {
	var spare []byte
	for range o.wake {
		for {
			lines, more := o.take(spare)
			if !more {
				break
			}
			_, _ = o.w.Write(lines) // there is nobody to tell
			spare = lines
		}
	}
}

// take returns what there is to write and keeps spare, which the caller uses no more, for the next lines; more is false if there is nothing, and
// spare the caller's.
func (o *logOutput) take(spare []byte) (lines []byte, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines, lost := o.lines, o.lost
	if o.writing = len(lines) > 0 || lost > 0; !o.writing {
		close(o.idle)
		o.idle = make(chan struct{})
		return nil, false
	}
	if cap(spare) > logSpareMax {
		spare = nil
	}
	o.lines, o.lost = spare[:0], 0
	if lost > 0 { // they came after these
		lines = append(lines, o.tell(lost)...)
	}
	return lines, true
}

// flush waits until what was logged is written, but not for longer than d.
func (o *logOutput) flush(d time.Duration) {
	o.mu.Lock()
	idle := o.idle
	if len(o.lines) == 0 && o.lost == 0 && !o.writing {
		o.mu.Unlock()
		return
	}
	o.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(d):
	}
}

// close waits for the last lines as flush does, and ends what began with newLogOutput, but for a write that hangs: nothing can.
func (o *logOutput) close(d time.Duration) {
	o.flush(d)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	close(o.wake)
}
