package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

func TestDeadLettersAreGrouped(t *testing.T) {
	b, c := deadLetterRig(t)
	c.kill("a", "a1", "a2")
	c.kill("b", "b1")
	c.put("dlq", "stray", nil)
	c.await("the dead letters", func() bool { return len(c.bodies(b, "dlq")) == 4 })
	got, err := b.DeadLetters(t.Context(), User{Name: "guest"}, "/", "dlq")
	if err != nil || !got.Complete || got.Looked != 4 || got.NeverDied != 1 || len(got.Groups) != 2 {
		t.Fatalf("%+v: %v", got, err)
	}
	for i, want := range []DeadGroup{{Reason: "rejected", Queue: "a", Messages: 2, Bytes: 4}, {Reason: "rejected", Queue: "b", Messages: 1, Bytes: 2}} {
		g := got.Groups[i]
		if g.Reason != want.Reason || g.Queue != want.Queue || g.Messages != want.Messages || g.Bytes != want.Bytes || g.Ages[0] != want.Messages || g.Oldest > g.Newest || g.Oldest == 0 {
			t.Errorf("%+v, want %+v", g, want)
		}
	}
	if _, err := b.DeadLetters(t.Context(), User{Name: "guest"}, "/", "none"); err == nil {
		t.Error("of no queue")
	}
}

// TestDeadLetterAges: each age is in one part, and groups beyond the bound are counted without a name.
func TestDeadLetterAges(t *testing.T) {
	const now = int64(1_700_000_000_000)
	var d DeadLetters
	for i, age := range []time.Duration{-time.Second, time.Minute - 1, time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 1000 * 24 * time.Hour} {
		d.add(&fsm.Message{Deaths: []dlx.Death{{Queue: "q", Reason: dlx.Expired, LastMillis: now - age.Milliseconds()}}, Body: make([]byte, i)}, now)
	}
	if g := d.Groups[0]; len(d.Groups) != 1 || g.Ages != [5]uint64{2, 1, 1, 1, 2} || g.Bytes != 21 || g.Messages != 7 {
		t.Errorf("%+v", d)
	}
	for i := range deadGroupsMax + 5 {
		d.add(&fsm.Message{Deaths: []dlx.Death{{Queue: fmt.Sprint(i), Reason: dlx.Rejected, LastMillis: now}}}, now)
	}
	if len(d.Groups) != deadGroupsMax || d.Others != 6 || d.Looked != 7+deadGroupsMax+5 {
		t.Errorf("%d groups, %d others, %d looked at", len(d.Groups), d.Others, d.Looked)
	}
}
