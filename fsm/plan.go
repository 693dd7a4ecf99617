package fsm

import (
	"github.com/warrenmq/warren/dlx"
)

// tagPlan is Plan's tag.
const tagPlan = 19

// Plan says where what dies in this entry, behind this command, goes: the leader knows it
// because the way does not depend on the message. Such a death has its targets and numbers at
// once, and needs no Route (docs/adr/0010-route-plan.md).
//
// Apply passes over a plan that was made under other settings, or from an older catalog than
// an entry before had, and over one that names a closed target. It keeps the order: a letter
// whose elders wait for their targets waits with them, and a plan gives those theirs first.
type Plan struct {
	// Settings is the revision of the settings under which it was made, not 0.
	Settings uint64
	// Automatic: deaths that nobody decided on go this way too, of messages that have not died
	// before. None of the targets is this queue.
	Automatic bool
	// Targets are queue ids, ascending, at least one.
	Targets []uint64
}

func (Plan) command() {}

// PlanTargetsMax is how many targets a plan has at most.
const PlanTargetsMax = 32

// planWaitingMax bounds the older letters that one plan gives targets.
const planWaitingMax = 4096

func appendPlan(dst []byte, c *Plan) []byte {
	dst = appendBool(appendUint(append(dst, tagPlan), c.Settings), c.Automatic)
	return appendAscending(dst, c.Targets)
}

func (r *reader) plan() Plan {
	c := Plan{Settings: r.uvarint(), Automatic: r.bool(), Targets: r.ascending()}
	if r.err == nil && (c.Settings == 0 || len(c.Targets) == 0 || len(c.Targets) > PlanTargetsMax) {
		r.fail(ErrMalformed, "plan")
	}
	return c
}

// takePlan makes a plan that of the entry.
func (a *apply) takePlan(c *Plan) {
	a.plan = *c
	if a.planned() {
		a.outbox.RouteWaiting(c.Targets, planWaitingMax, a.plans, func(it dlx.ItemID) {
			a.depart(it)
			a.changed(true)
		})
	}
}

// routesNow tells whether what dies now for that reason gets its targets from the plan.
func (a *apply) routesNow(reason dlx.Reason) bool {
	return a.planned() && a.plans(reason) && a.outbox.InOrder()
}

// planned tells whether the entry has a plan that holds.
func (a *apply) planned() bool {
	return a.plan.Settings != 0 && a.plan.Settings == a.settingsRev && a.settings.DeadLetter && !a.settings.Delayed &&
		!a.closed && (a.e.CatalogRev == a.catalogRev || anyCatalog) && a.outbox.Open(a.plan.Targets)
}

// plans tells whether the plan is for deaths of this reason. A message that nobody decided on
// goes back to no queue where it has been: what has never died has been nowhere.
func (a *apply) plans(reason dlx.Reason) bool {
	switch reason {
	case dlx.Rejected:
		return true
	case dlx.Expired, dlx.MaxLen, dlx.DeliveryLimit:
		return a.plan.Automatic && a.counters.Transferred == 0
	}
	return false
}
