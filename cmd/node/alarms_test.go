package main

import (
	"iter"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/cluster/alarm"
	"github.com/warrenmq/warren/transport"
)

// TestEndOfAnAlarmIsHeardLast: a node that links anew while an alarm ends hears the end last, and hears it though it was sent when the link was
// down: else it would keep its publishers blocked for ten seconds.
func TestEndOfAnAlarmIsHeardLast(t *testing.T) {
	const other = transport.NodeID("b/1")
	board := alarm.NewBoard(time.Now)
	held, entered, done := make(chan struct{}), make(chan struct{}, 10), make(chan struct{})
	heard := make(chan alarm.Set, 10)
	var holds, down bool
	a := &alarms{
		n: &running{log: slog.New(slog.DiscardHandler)}, board: board, wake: make(chan struct{}, 1),
		others: func() iter.Seq[transport.NodeID] { return slices.Values([]transport.NodeID{other}) },
	}
	a.send = func(_ transport.NodeID, s alarm.Set) {
		if holds && s != 0 {
			entered <- struct{}{}
			<-held
		}
		if !down {
			heard <- s
		}
	}
	last := func(what string) {
		t.Helper()
		a.tell(a.linked.Swap(false)) // as run does when it is woken
		s := alarm.Set(255)
		for len(heard) > 0 {
			s = <-heard
		}
		if s != 0 {
			t.Errorf("%s: heard %v last", what, s)
		}
	}

	a.set(alarm.MemoryLow, true)
	holds = true
	go func() {
		defer close(done)
		a.peerChanged(transport.PeerStatus{Node: other, Up: true})
	}()
	select {
	case <-entered:
	case <-done:
	}
	a.set(alarm.MemoryLow, false)
	close(held)
	<-done
	last("it linked meanwhile")

	a.set(alarm.DiskLow, true)
	down = true
	a.set(alarm.DiskLow, false)
	down = false
	a.peerChanged(transport.PeerStatus{Node: other, Up: true})
	last("it linked later")
}

// TestNewcomersAreTold: a node that is linked and not in the catalog yet is told, each node once, and one whose link is down only if the catalog has it.
func TestNewcomersAreTold(t *testing.T) {
	const member, newcomer = transport.NodeID("b/1"), transport.NodeID("c/1")
	a := &alarms{wake: make(chan struct{}, 1)}
	told := func() []transport.NodeID {
		return slices.Sorted(a.linkedOr(slices.Values([]transport.NodeID{member})))
	}
	for _, tc := range []struct {
		of   transport.NodeID
		up   bool
		want []transport.NodeID
	}{
		{member, true, []transport.NodeID{member}},
		{newcomer, true, []transport.NodeID{member, newcomer}},
		{member, false, []transport.NodeID{member, newcomer}},
		{newcomer, false, []transport.NodeID{member}},
	} {
		a.peerChanged(transport.PeerStatus{Node: tc.of, Up: tc.up})
		if got := told(); !slices.Equal(got, tc.want) {
			t.Errorf("after %s is up %t: %v, want %v", tc.of, tc.up, got, tc.want)
		}
	}
}
