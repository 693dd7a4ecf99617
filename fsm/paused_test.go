package fsm

import (
	"errors"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// TestPausedBytes: that a queue is paused is one bit of its settings, so that those of other queues have the bytes they always had.
func TestPausedBytes(t *testing.T) {
	set := queue.Settings{MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1, StopTTL: true}
	plain := appendSettings(nil, &set)
	set.Paused = true
	paused := appendSettings(nil, &set)
	if plain[1] != settingStopTTL || paused[1] != settingStopTTL|16 || string(plain[2:]) != string(paused[2:]) {
		t.Errorf("%x, paused %x", plain, paused)
	}
	r := &reader{b: paused}
	if got := r.settings(); got != set || r.err != nil {
		t.Errorf("%+v %v", got, r.err)
	}
	paused[1] = 32
	r = &reader{b: paused}
	if r.settings(); !errors.Is(r.err, ErrMalformed) {
		t.Errorf("an unknown flag: %v", r.err)
	}
}
