package mover

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/fsm"
)

// Totals are counted by all movers of a node.
type Totals struct {
	Sent       atomic.Uint64 // messages sent to targets, repeats included
	Full       atomic.Uint64 // answers of targets that they are full
	Unanswered atomic.Uint64 // times that a target's leader did not answer within a second
	Lost       atomic.Uint64 // messages that targets had taken and that were lost with most of their replicas
}

// TargetState says how moving to one target goes.
type TargetState uint8

// The states of a target.
const (
	Moving      TargetState = iota // nothing is wrong
	Full                           // the target takes nothing more for now
	Unreachable                    // no leader of the target answers
	Gone                           // the target was deleted; its end is being recorded
)

// String names the state for tools.
func (s TargetState) String() string {
	return [...]string{"moving", "full", "unreachable", "gone"}[s]
}

// Status is what a mover knows beside the outbox.
type Status struct {
	// LastError is the newest trouble, over or not, "" if there was none; LastTarget is the
	// queue it was met with, 0 for none, and At when.
	LastError  string
	LastTarget uint64
	At         time.Time
	// Targets are those that something was sent to, by id.
	Targets map[uint64]TargetStatus
}

// TargetStatus is the state of one target, and since when it is in it.
type TargetStatus struct {
	State TargetState
	Since time.Time
}

// status is what Status shows; guarded by Mover.mu.
type status struct {
	lastError  string
	lastTarget uint64
	at         time.Time
	targets    map[uint64]TargetStatus
	parkedLog  time.Time // when keeping letters without a route was logged last
}

// Status tells how moving goes. It may be called at any time.
func (m *Mover) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{LastError: m.status.lastError, LastTarget: m.status.lastTarget, At: m.status.at, Targets: map[uint64]TargetStatus{}}
	maps.Copy(s.Targets, m.status.targets)
	return s
}

// show notes a target's state, and what is wrong if something is.
func (m *Mover) show(target uint64, s TargetState, trouble string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.status.targets[target]; !ok || old.State != s {
		if m.status.targets == nil {
			m.status.targets = map[uint64]TargetStatus{}
		}
		m.status.targets[target] = TargetStatus{s, time.Now()}
	}
	if trouble != "" {
		m.failedLocked(trouble, target)
	}
}

func (m *Mover) unshow(target uint64) {
	m.mu.Lock()
	delete(m.status.targets, target)
	m.mu.Unlock()
}

// failed notes trouble that is not one target's.
func (m *Mover) failed(trouble string) {
	m.mu.Lock()
	m.failedLocked(trouble, 0)
	m.mu.Unlock()
}

func (m *Mover) failedLocked(trouble string, target uint64) {
	m.status.lastError, m.status.lastTarget, m.status.at = trouble, target, time.Now()
}

// parkedLogEvery is the least time between two log lines on letters that are kept without
// a route.
const parkedLogEvery = time.Minute

// nowhere notes that a letter has no target.
func (m *Mover) nowhere(d fsm.NoRoute, found bool, s deadSettings) {
	var why string
	switch {
	case d == fsm.DropCycle || d == fsm.ParkCycle || d == fsm.Stay:
		why = fmt.Sprintf("exchange %q routes a dead letter only back to where it came from", s.set.DeadLetterExchange)
	case !found:
		why = fmt.Sprintf("there is no exchange %q", s.set.DeadLetterExchange)
	default:
		why = fmt.Sprintf("exchange %q routes a dead letter nowhere", s.set.DeadLetterExchange)
	}
	now := time.Now()
	m.mu.Lock()
	m.failedLocked(why, 0)
	_, kept := d.State()
	kept = kept || d == fsm.Stay // it is not at its place any more
	due := kept && (m.status.parkedLog.IsZero() || now.Sub(m.status.parkedLog) >= parkedLogEvery)
	if due {
		m.status.parkedLog = now
	}
	m.mu.Unlock()
	if due {
		m.cfg.Logger.Warn("dead letters kept without a route", "queue", s.name, "vhost", s.vhost, "id", m.cfg.Queue, "why", why)
	}
}
