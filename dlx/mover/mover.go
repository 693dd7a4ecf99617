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
	"math/rand/v2"
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
	// A target that has not answered anything for quietAfter may be asleep and lose what wakes it: that is said again, after quietTimeout first and
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

// flight is the window of transfers to one target.
type flight struct {
	sent, acked uint64
	bytes       int
	sizes       []int // of the transfers above acked
	room        room
	deadline    time.Time
	heard       time.Time // when it was last answered
	repeats     int       // of what may have met a sleeping target
	notBefore   time.Time
	backoff     time.Duration
	full        bool   // notBefore is there because the target is full
	cleared     uint64 // the number of the stopped redrive that clearWay has looked after
	review      review
	next        succession // zero while the target is what it was
	// hops are the spans of letters under way that are traced, by their sequence.
	hops map[uint64]*hop
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
	if a.Full || a.Gap && !progress {
		f.pause()
	}
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

func (f *flight) ack(upTo uint64) {
	f.room.taken()
	n := min(upTo-f.acked, uint64(len(f.sizes)))
	for _, s := range f.sizes[:n] {
		f.bytes -= s
	}
	f.sizes = f.sizes[n:]
	f.acked = upTo
	f.sent = max(f.sent, upTo)
	f.heard, f.repeats = time.Now(), 0
	f.deadline = f.heard.Add(answerTimeout)
	f.backoff = 0
}

// patience is how long the answer to the first transfer under way is waited for, and whether that is because the target may sleep. All these
// waits are answerTimeout together.
func (f *flight) patience(now time.Time) (d time.Duration, short bool) {
	switch {
	case f.repeats > quietRepeats || now.Sub(f.heard) < quietAfter:
		return answerTimeout, false
	case f.repeats == quietRepeats:
		return answerTimeout - quietTimeout<<quietRepeats + quietTimeout, false
	}
	return quietTimeout << f.repeats, true
}

func (f *flight) rewind(to uint64) {
	f.acked = max(f.acked, min(to, f.sent))
	f.sent, f.sizes, f.bytes = f.acked, nil, 0
}

// pause waits longer each time, with jitter so that many sources do not return
// to one target at once. All answers to one window are one time.
func (f *flight) pause() {
	if time.Now().Before(f.notBefore) {
		return
	}
	f.backoff = min(max(backoffMin, 2*f.backoff), backoffMax)
	f.notBefore = time.Now().Add(f.backoff/2 + rand.N(f.backoff))
}

// seen is when pump has looked at all targets, of which there may be thousands, last: what it does about those that nothing is under way to
// depends on nothing else.
type seen struct {
	met       uint64 // see dlx.Outbox.Met
	revision  uint64 // of the catalog
	following bool   // some of them go on as other queues
}

// pump fills the window of each target.
func (m *Mover) pump() {
	var targets []dlx.Target
	now := seen{revision: m.cfg.Revision()}
	all := m.seen.following || now.revision != m.seen.revision
	m.cfg.View(func(f *fsm.Machine) {
		now.met = f.Outbox().Met()
		if all = all || now.met != m.seen.met; all {
			targets = f.Outbox().Targets()
		} else {
			targets = f.Outbox().Busy()
		}
	})
	targets = m.crowd.begin(targets, m.flights)
	if !all {
		for _, t := range targets {
			m.pumpTarget(t)
		}
		return
	}
	known := make(map[uint64]bool, len(targets))
	for _, t := range targets {
		known[t.Queue] = true
		switch {
		case t.Gone:
		case t.Pending > 0:
			m.pumpTarget(t)
		case m.flights[t.Queue] != nil: // what it had taken is compared once
			now.following = m.follow(t, m.flights[t.Queue]) || now.following
		}
	}
	m.seen = now
	for id := range m.flights {
		if !known[id] {
			delete(m.flights, id)
			m.unshow(id)
		}
	}
}

func (m *Mover) pumpTarget(t dlx.Target) {
	first := t.Next - uint64(t.Pending)
	f := m.flights[t.Queue]
	if f == nil {
		f = &flight{sent: first - 1, acked: first - 1}
		m.flights[t.Queue] = f
		m.show(t.Queue, Moving, "")
	}
	others := m.crowd.bytes - f.counted()
	defer func() { m.crowd.bytes = others + f.counted() }()
	if f.acked < first-1 {
		f.ack(first - 1)
	}
	if m.follow(t, f) {
		return
	}
	m.review(t, f)
	m.clearWay(t, f)
	now := time.Now()
	// A full target takes parts of transactions, and withdrawals.
	if now.Before(f.notBefore) && (!f.full || t.Parts == 0 && !m.withdrawsNext(t.Queue, f.sent)) {
		m.again(f.notBefore)
		return
	}
	if _, short := f.patience(now); short && f.sent > f.acked && !now.Before(f.deadline) {
		f.repeats++
		f.rewind(f.acked)
	}
	if f.sent > f.acked && !now.Before(f.deadline) {
		// No answer: the leader moved, a link broke, or it takes its time.
		f.rewind(f.acked)
		f.room.narrow()
		f.repeats = quietRepeats + 1
		m.cfg.Totals.Unanswered.Add(1)
		m.show(t.Queue, Unreachable, "the target's leader does not answer")
		m.cfg.Relocate(t.Queue)
		if m.left(t.Queue) {
			f.pause()
			m.again(f.notBefore)
			return
		}
	}
	for f.room.has(f.bytes) && f.sent-f.acked < windowItems && f.sent+1 < t.Next {
		if !m.crowd.has(t.Queue, f, others) {
			break // goes on when another target has answered, or has not in time
		}
		if f.sent < t.Withdraw && f.sent-(first-1) >= withdrawMax {
			break // goes on when some of them are recorded
		}
		if !m.sendSome(t.Queue, f, t.Parts > 0) {
			break
		}
	}
	if f.sent > f.acked {
		m.again(f.deadline)
	}
}

// left tells whether a target has left the catalog, and records its end. A queue leaves only after
// every source it knew has done that; so if this one has not, the target has taken nothing new of it.
// That is looked up behind the catalog: the end may have been recorded since the round began. A target that goes on under another id, perhaps since
// the round began, has not left: see follow.
func (m *Mover) left(target uint64) bool {
	if m.cfg.Exists(target) || !m.fresh() || m.cfg.Exists(target) {
		return false
	}
	if _, _, on := m.cfg.Successor(target); on {
		return false
	}
	var known, gone bool
	var done uint64
	m.cfg.View(func(fm *fsm.Machine) {
		known, gone = fm.Outbox().Known(target)
		done, _ = fm.Outbox().Progress(target)
	})
	if known && !gone {
		m.cfg.Gate.Pass(func() { m.cfg.Propose(fsm.TargetGone{Target: target, Watermark: done}, false, nil) })
	}
	return true
}

// sendSome sends one batch of transfers to a target.
func (m *Mover) sendSome(target uint64, f *flight, urgent bool) bool {
	var pending []dlx.Pending
	var settings deadSettings
	var recorded uint64
	var back recall
	m.cfg.View(func(fm *fsm.Machine) {
		pending = fm.Outbox().Pending(target, f.sent, transferItems)
		recorded, _ = fm.Outbox().Progress(target)
		back = recallOf(fm, target, f.full)
		settings = settingsOf(fm)
	})
	in := fsm.TransferIn{Source: fsm.Source{Queue: m.cfg.Queue}, First: f.sent + 1, AnsweredUpTo: recorded}
	in.Items = make([]fsm.Transfer, 0, len(pending))
	m.gatherPending(target, f, pending)
	size := 0
	for i, p := range pending {
		if p.Seq != f.sent+1 || back.takes(p) != back.takes(pending[0]) {
			break
		}
		t, err := m.build(pending[i:], settings, back.takes(p))
		if err != nil {
			m.cfg.Logger.Error("dead letter cannot be read", "queue", m.cfg.Queue, "item", p.Item, "err", err)
			m.failed(fmt.Sprintf("a dead letter cannot be read: %v", err))
			m.again(time.Now().Add(readRetry))
			break
		}
		if m.cfg.Trace != nil {
			m.traceSent(f, target, &p, settings.set.Delayed)
		}
		m.gathered.drop(p.Ref)
		in.Items = append(in.Items, t)
		f.sent++
		n := len(t.Message) + len(t.Part)
		f.sizes = append(f.sizes, n)
		f.bytes += n
		if size += n; size >= transferBytes {
			break
		}
	}
	m.slab = nil
	if len(in.Items) == 0 {
		return false
	}
	if f.deadline.IsZero() || f.sent-uint64(len(in.Items)) == f.acked {
		now := time.Now()
		d, _ := f.patience(now)
		f.deadline = now.Add(d)
	}
	withdrawn := back.takes(pending[0])
	failpoint.Pass(failpoint.MoveRouted, m.cfg.Queue)
	if withdrawn {
		failpoint.Pass(failpoint.WithdrawApplied, m.cfg.Queue)
	}
	if !m.cfg.Gate.Pass(func() { m.cfg.Send(&wire.Transfer{Target: target, Urgent: urgent || withdrawn, In: in}) }) {
		f.rewind(f.acked)
		m.Wake() // for a look at when it opens
		return false
	}
	m.cfg.Totals.Sent.Add(uint64(len(in.Items)))
	failpoint.Pass(failpoint.MoveSent, m.cfg.Queue)
	if withdrawn {
		failpoint.Pass(failpoint.WithdrawSent, m.cfg.Queue)
	}
	return true
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
