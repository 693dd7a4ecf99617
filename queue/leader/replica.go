package leader

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Replica is the machine of one queue on one node. Its mutex serialises apply
// with the leader's reading.
type Replica struct {
	mu      sync.Mutex
	machine *fsm.Machine

	leader atomic.Pointer[Leader]
	made   atomic.Pointer[made] // nil before the first
}

// NewReplica returns a replica with an empty machine.
func NewReplica() *Replica { return &Replica{machine: fsm.New()} }

// Apply applies one log entry and hands its result to the leader, if this node
// leads. It is called by the log, in order, from one goroutine at a time.
func (r *Replica) Apply(index uint64, data []byte) {
	if failpoint.Sown(failpoint.LocalClock) {
		data = retimed(data)
	}
	r.mu.Lock()
	first := r.machine.Index() == 0
	before := r.machine.Arrivals()
	res := r.machine.Apply(index, data)
	came := r.machine.Arrivals().Since(before)
	l := r.leader.Load()
	var s seen
	var set queue.Settings
	observed := l != nil && l.observes(&res)
	if l != nil {
		s = look(r.machine)
	}
	if observed {
		set = r.machine.Settings()
	}
	r.mu.Unlock()
	if observed {
		l.cfg.Observe(&res, &set)
	}
	if came != (fsm.Arrivals{}) && l != nil && l.cfg.Arrived != nil && res.Session == l.cfg.Session {
		l.cfg.Arrived(came)
	}
	if l != nil {
		l.post(applied{res, s, first})
	}
}

// observes tells whether an entry is this session's to count: each is counted on one node
// at most, however many replicas apply it.
func (l *Leader) observes(res *fsm.Result) bool {
	return l.cfg.Observe != nil && res.Session == l.cfg.Session && (res.Dead != nil || len(res.Dropped) > 0)
}

// seen is what the leader reads of a machine most often.
type seen struct {
	n, bytes             int64 // live messages and their body bytes
	tail, mark           queue.MessageID
	outboxN, outboxBytes int64
	tenure               fsm.Tenure
}

func look(m *fsm.Machine) seen {
	q, o := m.Queue(), m.Outbox()
	return seen{
		n: int64(q.Len()), bytes: q.Bytes(), tail: q.Tail(), mark: m.Mark(),
		outboxN: int64(o.Len()), outboxBytes: o.Bytes(), tenure: m.Tenure(),
	}
}

// Snapshot captures the machine; the returned function encodes the capture and
// may run while Apply goes on.
func (r *Replica) Snapshot() func() (manifest []byte, pins []fsm.IndexRange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if failpoint.Sown(failpoint.ForgetWatermark) {
		return withoutStreams(r.machine)
	}
	return r.sized(messagesOf(r.machine), r.machine.Capture())
}

// State captures the machine for a backup, as Snapshot does for the log, and tells the newest entry in it. What the log can free is as
// it was.
func (r *Replica) State() (index uint64, encode func() (manifest []byte, pins []fsm.IndexRange)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Index(), r.machine.Freeze()
}

// Restore replaces the machine by the one in the manifest.
func (r *Replica) Restore(manifest []byte) error {
	m, err := fsm.Restore(manifest)
	if err != nil {
		return fmt.Errorf("restore manifest: %w", err)
	}
	r.mu.Lock()
	r.machine = m
	r.made.Store(&made{int64(len(manifest)), messagesOf(m)})
	r.mu.Unlock()
	return nil
}

// Reclaimable tells how many payload bytes a snapshot taken now would free.
func (r *Replica) Reclaimable() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Reclaimable()
}

// View calls f with the machine while nothing is applied. f must be quick and
// keep nothing.
func (r *Replica) View(f func(*fsm.Machine)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.machine)
}

// Leader returns the leader of this queue if it is on this node.
func (r *Replica) Leader() *Leader { return r.leader.Load() }

// Succeed makes the machine, as it is, the first state of the queue's next life; see [fsm.Machine.Succeed].
func (r *Replica) Succeed(life uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machine.Succeed(life)
}
