package leader

import (
	"slices"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Way is where the catalog sends every dead letter of a queue, whatever the message.
type Way struct {
	// Targets are queue ids, ascending. None: it depends on the message, or leads nowhere.
	Targets []uint64
	// Back: the queue itself is one of them.
	Back bool
}

// planning makes the plans of entries (fsm.Plan). What it has found in the catalog holds until
// the copy of the catalog or the machine's settings change.
type planning struct {
	set         queue.Settings // of the machine, with their revision
	settings    uint64
	vhost, name string

	plan     fsm.Plan
	made     bool
	revision uint64 // of the catalog copy that it was made from, or before
}

// reload takes over the machine's settings.
func (p *planning) reload(l *Leader) {
	*p = planning{}
	l.replica.View(func(m *fsm.Machine) {
		p.set, p.settings, p.vhost, p.name = m.Settings(), m.SettingsRevision(), m.VHost(), m.Name()
	})
}

// plan puts the way of dead letters in front of the commands of an entry that may have some.
func (l *Leader) plan(e *fsm.Entry) {
	p := &l.planning
	if l.cfg.Way == nil || !p.set.DeadLetter || p.set.Delayed || p.settings == 0 || !l.kills(e) {
		return
	}
	// The entry's revision was read before the catalog is looked at, as for a Route.
	if !p.made || p.revision != e.CatalogRev && !failpoint.Sown(failpoint.KeepPlan) {
		w := l.cfg.Way(p.vhost, p.name, &p.set)
		p.made, p.revision = true, e.CatalogRev
		p.plan = fsm.Plan{Settings: p.settings, Targets: w.Targets, Automatic: !w.Back}
	}
	if n := len(p.plan.Targets); n == 0 || n > fsm.PlanTargetsMax {
		return
	}
	e.Commands = append([]fsm.Command{p.plan}, e.Commands...)
}

// kills tells whether messages may die in the entry in a way that plans are for.
func (l *Leader) kills(e *fsm.Entry) bool {
	for _, c := range e.Commands {
		switch c := c.(type) {
		case fsm.Expire, fsm.DropHeads:
			return true
		case fsm.Return:
			if l.deadly(c.Kind) {
				return true
			}
		case fsm.Stream:
			if slices.ContainsFunc(c.Ops, l.deadlyOp) {
				return true
			}
		case fsm.TransferIn:
			if slices.ContainsFunc(c.Items, func(t fsm.Transfer) bool { return t.Part != nil }) {
				return true
			}
		}
	}
	return false
}

func (l *Leader) deadlyOp(op fsm.Op) bool {
	switch op := op.(type) {
	case fsm.Publish:
		return op.Verdict == fsm.RefuseFullDLX
	case fsm.Settle:
		return l.deadly(op.Kind)
	case fsm.Tx:
		return true
	}
	return false
}

func (l *Leader) deadly(k fsm.SettleKind) bool {
	return k == fsm.Discard || k == fsm.RequeueFailed && l.planning.set.DeliveryLimit >= 0
}
