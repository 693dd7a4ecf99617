package dirty

import (
	"bytes"
	"sync/atomic"
)

// poisoned is what returned memory is filled with.
var poisoned = bytes.Repeat([]byte{0xDB}, 4<<10)

var poisoning atomic.Bool

// Poison has what is returned filled with a pattern from now on, so that whoever still reads it reads nonsense, and
// Lend panic when somebody has written to it meanwhile. For tests; builds with the tag invariants always do it.
func Poison() { poisoning.Store(true) }

// Spoil fills b, which somebody keeps to be used again, if what is returned is filled.
func Spoil(b []byte) {
	if poisoning.Load() {
		fill(b)
	}
}

func fill(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, poisoned):]
	}
}

// untouched reports whether b is as fill left it.
func untouched(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(poisoned))
		if !bytes.Equal(b[:n], poisoned[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}
