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
