package sim

import (
	"slices"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

// planned notes the letters that got their targets from the entry's plan, and checks that they
// may: by their order, by their history, and by a catalog that was there when the leader looked.
// lastItem is the newest item before the entry, revision the newest catalog revision that an entry
// carried before it.
func (o *oracle) planned(g *group, q *oracleQueue, e *fsm.Entry, lastItem dlx.ItemID, revision uint64) {
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
		if it.ID > lastItem && !slices.Equal(targets, plan.Targets) && !changesLegs(e) {
			o.problem(q, "item %d died with the targets %v, the plan has %v", it.ID, targets, plan.Targets)
		}
		if waits != 0 && !changesLegs(e) {
			o.problem(q, "item %d has targets, the older %d waits for its own", it.ID, waits)
		}
		if it.Reason != dlx.Rejected && (len(messageAt(g, it.Ref).Deaths) > 0 || slices.Contains(plan.Targets, q.id)) {
			o.problem(q, "item %d (%v), which may close a cycle, goes to %v by a plan", it.ID, it.Reason, plan.Targets)
		}
	}
	if !found {
		return
	}
	if e.CatalogRev < revision {
		o.problem(q, "a plan of revision %d holds behind revision %d", e.CatalogRev, revision)
	}
	if e.CatalogRev > 0 && !o.w.cat.routes(q.m, plan.Targets, e.CatalogRev) {
		o.problem(q, "no catalog from revision %d on routes to %v", e.CatalogRev, plan.Targets)
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

// routes tells whether some catalog from a revision on routes every dead letter of a queue to
// these targets.
func (c *sharedCatalog) routes(m *fsm.Machine, targets []uint64, from uint64) bool {
	set := m.Settings()
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
		list, ok := v.FixedRoute(m.VHost(), set.DeadLetterExchange, set.DeadLetterRoutingKey, !set.DeadLetterKeySet)
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
