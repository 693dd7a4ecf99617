package sim

import (
	"strings"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// planRig is an oracle with the log of one queue, source, and a catalog of it and the queues a and b.
type planRig struct {
	*testing.T
	w       *World
	g       *group
	a, b    uint64
	ordinal uint64
}

func newPlanRig(t *testing.T) *planRig {
	w := &World{led: newLedger()}
	w.oracle, w.cat = newOracle(w), newSharedCatalog(w)
	w.cat.append(&catalog.Found{ClusterID: "sim", Admin: auth.User{Name: "sim"}})
	w.cat.append(&catalog.RegisterNode{ID: "n1"})
	r := &planRig{T: t, w: w}
	declare := func(name string) uint64 {
		return w.cat.append(&catalog.DeclareQueue{Queue: catalog.Queue{Vhost: "/", Name: name, Durable: true, Kind: catalog.Replicated, State: catalog.Running, Members: []catalog.NodeID{"n1"}, Preferred: "n1"}})
	}
	r.g = &group{w: w, id: declare("source")}
	r.a, r.b = declare("a"), declare("b")
	w.oracle.add(r.g.id)
	for i, body := range []string{"p1-1", "p1-2", "p1-3"} {
		m := fsm.Message{RoutingKeys: []string{"source"}, Body: []byte(body)}
		publish := fsm.Publish{TTLMillis: -1, BodyBytes: uint32(len(body)), Message: fsm.EncodeMessage(nil, &m)}
		r.commit(to(1, "a"), fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: uint64(i) + 1, Ops: []fsm.Op{publish}})
	}
	return r
}

// to are the settings of a revision that send dead letters to a queue.
func to(revision uint64, key string) fsm.SetSettings {
	return fsm.SetSettings{Revision: revision, Name: "source", VHost: "/", Settings: queue.Settings{
		MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1, OutboxMax: -1,
		DeadLetter: true, DeadLetterKeySet: true, DeadLetterRoutingKey: key,
	}}
}

// drop lets a message die.
func drop(id queue.MessageID) fsm.DropHeads {
	return fsm.DropHeads{IDs: []queue.IDRange{{First: id, Last: id}}}
}

func plan(settings, target uint64) fsm.Plan {
	return fsm.Plan{Settings: settings, Automatic: true, Targets: []uint64{target}}
}

// commit commits an entry of the newest catalog revision.
func (r *planRig) commit(commands ...fsm.Command) {
	r.ordinal++
	e := fsm.Entry{Session: 1, Ordinal: r.ordinal, TimeMillis: int64(r.ordinal), CatalogRev: r.w.cat.committed(), Commands: commands}
	r.g.commit(fsm.EncodeEntry(nil, &e))
}

// want compares how many letters had plans, and the first complaint in part, "" for none.
func (r *planRig) want(plans int, complaint string) {
	r.Helper()
	if n := r.w.oracle.plans; n != plans {
		r.Errorf("%d letters were planned, want %d", n, plans)
	}
	err := r.w.failed()
	if complaint == "" && err != nil || complaint != "" && (err == nil || !strings.Contains(err.Error(), complaint)) {
		r.Errorf("the oracle says %v, want %q", err, complaint)
	}
}

// An entry's plan is in front of the settings that the same entry brings: what waits or dies before
// those goes the old way, and is called back by them.
func TestOracleOfPlans(t *testing.T) {
	t.Run("settings change behind the plan", func(t *testing.T) {
		r := newPlanRig(t)
		r.commit(drop(1)) // waits for a way
		r.commit(plan(1, r.a), drop(2), to(2, "b"), drop(3))
		r.want(2, "")
		r.commit(plan(2, r.b))
		r.want(2, "") // those that are called back are in front of the third
	})
	t.Run("the way of the settings behind the plan", func(t *testing.T) {
		r := newPlanRig(t)
		r.commit(plan(1, r.b), drop(1), to(2, "b"))
		r.want(1, "no catalog from revision")
	})
	t.Run("a way that has ended", func(t *testing.T) {
		r := newPlanRig(t)
		r.commit(to(2, "b"))
		r.commit(plan(2, r.a), drop(1))
		r.want(1, "no catalog from revision")
	})
	t.Run("a plan behind the settings of its entry", func(t *testing.T) {
		r := newPlanRig(t)
		r.commit(to(2, "b"), plan(2, r.b), drop(1))
		r.want(1, "a plan under the settings of revision 2 holds under those of 1")
	})
	t.Run("a way that came and went", func(t *testing.T) {
		r := newPlanRig(t)
		r.w.cat.append(&catalog.DeleteQueue{Vhost: "/", Name: "a"})
		r.commit(plan(1, r.a), drop(1))
		r.want(1, "no catalog from revision")
	})
}

// A plan that gives a way to an expired message that might have stayed takes it from the queue.
func TestOracleOfPlansForMessagesThatMayStay(t *testing.T) {
	r := newPlanRig(t)
	stay := to(2, "a")
	stay.Settings.StopTTL, stay.Settings.MessageTTLMillis = true, 0
	r.commit(stay)
	m := fsm.Message{RoutingKeys: []string{"source"}, Body: []byte("p1-4")}
	publish := fsm.Publish{TTLMillis: -1, BodyBytes: 4, Message: fsm.EncodeMessage(nil, &m)}
	r.commit(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: 4, Ops: []fsm.Op{publish}})
	r.commit(fsm.Expire{IDs: []queue.IDRange{{First: 4, Last: 4}}})
	r.want(0, "")
	r.commit(plan(2, r.a))
	r.want(1, "")
}

// A letter that stays on its way as other settings end that one would be complained of.
func TestOracleOfLettersCalledBack(t *testing.T) {
	r := newPlanRig(t)
	r.commit(plan(1, r.a), drop(1))
	q := r.w.oracle.queues[r.g.id]
	it, _ := q.m.Outbox().Item(1)
	was := standingOf(q.m)
	r.w.oracle.calledBack(q, &it, &was)
	r.want(1, "")
	was.settings = to(1, "b").Settings
	r.w.oracle.calledBack(q, &it, &was)
	r.want(1, "keeps the way")
}
