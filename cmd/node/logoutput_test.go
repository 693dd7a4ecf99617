package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/config"
)

// hanging is a writer that hangs while nothing is in free.
type hanging struct {
	free chan struct{}
	bytes.Buffer
}

func (h *hanging) Write(b []byte) (int, error) {
	<-h.free
	defer func() { h.free <- struct{}{} }()
	return h.Buffer.Write(b)
}

// TestLogOutput: lines come out whole and in their order; nobody who logs waits for a writer that hangs, and what was left out meanwhile is told.
func TestLogOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &hanging{free: make(chan struct{}, 1)}
		cfg := config.Default()
		o := newLogOutput(w, leftOut(cfg))
		log, _ := newLogger(o, cfg)
		log.Info("first")
		synctest.Wait() // it hangs with this one
		text := strings.Repeat("x", 1000)
		lines := 0
		for range 2 * logOutputMax / len(text) {
			log.Info(text)
			lines++
		}
		begun := time.Now()
		o.flush(time.Second)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("flush took %v", took)
		}
		w.free <- struct{}{}
		o.flush(time.Second)
		log.Info("last")
		o.close(time.Second)
		log.Info("after the end")
		<-w.free
		out := w.String()
		if !strings.Contains(out, "msg=first") || !strings.Contains(out, "msg=last") || strings.Contains(out, "after the end") {
			t.Errorf("it begins with %.200q and ends with %q", out, out[max(0, len(out)-200):])
		}
		written := strings.Count(out, text)
		told := fmt.Sprintf(" lines=%d\n", lines-written)
		if _, behind, ok := strings.Cut(out, "lines of the log are left out, which nobody took"); !ok || !strings.Contains(behind, told) || written < lines/3 {
			t.Errorf("%d of %d lines are written; the end: %q", written, lines, out[max(0, len(out)-400):])
		}
	})
}

// TestLogOutputIsPrompt: a line is written at once, and at the end all are.
func TestLogOutputIsPrompt(t *testing.T) {
	r, w := io.Pipe()
	o := newLogOutput(w, leftOut(config.Default()))
	_, _ = io.WriteString(o, "a line\n")
	line := make([]byte, 100)
	n, err := r.Read(line)
	if err != nil || string(line[:n]) != "a line\n" {
		t.Errorf("%q, %v", line[:n], err)
	}
	o.close(time.Minute)
}

// TestLogOutputOfMany: lines of many goroutines come out whole, each once, those of one in their order.
func TestLogOutputOfMany(t *testing.T) {
	var out bytes.Buffer // is read when everything is written
	o := newLogOutput(&out, leftOut(config.Default()))
	const writers, each = 8, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				fmt.Fprintf(o, "writer %d line %d %s\n", w, i, strings.Repeat("x", i%50))
				if i%20 == 0 {
					o.flush(time.Minute)
				}
			}
		})
	}
	wg.Wait()
	o.close(time.Minute)
	var next [writers]int
	for line := range strings.Lines(out.String()) {
		var w, i int
		if _, err := fmt.Sscanf(line, "writer %d line %d", &w, &i); err != nil || i != next[w] || !strings.HasSuffix(line, " "+strings.Repeat("x", i%50)+"\n") {
			t.Fatalf("%q behind line %d: %v", line, next[w], err)
		}
		next[w]++
	}
	for w, n := range next {
		if n != each {
			t.Errorf("%d of %d lines of writer %d", n, each, w)
		}
	}
}
