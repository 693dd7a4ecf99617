package ctl

import (
	"errors"
	"strings"
	"testing"
)

// TestReadAnswer: an answer is read to its end or not at all.
func TestReadAnswer(t *testing.T) {
	for n, want := range map[int]error{0: nil, 9: nil, 10: nil, 11: errLarge, 99: errLarge} {
		raw, err := readAnswer(strings.NewReader(strings.Repeat("x", n)), 10)
		if !errors.Is(err, want) || err == nil && len(raw) != n {
			t.Errorf("%d bytes: %d, %v", n, len(raw), err)
		}
	}
}

// TestChangeThatMayHaveBeenMade: what got no answer in time is told from what was not done, by the exit code that is documented for it; looking changes nothing.
func TestChangeThatMayHaveBeenMade(t *testing.T) {
	late, not := says(503, `{"error":"timeout","reason":"operation timed out"}`), says(503, `{"error":"service_unavailable","reason":"no leader"}`)
	if code, _, failure := run(t, late, "add_vhost", "v"); code != ExitTimeout || !strings.Contains(failure, "may have been made") {
		t.Errorf("a change: %d %s", code, failure)
	}
	if code, _, failure := run(t, late, "list_vhosts"); code != ExitUnavailable {
		t.Errorf("a look: %d %s", code, failure)
	}
	if code, _, failure := run(t, not, "add_vhost", "v"); code != ExitUnavailable || strings.Contains(failure, "may have been made") {
		t.Errorf("what was not done: %d %s", code, failure)
	}
}
