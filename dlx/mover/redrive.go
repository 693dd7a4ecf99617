package mover

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Planner tells where a redrive sends messages of one queue.
type Planner struct {
	Queue uint64
	// Read returns the payload of a log entry of the queue's group.
	Read func(index uint64) ([]byte, error)
	// Route asks the node's catalog copy; Named finds a queue by name in it.
	Route func(vhost, exchange string, l *Letter) (targets []Target, found bool)
	Named func(vhost, name string) (Target, bool)

	cacheAt uint64
	cache   []byte
}

// Plan is what a redrive does with one message.
type Plan struct {
	// Takes: the filter takes the message. NoOrigin: no death says where it came from.
	Takes, NoOrigin bool
	// Targets are where it goes; none if there is no such queue or route, and with a redrive
	// that discards.
	Targets []Target
	// Way names the queue or exchange for people, also if it does not exist.
	Way string
}

// Plan decides on a message of the queue, which is called here.
func (p *Planner) Plan(spec *dlx.RedriveSpec, vhost, here string, m queue.Message) (Plan, error) {
	if !spec.Filter.TakesID(uint64(m.ID)) {
		return Plan{}, nil
	}
	if spec.Discard && !spec.Filter.NeedsContent() {
		return Plan{Takes: true}, nil
	}
	if p.cache == nil || p.cacheAt != m.Ref.Index {
		data, err := p.Read(m.Ref.Index)
		if err != nil {
			return Plan{}, err
		}
		p.cacheAt, p.cache = m.Ref.Index, data
	}
	msg, err := fsm.MessageIn(p.cache, m.Ref)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Takes: spec.Filter.Takes(uint64(m.ID), msg.Deaths, msg.Properties)}
	if !plan.Takes || spec.Discard {
		return plan, nil
	}
	from := spec.Source(msg.Deaths, here)
	switch {
	case spec.To == dlx.ToNamedQueue:
		plan.Way = spec.Queue
	case from == nil:
		plan.NoOrigin = true
		return plan, nil
	case spec.To == dlx.ToExchange:
		back := msg.Redriven(from)
		plan.Way = from.Exchange
		headers, _, _ := amqp.RawProperties(back.Properties).Headers()
		targets, _ := p.Route(vhost, from.Exchange, &Letter{back.RoutingKeys, headers, back.Properties, chance(p.Queue, uint64(m.ID))})
		// The message is here already.
		plan.Targets = slices.DeleteFunc(targets, func(t Target) bool { return t.ID == p.Queue })
		return plan, nil
	default:
		plan.Way = from.Queue
	}
	if t, ok := p.Named(vhost, plan.Way); ok && t.ID != p.Queue {
		plan.Targets = []Target{t}
	}
	return plan, nil
}

// RedriveConfig is what a Redriver needs from its node. All functions are safe for
// concurrent use.
type RedriveConfig struct {
	Planner Planner
	View    func(f func(*fsm.Machine))
	// Fresh brings the catalog copy up to date, before a destination is called missing.
	Fresh func(context.Context) error
	// Propose is as in Config. The leader takes the messages out that are not free.
	Propose func(c fsm.Command, lazy bool, applied func())
	Logger  *slog.Logger
}

// Bounds of a redrive.
const (
	redriveBatch  = 256  // messages of one decision
	redriveWindow = 1024 // messages under way
	redriveScan   = 4096 // messages looked at for one decision
	// redriveTime is how long one decision looks at messages: each may be a large one, to be read from the disk.
	redriveTime  = 500 * time.Millisecond
	redriveRetry = time.Second
	// redriveSmooth is the part of a second for which a limited redrive decides at once.
	redriveSmooth = 20
)

// Redriver carries on the redrive that the log of a queue tells of, on the node that leads the queue.
// One goroutine owns its state; what it decides holds when the log has it.
type Redriver struct {
	cfg    RedriveConfig
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	waiting bool // for a decision that is proposed

	// next is when a limited redrive may send the next message.
	next time.Time
}

// StartRedriver begins. The caller ends it with Stop.
func StartRedriver(cfg RedriveConfig) *Redriver {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Redriver{cfg: cfg, ctx: ctx, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	r.Wake()
	go r.run()
	return r
}

// Wake tells that the state of the redrive changed.
func (r *Redriver) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Stop ends the redriver and waits for its goroutine.
func (r *Redriver) Stop() {
	r.cancel()
	<-r.done
}

func (r *Redriver) run() {
	defer close(r.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		if again := r.step(); again > 0 {
			timer.Reset(again)
		} else {
			timer.Stop()
		}
	}
}

// step makes the next decision, if it is time. It tells when to look again, 0 for
// not before a Wake.
func (r *Redriver) step() time.Duration {
	r.mu.Lock()
	waiting := r.waiting
	r.mu.Unlock()
	if waiting {
		return 0
	}
	var job dlx.Redriving
	var vhost, here string
	var room int
	r.cfg.View(func(m *fsm.Machine) {
		job, vhost, here = m.Redriving(), m.VHost(), m.Name()
		room = redriveWindow - m.LeavingLen()
	})
	if !job.Searching() {
		r.cfg.Planner.cache = nil // it would keep a MiB of the log in memory
		return 0
	}
	if room <= 0 {
		return 0
	}
	limit := min(redriveBatch, room)
	if rate := int(job.Spec.Rate); rate > 0 {
		now := time.Now()
		if left := r.next.Sub(now); left > 0 {
			return left
		}
		limit = min(limit, max(1, rate/redriveSmooth))
	}
	c, again := r.decide(&job, vhost, here, limit)
	if c.Through == c.After {
		return again
	}
	if rate := int(job.Spec.Rate); rate > 0 {
		r.next = time.Now().Add(time.Duration(len(c.Items)) * time.Second / time.Duration(rate))
	}
	r.mu.Lock()
	r.waiting = true
	r.mu.Unlock()
	r.cfg.Propose(c, false, func() {
		r.mu.Lock()
		r.waiting = false
		r.mu.Unlock()
		r.Wake()
	})
	return 0
}

// decide looks at the messages behind the cursor. It stops in front of one that it cannot
// decide on now, and says when to try again.
func (r *Redriver) decide(job *dlx.Redriving, vhost, here string, limit int) (c fsm.TakeRedrive, again time.Duration) {
	c = fsm.TakeRedrive{Number: job.Number, After: job.Cursor, Through: job.Cursor}
	fresh := false
	var list []queue.Message
	r.cfg.View(func(m *fsm.Machine) { list = liveBehind(m, job.Cursor, job.Tail, redriveScan) })
	until := time.Now().Add(redriveTime)
	for i := range list {
		if r.ctx.Err() != nil {
			return fsm.TakeRedrive{}, 0 // the leader waits for it
		}
		m := &list[i]
		plan, err := r.cfg.Planner.Plan(&job.Spec, vhost, here, *m)
		if err != nil {
			if r.live(m.ID) {
				r.cfg.Logger.Error("message of a redrive cannot be read", "queue", r.cfg.Planner.Queue, "message", m.ID, "err", err)
				return c, redriveRetry
			}
			plan = Plan{}
		}
		if plan.Takes && !plan.NoOrigin && !job.Spec.Discard && len(plan.Targets) == 0 {
			if !fresh {
				if r.fresh() != nil {
					return c, redriveRetry
				}
				fresh = true
			}
			if plan, err = r.cfg.Planner.Plan(&job.Spec, vhost, here, *m); err != nil {
				return c, redriveRetry
			}
		}
		switch {
		case !plan.Takes:
		case plan.NoOrigin:
			c.Passed.NoOrigin++
		case !job.Spec.Discard && len(plan.Targets) == 0:
			c.Passed.Missing++
		default:
			c.Items = append(c.Items, fsm.RedriveItem{ID: m.ID, Attempt: m.Attempt, Targets: ids(plan.Targets)})
		}
		c.Through = m.ID
		if len(c.Items) == limit || i+1 < len(list) && time.Now().After(until) {
			return c, 0
		}
	}
	if len(list) < redriveScan {
		c.Through = job.Tail
	}
	return c, 0
}

func ids(targets []Target) (list []uint64) {
	for _, t := range targets {
		list = append(list, t.ID)
	}
	slices.Sort(list)
	return list
}

func (r *Redriver) fresh() error {
	ctx, cancel := context.WithTimeout(r.ctx, freshTimeout)
	defer cancel()
	return r.cfg.Fresh(ctx)
}

func (r *Redriver) live(id queue.MessageID) (live bool) {
	r.cfg.View(func(m *fsm.Machine) { live = m.Queue().Has(id) })
	return live
}

// liveBehind lists live messages in the order of their numbers.
func liveBehind(m *fsm.Machine, after, upTo queue.MessageID, limit int) (list []queue.Message) {
	for x, ok := m.Queue().NextLive(after); ok && x.ID <= upTo && len(list) < limit; x, ok = m.Queue().NextLive(x.ID) {
		list = append(list, x)
	}
	return list
}

// LiveBehind lists up to limit live messages behind a number, in the order of their numbers.
func LiveBehind(m *fsm.Machine, after queue.MessageID, limit int) []queue.Message {
	return liveBehind(m, after, m.Queue().Tail(), limit)
}
