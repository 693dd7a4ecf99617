package main

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/transport"
)

// TestFoundersAreWaitedFor has a founding member that the catalog knows late, that it never knows although it runs, and that has died.
func TestFoundersAreWaitedFor(t *testing.T) {
	for _, tc := range []struct {
		name   string
		after  time.Duration // until it is known
		linked bool
		least  time.Duration // of the waiting
		most   time.Duration
	}{
		{"there at once", 0, true, 0, 0},
		{"late", 20 * time.Second, true, 20 * time.Second, 21 * time.Second},
		{"stuck", time.Hour, true, foundersWait, foundersWait + time.Second},
		{"dead", time.Hour, false, foundersPatience, foundersPatience + time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				why := ""
				f := founders{
					members: []transport.NodeID{"a/1", "b/2"},
					known:   func(id transport.NodeID) bool { return id == "a/1" || time.Since(begun) >= tc.after },
					linked:  func(id transport.NodeID) bool { return id == "a/1" || tc.linked },
					waiting: func(s string) { why = s },
					log:     slog.New(slog.DiscardHandler),
				}
				if err := f.await(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took < tc.least || took > tc.most {
					t.Errorf("waited for %v, want %v to %v", took, tc.least, tc.most)
				}
				if tc.after > 0 && why != "waiting for founding members: b" {
					t.Errorf("says %q", why)
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				if err := f.await(ended); tc.after == time.Hour && err == nil {
					t.Error("waits although the node is to stop")
				}
			})
		})
	}
}
