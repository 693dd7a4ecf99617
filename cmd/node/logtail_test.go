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
	if got, last := tail.last(5); len(got) != 0 || last != 0 {
		t.Errorf("an empty one has %q", got)
	}
	for i := range tailLinesMax + 10 {
		if n, err := fmt.Fprintf(&tail, "line %d\n", i); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	if got, last := tail.last(2); !slices.Equal(got, []string{"line 1008", "line 1009"}) || last != tailLinesMax+10 {
		t.Errorf("%q, the last one is %d", got, last)
	}
	if got, _ := tail.last(1 << 40); len(got) != tailLinesMax || got[0] != "line 10" {
		t.Errorf("%d lines from %q", len(got), got[0])
	}
	long := strings.Repeat("x", 2*tailLineMax)
	for range 100 {
		fmt.Fprintln(&tail, long)
	}
	got, _ := tail.last(1000)
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
	if got, _ := kept.tail.last(10); len(got) != 2 || strings.Join(got, "\n")+"\n" != out.String() {
		t.Errorf("%q, want %q", got, out.String())
	}
}

// TestLogAfter: who asks again and again is told each line once, and how many it has missed.
func TestLogAfter(t *testing.T) {
	var tail logTail
	if got, last, missed := tail.after(7, 5); len(got) != 0 || last != 0 || missed != 0 {
		t.Errorf("an empty one has %q, %d, %d", got, last, missed)
	}
	for i := range 3 {
		fmt.Fprintf(&tail, "line %d\n", i+1)
	}
	for _, tc := range []struct {
		after, last, missed uint64
		lines               string
	}{
		{0, 2, 0, "line 1 line 2"},
		{2, 3, 0, "line 3"},
		{3, 3, 0, ""},
		{4, 2, 0, "line 1 line 2"}, // it was started again
	} {
		if got, last, missed := tail.after(tc.after, 2); strings.Join(got, " ") != tc.lines || last != tc.last || missed != tc.missed {
			t.Errorf("after %d: %q, %d, %d missed", tc.after, got, last, missed)
		}
	}
	for i := range tailLinesMax {
		fmt.Fprintf(&tail, "line %d\n", i+4)
	}
	if got, last, missed := tail.after(1, 1); !slices.Equal(got, []string{"line 4"}) || last != 4 || missed != 2 {
		t.Errorf("%q, %d, %d missed", got, last, missed)
	}
}
