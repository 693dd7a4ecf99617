package sim

import (
	"slices"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// standing is what a queue's machine has before an entry, as far as plans depend on it.
type standing struct {
	lastItem    dlx.ItemID     // the newest
	revision    uint64         // the newest of the catalog that an entry carried
	settings    queue.Settings // those of settingsRev
	settingsRev uint64
}

func standingOf(m *fsm.Machine) standing {
	return standing{m.Outbox().Last(), m.CatalogRev(), m.Settings(), m.SettingsRevision()}
}

// planned notes the letters that got their targets from the entry's plan, and checks that they
// may: by their order, by their history, and by a catalog that was there when the leader looked.
// The plan is in front of the entry's commands: it holds under the settings from before the
// entry, also where the entry brings others, which call its letters back.
func (o *oracle) planned(g *group, q *oracleQueue, e *fsm.Entry, was *standing) {
	i := slices.IndexFunc(e.Commands, func(c fsm.Command) bool { _, ok := c.(fsm.Plan); return ok })
	if i < 0 {
		return
	}
	plan := e.Commands[i].(fsm.Plan)
	var waits dlx.ItemID // the oldest that has no targets
	found := false
	for it := range q.m.Outbox().View().All {
		if it.State == dlx.Unrouted && waits == 0 {
			waits = it.ID
		}
		if it.State != dlx.Routed || it.Reason == dlx.Transaction || it.Reason == dlx.Redrive {
			continue
		}
		if _, known := o.legs[legKey{q.id, it.Legs[0].Target, it.Legs[0].Seq}]; known {
			continue
		}
		found = true
		q.routed[it.ID] = true
		var targets []uint64
		for _, leg := range it.Legs {
			o.legs[legKey{q.id, leg.Target, leg.Seq}] = bodyAt(g, it.Ref)
			targets = append(targets, leg.Target)
		}
		o.plans++
		if it.ID > was.lastItem && !slices.Equal(targets, plan.Targets) && !changesLegs(e) {
			o.problem(q, "item %d died with the targets %v, the plan has %v", it.ID, targets, plan.Targets)
		}
		if waits != 0 && !changesLegs(e) {
			o.problem(q, "item %d has targets, the older %d waits for its own", it.ID, waits)
		}
		if it.Reason != dlx.Rejected && (len(messageAt(g, it.Ref).Deaths) > 0 || slices.Contains(plan.Targets, q.id)) {
			o.problem(q, "item %d (%v), which may close a cycle, goes to %v by a plan", it.ID, it.Reason, plan.Targets)
		}
		o.calledBack(q, &it, was)
	}
	if !found {
		return
	}
	if plan.Settings != was.settingsRev {
		o.problem(q, "a plan under the settings of revision %d holds under those of %d", plan.Settings, was.settingsRev)
	}
	if e.CatalogRev < was.revision {
		o.problem(q, "a plan of revision %d holds behind revision %d", e.CatalogRev, was.revision)
	}
	if e.CatalogRev > 0 && !o.w.cat.routes(q.m.VHost(), &was.settings, plan.Targets, e.CatalogRev) {
		o.problem(q, "no catalog from revision %d on routes to %v", e.CatalogRev, plan.Targets)
	}
}

// calledBack checks that a letter does not keep the way of a plan that its own entry has ended by
// other settings.
func (o *oracle) calledBack(q *oracleQueue, it *dlx.Item, was *standing) {
	now := q.m.Settings()
	if !now.DeadLetter || now.DeadLetterExchange == was.settings.DeadLetterExchange &&
		now.DeadLetterRoutingKey == was.settings.DeadLetterRoutingKey && now.DeadLetterKeySet == was.settings.DeadLetterKeySet {
		return
	}
	for _, leg := range it.Legs {
		if _, upTo := q.m.Outbox().Progress(leg.Target); upTo < leg.Seq {
			o.problem(q, "item %d keeps the way to %d, which ended as the settings changed", it.ID, leg.Target)
		}
	}
}

// changesLegs tells whether an entry has commands that may take targets from letters again.
func changesLegs(e *fsm.Entry) bool {
	return slices.ContainsFunc(e.Commands, func(c fsm.Command) bool {
		switch c.(type) {
		case fsm.TransferDone, fsm.TargetGone, fsm.SetSettings, fsm.Route, fsm.Release:
			return true
		}
		return false
	})
}

// routes tells whether some catalog from a revision on routes every dead letter of a queue with
// these settings to these targets.
func (c *sharedCatalog) routes(vhost string, set *queue.Settings, targets []uint64, from uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.copy == nil {
		c.copy = catalog.NewCopy()
	}
	for len(c.views) < len(c.log) {
		_, _ = c.copy.Apply(uint64(len(c.views)+1), c.log[len(c.views)]) // what is refused changes nothing
		c.views = append(c.views, c.copy.View())
	}
	for _, v := range c.views[min(from-1, uint64(len(c.views))):] {
		list, ok := v.FixedRoute(vhost, set.DeadLetterExchange, set.DeadLetterRoutingKey, !set.DeadLetterKeySet)
		var ids []uint64
		for _, q := range list {
			ids = append(ids, q.ID)
		}
		slices.Sort(ids)
		if ok && slices.Equal(ids, targets) {
			return true
		}
	}
	return false
}
