package mover

import (
	"fmt"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

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
	if now.Before(f.notBefore) && (!f.full || t.Parts == 0 && !m.withdrawsNext(t.Queue, f.sent, true)) {
		m.again(f.notBefore)
		return
	}
	if _, short := f.patience(now); short && f.awaits() && !now.Before(f.deadline) {
		f.repeats++
		f.lapse(now)
	}
	if f.awaits() && !now.Before(f.deadline) {
		// No answer: the leader moved, a link broke, or it takes its time.
		f.lapse(now)
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
	if m.ask(t, f) {
		return
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
