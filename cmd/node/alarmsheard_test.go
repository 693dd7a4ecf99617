package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/transport"
)

// TestClientsWaitForAlarms: a node that starts has clients when it has heard of all that may be in alarm, at once if all are known to be away, and
// after a second in any case.
func TestClientsWaitForAlarms(t *testing.T) {
	for name, tc := range map[string]struct {
		heard, gone, want time.Duration // after the start; never if negative
	}{
		"heard before":           {0, -1, 0},
		"heard later":            {300 * time.Millisecond, -1, 300 * time.Millisecond},
		"does not run":           {-1, 0, 0},
		"found not to run later": {-1, 500 * time.Millisecond, 500 * time.Millisecond},
		"silent":                 {-1, -1, alarmsPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				told := 0
				is := func(at time.Duration) bool { return at >= 0 && time.Since(begun) >= at }
				err := words{
					others:  func() []transport.NodeID { return []transport.NodeID{"b/1"} },
					heard:   func(transport.NodeID) bool { return is(tc.heard) },
					gone:    func(transport.NodeID) bool { return is(tc.gone) },
					tell:    func() { told++ },
					waiting: func(string) {}, log: slog.New(slog.DiscardHandler),
				}.await(t.Context())
				if took := time.Since(begun); err != nil || took < tc.want || took > tc.want+2*alarmsPoll {
					t.Errorf("%v after %v, want %v", err, took, tc.want)
				}
				if told == 0 {
					t.Error("others were not told")
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := words{
		others: func() []transport.NodeID { return []transport.NodeID{"b/1"} }, heard: func(transport.NodeID) bool { return false },
		gone: func(transport.NodeID) bool { return false }, tell: func() {}, waiting: func(string) {}, log: slog.New(slog.DiscardHandler),
	}.await(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
