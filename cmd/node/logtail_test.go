package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/config"
)

func TestLogTail(t *testing.T) {
	var tail logTail
	if got := tail.last(5); len(got) != 0 {
		t.Errorf("an empty one has %q", got)
	}
	for i := range tailLinesMax + 10 {
		if n, err := fmt.Fprintf(&tail, "line %d\n", i); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	if got, want := tail.last(2), []string{"line 1008", "line 1009"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := tail.last(1 << 40); len(got) != tailLinesMax || got[0] != "line 10" {
		t.Errorf("%d lines from %q", len(got), got[0])
	}
	long := strings.Repeat("x", 2*tailLineMax)
	for range 100 {
		fmt.Fprintln(&tail, long)
	}
	got := tail.last(1000)
	if n := len(strings.Join(got, "")); n > tailBytesMax || n < tailBytesMax-tailLineMax || len(got[0]) != tailLineMax {
		t.Errorf("%d lines of %d bytes together", len(got), n)
	}
}

// The logger writes what it did before, and the tail has the same.
func TestLoggerHasATail(t *testing.T) {
	var out bytes.Buffer
	log, kept := newLogger(&out, config.Default())
	log.Info("first", "a", 1)
	log.Debug("not logged")
	kept.level.Set(slog.LevelDebug)
	log.Debug("second")
	if got := kept.tail.last(10); len(got) != 2 || strings.Join(got, "\n")+"\n" != out.String() {
		t.Errorf("%q, want %q", got, out.String())
	}
}
