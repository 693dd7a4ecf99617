package group

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// decaying is a replica whose bytes decay at a certain moment: from then on it answers every call with that, as the segment log does.
type decaying struct {
	*memLog
	readable uint64 // of its entries, from when GetLog may fail; 0: all
	gone     atomic.Bool
	armed    atomic.Bool
}

var errRot = &store.CorruptError{Group: store.GroupID(queueA), Segment: 1, Offset: 1, Reason: "a test"}

func (l *decaying) Err() error {
	if l.gone.Load() {
		return errRot
	}
	return nil
}

func (l *decaying) GetLog(index uint64, to *raft.Log) error {
	if l.armed.Load() && index > l.readable {
		l.gone.Store(true)
	}
	return unless(l.Err(), func() error { return l.memLog.GetLog(index, to) })
}

func (l *decaying) StoreLogs(es []*raft.Log) error {
	return unless(l.Err(), func() error { return l.memLog.StoreLogs(es) })
}

func (l *decaying) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *decaying) SetUint64(key []byte, v uint64) error {
	return unless(l.Err(), func() error { return l.memLog.SetUint64(key, v) })
}

func (l *decaying) Set(key, v []byte) error {
	return unless(l.Err(), func() error { return l.memLog.Set(key, v) })
}

func (l *decaying) Get(key []byte) (v []byte, err error) {
	return v, unless(l.Err(), func() error { v, err = l.memLog.Get(key); return err })
}

func (l *decaying) Read(index uint64) (b []byte, err error) {
	return b, unless(l.Err(), func() error { b, err = l.memLog.Read(index); return err })
}

func unless(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}

// decayingStore has one rotten replica until it is deleted.
type decayingStore struct {
	*memStore
	l *decaying
}

func (s *decayingStore) Group(id transport.GroupID) Log {
	l := s.memStore.Group(id)
	if s.l == nil {
		return l
	}
	s.l.memLog = l.(*memLog)
	return s.l
}

func (s *decayingStore) DeleteGroup(id transport.GroupID) error {
	s.l = nil
	return s.memStore.DeleteGroup(id)
}

// TestDamagedReplicaEndsAlone: bytes of one replica decay, and it is noticed where raft would panic: as a follower applies an entry, and as
// it stores a term, or as a leader's entry is read. The replica ends, its node goes on, and the group does; the replica cannot be started
// again, but begins anew as another one when the rest works without it.
func TestDamagedReplicaEndsAlone(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, p *planned, l *decaying, at *Group){
		"a follower applies": func(_ *testing.T, p *planned, l *decaying, _ *Group) {
			l.armed.Store(true)
			p.put("b")
		},
		"a term comes": func(t *testing.T, p *planned, l *decaying, _ *Group) {
			l.gone.Store(true)
			lead := p.leader(queueA)
			for _, id := range p.ids[:3] {
				if id != lead.host.cfg.Local && id != "n2" {
					if err := lead.TransferTo(t.Context(), id); err != nil {
						t.Error(err)
					}
				}
			}
		},
		"a leader reads": func(t *testing.T, p *planned, l *decaying, at *Group) {
			if lead := p.leader(queueA); lead != at {
				if err := lead.TransferTo(t.Context(), "n2"); err != nil {
					t.Error(err)
				}
			}
			l.gone.Store(true)
			if _, err := at.Read(2); err == nil {
				t.Error("it was read")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told atomic.Int64
			rot := &decaying{}
			kept := map[transport.NodeID]Storage{}
			withPlanTuned(t, func(cfg *HostConfig) {
				cfg.OnDamaged = func(transport.GroupID) { told.Add(1) }
				if cfg.Local != "n2" {
					return
				}
				if kept["n2"] == nil {
					kept["n2"] = &decayingStore{cfg.Store.(*memStore), rot}
				}
				cfg.Store = kept["n2"]
			}, func(t *testing.T, p *planned) {
				p.put("a")
				p.agreeOf("a")
				n := p.nodes["n2"]
				g, _ := n.host.Group(queueA)
				damage(t, p, rot, g)
				waitFor(t, 10*time.Second, "nobody is told of the damage", func() bool { return told.Load() > 0 })
				if _, runs := n.host.Group(queueA); runs {
					t.Error("it still runs")
				}
				for _, id := range p.ids[:3] { // its node is there, and it is not: both others are needed
					need := p.nodes[id].host.CriticalGroups(t.Context())
					if id != "n2" && !slices.Equal(need, []transport.GroupID{queueA}) || id == "n2" && len(need) > 0 {
						t.Errorf("%s is needed by groups %v", id, need)
					}
				}
				saysDamaged(t, p, true)
				p.put("c")
				if _, err := n.host.Start(Spec{ID: queueA, Members: p.ids[:3], Bootstrap: true}, &ledger{}, nil); !errors.Is(err, ErrDamaged) {
					t.Errorf("started again: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if !n.host.Survives(ctx, queueA, p.ids[:3]) || n.host.Survives(ctx, queueA, p.ids[:4]) {
					t.Error("three members work without it, four do not have a majority of three")
				}
				if err := n.host.Delete(queueA); err != nil {
					t.Fatal(err)
				}
				saysDamaged(t, p, false)
				n.forget()
				p.want(Membership{Wanted: []transport.ReplicaID{"n0", "n1", "n2#9"}, Revision: 9})
				p.settle()
				waitFor(t, time.Minute, "it is not filled", func() bool {
					n.mu.Lock()
					defer n.mu.Unlock()
					all := slices.Compact(slices.Clone(n.machines[queueA].all()))
					return len(all) >= 2 && all[0] == "a" && all[len(all)-1] == "c"
				})
				if told.Load() != 1 {
					t.Errorf("told %d times", told.Load())
				}
			})
		})
	}
}

// saysDamaged asks n2, from there and from another node, whether its replica is damaged.
func saysDamaged(t *testing.T, p *planned, want bool) {
	t.Helper()
	for _, id := range []transport.NodeID{"n0", "n2"} {
		said, err := p.nodes[id].host.Positions(t.Context(), "n2", []transport.GroupID{queueA, queueA + 99})
		if err != nil || said[0] != (Position{Damaged: want}) || said[1] != (Position{}) {
			t.Errorf("%s hears %+v of the replica, %v", id, said, err)
		}
	}
}

// TestOnlyTheNewestPlanIsCarriedOut: a leader whose node has not heard of a newer plan changes nothing; what a change of an older plan has left
// behind is undone when the members are settled.
func TestOnlyTheNewestPlanIsCarriedOut(t *testing.T) {
	var newest atomic.Uint64
	withPlanTuned(t, func(cfg *HostConfig) {
		cfg.Current = func(_ context.Context, _ transport.GroupID, revision uint64) (bool, error) {
			return revision == newest.Load(), nil
		}
	}, func(t *testing.T, p *planned) {
		newest.Store(10)
		p.want(Membership{Wanted: []transport.ReplicaID{"n0", "n1", "n3#9"}, Revision: 9})
		time.Sleep(20 * time.Second)
		g := p.waitLeader(queueA, time.Minute)
		if m := g.Members(); len(m) != 3 || p.reached != 0 {
			t.Fatalf("members %v, reached %d", m, p.reached)
		}
		// The newer plan was reached in the meantime: nothing is to be done, and nobody is told again.
		newest.Store(11)
		settled := Membership{Wanted: []transport.ReplicaID{"n0", "n1", "n2"}, Revision: 11, Settled: true}
		if err := g.AddNonvoter(t.Context(), "n3#9", 0); err != nil { // of the older plan, late
			t.Fatal(err)
		}
		for _, id := range p.ids[:3] {
			g, _ := p.nodes[id].host.Group(queueA)
			g.Want(&settled)
		}
		waitFor(t, time.Minute, "what is left of the older plan stays", func() bool { return len(g.Members()) == 3 })
		time.Sleep(10 * time.Second)
		if p.reached != 0 {
			t.Errorf("told of %d", p.reached)
		}
		r := g.host.reach
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.work) != 0 {
			t.Error("a settled group is still looked at")
		}
	})
}

// TestHomeChanges: a leader goes where it is wanted at last, and stays if that is not known any more.
func TestHomeChanges(t *testing.T) {
	bubble(t, 3, homing, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		c.waitLeader(queueA, 5*time.Second)
		for _, home := range []transport.NodeID{"n1", "n2", "n0"} {
			for _, n := range c.nodes {
				g, _ := n.host.Group(queueA)
				g.SetHome(home)
				if g.Home() != home {
					t.Errorf("it is at home at %s", g.Home())
				}
			}
			waitFor(t, 30*time.Second, "it is not led at "+string(home), func() bool {
				g := c.leader(queueA)
				return g != nil && g.host.cfg.Local == home
			})
		}
		for _, n := range c.nodes {
			g, _ := n.host.Group(queueA)
			g.SetHome("n1")
			g.SetHome("")
		}
		time.Sleep(30 * time.Second)
		if g := c.leader(queueA); g.host.cfg.Local != "n0" || g.host.balance.away() != 0 {
			t.Errorf("led by %s, %d are away", g.host.cfg.Local, g.host.balance.away())
		}
	})
}

// TestLogWithAHoleIsDamaged: a replica whose log lacks an entry cannot be opened, and never will be: it is for the caller to begin it anew.
func TestLogWithAHoleIsDamaged(t *testing.T) {
	all := make(map[transport.NodeID]*memStore)
	c := newRealCluster(t, func(id transport.NodeID) (Storage, io.Closer) {
		if all[id] == nil {
			all[id] = newMemStore()
		}
		return all[id], nothing{}
	}, eager())
	c.found(1)
	for range 3 {
		c.commitAll(c.every(1), "x", 10*time.Second)
	}
	n := c.nodes[c.ids[0]]
	if err := n.host.Stop(queueA); err != nil {
		t.Fatal(err)
	}
	l := all[c.ids[0]].Group(queueA).(*memLog)
	l.mu.Lock()
	delete(l.entries, l.last-1)
	l.mu.Unlock()
	if _, err := n.host.Start(Spec{ID: queueA, Members: c.ids, Bootstrap: true}, &ledger{}, nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("started: %v", err)
	}
}
