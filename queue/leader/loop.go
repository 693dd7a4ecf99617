package leader

import (
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// The events of the inbox.
type (
	applied struct {
		res  fsm.Result
		seen seen
		// first: no entry was applied before it, so that there is nothing that an earlier leader did.
		first bool
	}
	received struct {
		from string
		m    wire.Message
	}
	nodeGone struct {
		node        uint32
		incarnation uint64
	}
	nodeUp         struct{ id string }
	catalogChanged struct{}
	beginClose     struct{}
	proposeFailed  struct{ err error }
	command        struct {
		c       fsm.Command
		lazy    bool
		applied func()
	}
)

func (l *Leader) post(e any) {
	l.mu.Lock()
	l.inbox = append(l.inbox, e)
	first := len(l.inbox) == 1
	l.mu.Unlock()
	if first {
		select {
		case l.signal <- struct{}{}:
		default:
		}
	}
}

func (l *Leader) run() {
	defer close(l.done)
	defer l.end()
	if l.cfg.After != nil {
		select {
		case <-l.cfg.After:
		case <-l.stop:
			return
		}
	}
	l.begin()
	var events []any
	for {
		select {
		case <-l.stop:
			return
		case <-l.signal:
		case <-l.timer.C:
		}
		events = l.work(events)
	}
}

// work handles what is in the inbox and does what that makes possible. spare is a list to use again; it returns another.
func (l *Leader) work(spare []any) []any {
	l.mu.Lock()
	events := l.inbox
	l.inbox = spare[:0]
	l.resting = false
	l.mu.Unlock()
	for i, e := range events {
		if !l.over {
			l.handle(e)
		}
		events[i] = nil
	}
	if !l.over {
		l.step()
	}
	return events
}

// end runs when the leader stops. The nodes whose messages it took look for the
// next leader: that one may not know of them.
func (l *Leader) end() {
	l.timer.Stop()
	l.fly(-l.flying)
	l.supply.waits(-l.supply.bytes)
	for _, p := range l.peers {
		l.cfg.Send(p.id, &wire.NotLeader{Queue: l.cfg.Queue})
	}
	if l.mover != nil {
		l.mover.Stop()
	}
	if l.redriver != nil {
		l.redriver.Stop()
	}
}

func (l *Leader) handle(e any) {
	switch e := e.(type) {
	case applied:
		l.seen = e.seen
		l.onApplied(e.res, e.first)
	case received:
		l.onMessage(e.from, e.m)
	case nodeGone:
		l.onNodeGone(e.node, e.incarnation)
	case nodeUp:
		l.callRoll(e.id)
	case catalogChanged:
		l.onCatalogChanged()
	case inspect:
		e.reply <- l.describe()
	case list:
		l.onList(e)
	case beginClose:
		l.closing.wanted = true
	case command:
		if d, ok := e.c.(fsm.TransferDone); ok {
			l.taken[d.Target] = max(l.taken[d.Target], d.UpTo)
		}
		switch c := e.c.(type) {
		case fsm.StopRedrive:
			l.stopped = c.Number
		case fsm.TakeRedrive:
			e.c = l.nameRedrive(c)
		}
		l.pending.add(e.c, e.lazy)
		if e.applied != nil {
			l.pending.applied = append(l.pending.applied, e.applied)
		}
	case proposeFailed:
		// The outcome of this and all later entries is unknown.
		l.fail("proposal failed, session ends", e.err)
	}
}

// fail ends the session. The host reports the end of leadership, or begins another
// session.
func (l *Leader) fail(why string, err error) {
	l.cfg.Logger.Debug(why, "queue", l.cfg.Queue, "session", l.cfg.Session, "err", err)
	l.over = true
	l.Retire()
	if l.cfg.Ended != nil {
		l.cfg.Ended()
	}
}

// step does what the handled events made possible.
func (l *Leader) step() {
	l.wakeAt, l.pressing = time.Time{}, false
	l.checkRollCall()
	if l.phase == phaseActive {
		l.endDelays()
		l.appoint()
		l.enforceLimits()
		l.deliver(true)
		named := len(l.limits.condemned)
		l.expireDue()
		l.out.fewer(len(l.limits.condemned) - named)
	} else {
		l.oweFresh()
	}
	l.limits.freshIDs = queue.IDRange{}
	l.releaseParked()
	l.serveQueries()
	l.serveAsks()
	l.checkLease()
	l.stepClosing()
	l.forgetGone()
	l.propose()
	l.restEntry()
	l.spareRoom()
	l.showCounts()
	l.out.flush(l.cfg.Send)
	l.arm()
}

// wake asks for a step no later than in d.
func (l *Leader) wake(d time.Duration) {
	l.pressing = true
	l.wakeForUpkeep(d)
}

// wakeForUpkeep does so for what every new session looks after anyway, so that none need be kept for it.
func (l *Leader) wakeForUpkeep(d time.Duration) {
	at := time.Now().Add(d)
	if l.wakeAt.IsZero() || at.Before(l.wakeAt) {
		l.wakeAt = at
	}
}

func (l *Leader) arm() {
	if l.atRest() {
		l.mu.Lock()
		l.resting = true
		l.mu.Unlock()
	}
	if l.wakeAt.IsZero() {
		l.timer.Stop()
		return
	}
	l.timer.Reset(max(0, time.Until(l.wakeAt)))
}

func (l *Leader) onMessage(from string, m wire.Message) {
	if l.phase == phaseOpen {
		l.keepEarly(from, m)
	}
	switch m := m.(type) {
	case *wire.Batch:
		l.onBatch(from, m)
	case *wire.Resync:
		l.onResync(from, m)
	case *wire.Attach:
		l.onAttach(from, m)
	case *wire.Detach:
		l.onDetach(from, m)
	case *wire.Window:
		l.onWindow(from, m)
	case *wire.Unsent:
		l.onUnsent(from, m)
	case *wire.Get:
		if l.heard(from, m.Origin) != nil {
			l.use()
			l.gets = append(l.gets, m)
			l.getsFrom[m] = from
		}
	case *wire.Query:
		if l.heard(from, m.Origin) == nil {
			return
		}
		if m.Use {
			l.use()
		}
		l.queries = append(l.queries, parkedQuery{from, m, time.Now()})
	case *wire.TxAsk:
		if l.heard(from, m.Origin) != nil {
			l.asks = append(l.asks, parkedAsk{from, m})
		}
	case *wire.Transfer:
		l.onTransfer(from, m)
	case *wire.TransferAnswer:
		if l.mover != nil {
			l.mover.Answer(m)
		}
	case *wire.TargetClosed:
		l.onTargetClosed(from, m)
	case *wire.TargetForgotten:
		l.closing.forgotten(m.Source, m.Target)
	}
}
