// Package mover is the moving half of dead-lettering. On the node that leads a
// queue it turns the queue's outbox into transfers: it decides where each dead
// message goes (one Route command, frozen in the log), sends the messages of
// each target in sequence to the target's leader, and records in the queue's
// own log how far each target has taken them. The replicated machines keep the
// promise that nothing is lost or doubled; everything here may be repeated at
// any time. Parts of transactions are sent as they are: their targets are in the log.
package mover

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
	"github.com/warrenmq/warren/trace"
)

// Target is a queue that routing found.
type Target struct {
	ID   uint64
	Name string
}

// Letter is what exchanges look at of a dead letter.
type Letter struct {
	Keys       []string
	Headers    amqp.Table
	Properties amqp.RawProperties
	// Random decides what exchanges leave to chance. A letter has the same one however often it is decided on, so that one of several queues
	// gets it also if it goes to others beside, which do not take it for long.
	Random uint64
}

// Config is what a Mover needs from its node. All functions are safe for
// concurrent use.
type Config struct {
	Queue uint64
	// View calls f with the queue's machine while nothing is applied.
	View func(f func(*fsm.Machine))
	// Read returns the payload of a log entry of the queue's group.
	Read func(index uint64) ([]byte, error)
	// Route asks the node's catalog copy. found is false if the exchange is
	// missing.
	Route func(vhost, exchange string, l *Letter) (targets []Target, found bool)
	// Fresh brings the catalog copy up to the catalog leader's state, before
	// something is concluded from an absence.
	Fresh func(context.Context) error
	// Revision is that of the catalog copy. LookAgain is called when it changed while
	// letters were being parked: whoever releases parked letters at a change may have
	// found none.
	Revision  func() uint64
	LookAgain func()
	// Exists tells whether the catalog knows the queue, closing or not.
	Exists func(id uint64) bool
	// Successor returns the queue that goes on in place of one that has lost most of its replicas, and the number of the life
	// that ended so. nil: there is none.
	Successor func(id uint64) (to uint64, life uint32, ok bool)
	// Send passes transfers to the leader of their target, as far as known.
	Send func(m *wire.Transfer)
	// Relocate forgets which node leads the target.
	Relocate func(target uint64)
	// Propose adds a command to the queue's next entry. applied, which may be nil,
	// is called once that entry is applied here; it must be quick.
	Propose func(c fsm.Command, lazy bool, applied func())
	// Gate is the node's, which may be nil: what concerns other queues passes there.
	Gate *Gate
	// Kept is the node's, which may be nil.
	Kept *Kept
	// Totals, which may be nil, are counted up.
	Totals *Totals
	// Review is how long a letter is under way before it is asked whether the catalog would
	// still send it there: so long a change of topology is given to overtake quick moves. 0
	// stands for one second.
	Review time.Duration
	// Trace continues the traces of letters; nil: none are traced. Name is what a target is called in them.
	Trace  *trace.Tracer
	Name   func(target uint64) string
	Logger *slog.Logger
}

// Bounds of a mover.
const (
	routeMax      = 512 // items of one Route command
	windowItems   = 1024
	windowBytes   = 4 << 20
	transferItems = 256 // items of one Transfer
	transferBytes = 256 << 10
	withdrawMax   = 4096 // withdrawals that the log has not recorded: answers name them all
	answerTimeout = time.Second
	// A target that has not answered anything for quietAfter may be asleep and lose what wakes it: it is asked how it stands, after quietTimeout first and
	// twice as long each time, quietRepeats times.
	quietAfter      = 30 * time.Second
	quietTimeout    = 40 * time.Millisecond
	quietRepeats    = 4
	backoffMin      = 10 * time.Millisecond
	backoffMax      = 2 * time.Second
	freshTimeout    = 2 * time.Second
	readRetry       = time.Second
	cacheRest       = time.Second
	answersBuffered = 4096
)

// Mover moves the dead letters of one queue. One goroutine owns its state.
type Mover struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	answers []*wire.TransferAnswer
	// routing: a Route or Withdraw command is proposed and not applied. One at a time, so
	// that every unrouted item is one to decide on.
	routing bool
	status  status

	// decided names the items of the newest Route command. One that is unrouted
	// after it was applied met a closed target and is decided again after a while.
	decided struct{ first, last dlx.ItemID }
	backoff time.Duration
	routeAt time.Time
	// releasedAt is the catalog revision at which parked letters were released for others that
	// had found a way, releasedTo the newest item then: those up to it wait for no other release,
	// or they would wait for ever while the catalog changes all the time.
	releasedAt uint64
	releasedTo dlx.ItemID
	// holdFrom is since when letters wait for older ones that are being withdrawn.
	holdFrom time.Time
	flights  map[uint64]*flight
	seen     seen
	wakeAt   time.Time
	crowd    crowd
	gathered gathered
	cacheAt  uint64
	cache    []byte
	cachedAt time.Time
	props    []byte // of the newest dead letter; used again
	slab     []byte // messages of the present batch, and room for more

	// traced is what is known of the trace of the letter that was built last.
	traced struct {
		parent trace.Parent
		ok     bool
		hop    trace.Hop
	}
}

// Start begins moving. The caller ends it with Stop.
func Start(cfg Config) *Mover {
	ctx, cancel := context.WithCancel(context.Background())
	if cfg.Totals == nil {
		cfg.Totals = &Totals{}
	}
	if cfg.Successor == nil {
		cfg.Successor = func(uint64) (uint64, uint32, bool) { return 0, 0, false }
	}
	if cfg.Review <= 0 {
		cfg.Review = reviewAfter
	}
	m := &Mover{
		cfg: cfg, ctx: ctx, cancel: cancel,
		done: make(chan struct{}), wake: make(chan struct{}, 1),
		flights: map[uint64]*flight{}, gathered: gathered{node: cfg.Kept},
	}
	m.Wake()
	go m.run()
	return m
}

// Wake tells that the outbox or the catalog changed.
func (m *Mover) Wake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Answer hands over a target's answer. Answers beyond the buffer are dropped;
// the window's time-out asks again.
func (m *Mover) Answer(a *wire.TransferAnswer) {
	m.mu.Lock()
	if len(m.answers) < answersBuffered {
		m.answers = append(m.answers, a)
	}
	m.mu.Unlock()
	m.Wake()
}

// Stop ends the mover and waits for its goroutine.
func (m *Mover) Stop() {
	m.cancel()
	<-m.done
}

func (m *Mover) run() {
	defer close(m.done)
	defer m.gathered.clear()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var opens <-chan struct{}
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
		case <-opens:
		}
		m.wakeAt = time.Time{}
		if opens = m.cfg.Gate.Opens(); opens == nil {
			m.takeAnswers()
		}
		m.route()
		if opens == nil {
			m.pump()
		}
		m.restCache()
		if m.wakeAt.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(0, time.Until(m.wakeAt)))
		}
	}
}

func (m *Mover) again(at time.Time) {
	if m.wakeAt.IsZero() || at.Before(m.wakeAt) {
		m.wakeAt = at
	}
}

func (m *Mover) takeAnswers() {
	passed := m.cfg.Gate.Pass(func() {
		m.mu.Lock()
		answers := m.answers
		m.answers = nil
		m.mu.Unlock()
		for _, a := range answers {
			m.take(a)
		}
	})
	if !passed {
		m.Wake() // for a look at when it opens
	}
}

func (m *Mover) take(a *wire.TransferAnswer) {
	if a.Epoch > 0 {
		m.takeFormer(a)
		return
	}
	f := m.flights[a.Target]
	if f == nil || f.next.to != 0 || !m.credible(f, a) {
		return
	}
	if a.Gone {
		m.show(a.Target, Gone, "")
		m.cfg.Propose(fsm.TargetGone{Target: a.Target, Watermark: a.UpTo, Withdrawn: a.Withdrawn}, false, nil)
		f.pause()
		return
	}
	progress := a.UpTo > f.acked
	if progress {
		// What was withdrawn up to the last answer is proposed before this.
		known, _ := slices.BinarySearch(a.Withdrawn, f.acked+1)
		back := a.Withdrawn[known:]
		f.traceTaken(a.UpTo, back)
		f.ack(a.UpTo)
		failpoint.Pass(failpoint.MoveAnswered, m.cfg.Queue)
		done := fsm.TransferDone{Target: a.Target, UpTo: a.UpTo, Withdrawn: back}
		applied := failpoint.Passing(failpoint.MoveDone, m.cfg.Queue)
		if len(back) > 0 {
			failpoint.Pass(failpoint.WithdrawAnswered, m.cfg.Queue)
			applied = failpoint.Passing(failpoint.WithdrawDone, m.cfg.Queue)
		}
		m.cfg.Propose(done, len(back) == 0, applied)
	}
	if a.Gap || a.Full {
		f.rewind(a.UpTo)
		f.room.narrow()
	}
	f.full = a.Full
	if a.Full {
		m.cfg.Totals.Full.Add(1)
		m.show(a.Target, Full, "the target is full")
	} else if !a.Gap || progress {
		m.show(a.Target, Moving, "")
	}
	refused := a.Full || a.Gap && !progress
	switch {
	case refused:
		f.pause()
	case progress && !a.Gap && !a.Full:
		f.notBefore = time.Time{} // it takes what it is sent
	}
	f.answered(refused, progress)
}

// credible tells whether what the target says it has taken was ever given out to it, by this leader or by one before.
func (m *Mover) credible(f *flight, a *wire.TransferAnswer) bool {
	if a.UpTo <= f.sent {
		return true
	}
	var next uint64
	m.cfg.View(func(fm *fsm.Machine) { next = fm.Outbox().NextSeq(a.Target) })
	if a.UpTo < next {
		return true
	}
	m.cfg.Logger.Warn("a queue answers for dead letters that it was not sent", "queue", m.cfg.Queue, "target", a.Target, "up_to", a.UpTo, "next", next)
	return false
}

// fresh asks for an up-to-date catalog; false means that nothing can be
// concluded now.
func (m *Mover) fresh() bool {
	ctx, cancel := context.WithTimeout(m.ctx, freshTimeout)
	defer cancel()
	err := m.cfg.Fresh(ctx)
	if err != nil {
		m.failed(fmt.Sprintf("the catalog cannot be read up to date: %v", err))
	}
	return err == nil
}

func (m *Mover) read(index uint64) ([]byte, error) {
	if m.cacheAt == index && m.cache != nil {
		return m.cache, nil
	}
	data, err := m.cfg.Read(index)
	if err != nil {
		return nil, err
	}
	m.cacheAt, m.cache, m.cachedAt = index, data, time.Now()
	return data, nil
}

func (m *Mover) againIn(d time.Duration) { m.again(time.Now().Add(d)) }
