package nemesis

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/jepsen/db"
)

// fakeDB is a cluster of which only is known which nodes run and what is wrong with them.
type fakeDB struct {
	db.DB
	down   map[string]bool
	broken map[string]db.Disk
	armed  map[string]bool
	clock  map[string]time.Duration
	forget map[string]bool
	// frozen nodes do not answer.
	frozen bool
}

var errFrozen = errors.New("no answer")

func newFakeDB() *fakeDB {
	return &fakeDB{down: map[string]bool{}, broken: map[string]db.Disk{}, armed: map[string]bool{}, clock: map[string]time.Duration{}, forget: map[string]bool{}}
}

func (f *fakeDB) Nodes() []string          { return db.NodeNames(3) }
func (f *fakeDB) Running(node string) bool { return !f.down[node] }
func (f *fakeDB) Launch(node string) error { f.down[node] = false; return nil }

func (f *fakeDB) Kill(node string) error {
	f.down[node] = true
	delete(f.broken, node)
	delete(f.armed, node)
	return nil
}

func (f *fakeDB) Break(_ context.Context, node string, d db.Disk) error {
	if f.frozen {
		return errFrozen
	}
	f.broken[node] = d
	return nil
}

func (f *fakeDB) Arm(_ context.Context, node, _ string, _ uint64) error {
	f.armed[node] = true
	return nil
}

func (f *fakeDB) Disarm(_ context.Context, node string) error {
	if f.frozen {
		return errFrozen
	}
	delete(f.armed, node)
	return nil
}

func (f *fakeDB) SetClock(node string, offset time.Duration) error {
	f.clock[node] = offset
	return nil
}

func (f *fakeDB) SetForget(node string, _ int) error {
	f.forget[node] = true
	return nil
}

// sound tells that all nodes run and nothing is wrong with any.
func (f *fakeDB) sound() bool {
	for _, n := range f.Nodes() {
		if f.down[n] || f.broken[n] != (db.Disk{}) || f.armed[n] || f.clock[n] != 0 {
			return false
		}
	}
	return true
}

// TestWithin: what is done from within does harm and is healed, also if the node is frozen, or has
// ended meanwhile.
func TestWithin(t *testing.T) {
	list, err := Select([]string{"within"}, false, true)
	if err != nil || len(list) != 7 {
		t.Fatal(list, err)
	}
	for _, n := range list {
		for _, meanwhile := range []string{"nothing", "frozen", "ended"} {
			synctest.Test(t, func(t *testing.T) {
				for seed := range uint64(4) {
					f := newFakeDB()
					e := &Env{DB: f, Rand: rand.New(rand.NewPCG(seed, 1))}
					if n.Prepare != nil {
						if err := n.Prepare(e); err != nil || len(f.forget) != 3 {
							t.Errorf("%s: prepared %v, %v", n.Name, f.forget, err)
						}
					}
					fault, err := n.Begin(t.Context(), e)
					if err != nil || f.sound() {
						t.Fatalf("%s: no harm done, %v", n.Name, err)
					}
					f.frozen = meanwhile == "frozen"
					if meanwhile == "ended" {
						for _, node := range f.Nodes() {
							if fault.Node == node {
								_ = f.Kill(node)
							}
						}
					}
					if err := fault.Heal(t.Context()); err != nil || !f.sound() {
						t.Errorf("%s (%s), %s: not healed: %+v, %v", n.Name, fault.What, meanwhile, f, err)
					}
				}
			})
		}
	}
}
