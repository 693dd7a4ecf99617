package leader

import (
	"slices"
	"sync"
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// planRig plays the catalog of a leader.
type planRig struct {
	*rig
	t     *testing.T
	under Log

	mu       sync.Mutex
	revision uint64
	settings queue.Settings
	setAt    uint64
	way      Way
	asked    int
	plans    []fsm.Plan // in the log, by entry
}

func (r *planRig) Propose(data []byte, done func(error)) {
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	for i, c := range e.Commands {
		if p, ok := c.(fsm.Plan); ok {
			if i > 0 {
				r.t.Error("a plan behind another command")
			}
			r.plans = append(r.plans, p)
		}
	}
	r.mu.Unlock()
	r.under.Propose(data, done)
}

func (r *planRig) Read(index uint64) ([]byte, error) { return r.under.Read(index) }
func (r *planRig) HasLease() bool                    { return true }

func newPlanRig(t *testing.T) *planRig {
	r := &planRig{t: t, revision: 1, setAt: 1, settings: plain(), way: Way{Targets: []uint64{20, 30}}}
	r.settings.DeadLetter, r.settings.DeadLetterExchange = true, "dlx"
	change := func(c *Config) {
		if r.under == nil {
			r.under = c.Log
		}
		c.Log = r
		c.Settings = func() (queue.Settings, uint64, string, string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.settings, r.setAt, "/", "q"
		}
		c.CatalogRevision = func() uint64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.revision
		}
		c.Way = func(vhost, name string, set *queue.Settings) Way {
			r.mu.Lock()
			defer r.mu.Unlock()
			if vhost != "/" || name != "q" || set.DeadLetterExchange != r.settings.DeadLetterExchange {
				t.Errorf("asked for %q in %q with %+v", name, vhost, set)
			}
			r.asked++
			return r.way
		}
	}
	r.rig = newRigWith(t, r.settings, change, node(1))
	r.answerRoll(node(1))
	return r
}

// catalog changes the catalog.
func (r *planRig) catalog(f func()) {
	r.mu.Lock()
	r.revision++
	f()
	r.mu.Unlock()
	r.l.CatalogChanged()
	r.l.Describe() // it has seen that
}

// kill lets a consumer reject a new message and returns the item and the number of lookups.
func (r *planRig) kill(body string) (it dlx.Item) {
	r.t.Helper()
	var last dlx.ItemID
	r.replica.View(func(m *fsm.Machine) { last = m.Outbox().Last() })
	r.publish(node(1), body)
	r.settle(node(1), fsm.Discard, r.items(node(1), 1)...)
	eventually(r.t, "its death", func() (ok bool) {
		r.replica.View(func(m *fsm.Machine) { it, ok = m.Outbox().Item(last + 1) })
		return ok
	})
	return it
}

func (r *planRig) lookups() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func targetsOf(it dlx.Item) (list []uint64) {
	for _, l := range it.Legs {
		list = append(list, l.Target)
	}
	return list
}

// A plan is in the entries in which messages may die, and is that of the catalog copy.
func TestPlans(t *testing.T) {
	r := newPlanRig(t)
	n := node(1)
	r.publish(n, "acked")
	r.attach(n, 1, 10)
	r.settle(n, fsm.Ack, r.items(n, 1)...)
	r.publish(n, "requeued")
	r.settle(n, fsm.RequeueFailed, r.items(n, 1)...)
	r.settle(n, fsm.Ack, r.items(n, 1)...)
	r.mu.Lock()
	if len(r.plans) > 0 || r.asked > 0 {
		t.Errorf("plans %v without a death, asked %d times", r.plans, r.asked)
	}
	r.mu.Unlock()
	for range 3 {
		if it := r.kill("x"); !slices.Equal(targetsOf(it), []uint64{20, 30}) {
			t.Fatalf("died to %v", it.Legs)
		}
	}
	if r.lookups() != 1 {
		t.Errorf("asked %d times at one revision", r.asked)
	}
	r.catalog(func() { r.way = Way{Targets: []uint64{40}, Back: true} })
	if it := r.kill("y"); !slices.Equal(targetsOf(it), []uint64{40}) {
		t.Errorf("died to %v", it.Legs)
	}
	r.mu.Lock()
	if p := r.plans[len(r.plans)-1]; p.Automatic || p.Settings != 1 {
		t.Errorf("plan %+v", p)
	}
	r.mu.Unlock()
	r.catalog(func() { r.way = Way{} })
	if it := r.kill("z"); it.State != dlx.Unrouted {
		t.Errorf("died to %v", it.Legs)
	}
	many := make([]uint64, fsm.PlanTargetsMax+1)
	for i := range many {
		many[i] = uint64(100 + i)
	}
	r.catalog(func() { r.way = Way{Targets: many} })
	if it := r.kill("many"); it.State != dlx.Unrouted {
		t.Errorf("died to %v", it.Legs)
	}
	if r.lookups() != 4 {
		t.Errorf("asked %d times at four revisions", r.lookups())
	}
}

// A plan is for the settings of the machine, and the next leader makes its own.
func TestPlansFollowTheSettings(t *testing.T) {
	r := newPlanRig(t)
	r.attach(node(1), 1, 10)
	r.kill("a")
	r.catalog(func() {
		r.settings.DeadLetterExchange, r.setAt, r.way = "other", r.revision, Way{Targets: []uint64{50}}
	})
	eventually(t, "the settings", func() (ok bool) {
		r.replica.View(func(m *fsm.Machine) { ok = m.Settings().DeadLetterExchange == "other" })
		return ok
	})
	// The first is called back, and has to go before the others.
	if it := r.kill("b"); it.State != dlx.Unrouted {
		t.Errorf("died to %v", it.Legs)
	}
	r.l.Propose(fsm.TransferDone{Target: 20, UpTo: 1, Withdrawn: []uint64{1}}, false, nil)
	r.l.Propose(fsm.TransferDone{Target: 30, UpTo: 1, Withdrawn: []uint64{1}}, false, nil)
	r.l.Describe()
	r.lead()
	r.answerRoll(node(1))
	r.attach(node(1), 1, 10)
	if it := r.kill("c"); !slices.Equal(targetsOf(it), []uint64{50}) || it.Legs[0].Seq != 3 {
		t.Errorf("died to %v", it.Legs)
	}
	r.catalog(func() { r.settings.DeadLetter, r.setAt = false, r.revision })
	eventually(t, "the settings", func() (ok bool) {
		r.replica.View(func(m *fsm.Machine) { ok = !m.Settings().DeadLetter })
		return ok
	})
	asked := r.lookups()
	r.publish(node(1), "dropped")
	r.settle(node(1), fsm.Discard, r.items(node(1), 1)...)
	eventually(t, "its end", func() (ok bool) {
		r.replica.View(func(m *fsm.Machine) {
			c := m.Counters()
			ok = c.DroppedTotal() == 1
		})
		return ok
	})
	if r.lookups() != asked {
		t.Error("asked for the way of what goes nowhere")
	}
}
