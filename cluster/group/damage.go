package group

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// A replica whose log has bytes that are not what was written ends at once: its store answers every call with that
// from then on. raft panics where it cannot read a committed entry, or store its term; that would end the node with
// all its other replicas, so its goroutine ends instead, and the rest of the instance is stopped as always.

// ErrDamaged reports a replica whose log cannot be used. It is of no use to anybody any more: what it has is deleted and it
// begins anew under another generation, or the disk is repaired.
var ErrDamaged = errors.New("the log of the replica is damaged")

// damageOf returns err joined with the damage of a log, if it has any.
func damageOf(log Log, err error) error {
	if err == nil {
		return nil
	}
	damage := err
	if l, ok := log.(interface{ Err() error }); ok && !isDamage(err) {
		damage = l.Err() // raft passes on at most the text of why it could not read
	}
	if !isDamage(damage) {
		return err
	}
	if !isDamage(err) {
		err = fmt.Errorf("%w: %w", err, damage)
	}
	return errors.Join(ErrDamaged, err)
}

// withoutHole takes it for damage that a replica cannot be opened because its log lacks an entry between its snapshot and its end: no crash
// does that, but a file that is gone.
func withoutHole(err error) error {
	if errors.Is(err, raft.ErrLogNotFound) {
		return errors.Join(ErrDamaged, err)
	}
	return err
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*store.CorruptError](err)
	return ok
}

// hurt ends the replica if err is a damage of its log.
func (g *Group) hurt(err error) (damaged bool) {
	if err == nil || !isDamage(err) {
		return false
	}
	if g.damaged.CompareAndSwap(false, true) {
		g.host.noteDamage(g.spec.ID)
		g.host.spawn(func() {
			g.host.log.Error("a replica ends because its log is damaged", "group", uint64(g.spec.ID), "err", err)
			led, members := g.leading.Load(), g.Members()
			if err := g.host.end(g.spec.ID, g, nil); err != nil {
				g.host.log.Warn("damaged replica not ended cleanly", "group", uint64(g.spec.ID), "err", err)
			}
			if led {
				g.host.renounce(g.spec.ID, members)
			}
			if g.host.cfg.OnDamaged != nil {
				g.host.cfg.OnDamaged(g.spec.ID)
			}
		})
	}
	return true
}

func (h *Host) noteDamage(id transport.GroupID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.damaged[id] = true
}

// isDamaged tells whether a group that does not run here has a damaged log.
func (h *Host) isDamaged(id transport.GroupID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.damaged[id]
}

// damagedLog ends the replica whose log the store has found damaged as it moved it. One that sleeps, or has nothing to do, would not read it before
// somebody needs it.
func (h *Host) damagedLog(id transport.GroupID, err error) {
	if g, ok := h.Group(id); ok {
		g.hurt(err)
	}
}

// renounce lets the members of a group know that it is not led here any more: this node is alive, so that nobody would
// look for another leader before raft's long timers end.
func (h *Host) renounce(id transport.GroupID, members []Member) {
	ctx, cancel := context.WithTimeout(h.ctx, pollTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range members {
		if m.Node == h.cfg.Local || !h.reachable(m.Node) {
			continue
		}
		wg.Go(func() {
			if _, err := h.askStatus(ctx, m.Node, askLeaderless, []transport.GroupID{id}); err != nil {
				h.log.Debug("a member does not hear that its leader has ended", "group", uint64(id), "node", m.Node, "err", err)
			}
		})
	}
	wg.Wait()
}

// stableLog is where raft keeps term and vote.
type stableLog struct {
	raft.StableStore
	g *Group
}

// SetUint64 implements raft.StableStore. raft stores the term on its main goroutine and panics if it cannot.
func (s stableLog) SetUint64(key []byte, v uint64) error {
	err := s.StableStore.SetUint64(key, v)
	if s.g.hurt(err) && string(key) == "CurrentTerm" {
		runtime.Goexit()
	}
	return err
}

// Set implements raft.StableStore.
func (s stableLog) Set(key, v []byte) error {
	err := s.StableStore.Set(key, v)
	s.g.hurt(err)
	return err
}

// endApplying ends the calling goroutine if it is raft's main one on its way to the machine: it would panic.
func endApplying() { endCalledBy("raft.(*Raft).processLogs") }

// endCalledBy ends the calling goroutine if a function of this name is among the nearest that led here.
func endCalledBy(function string) {
	if isCalledBy(function) {
		runtime.Goexit()
	}
}

// isCalledBy tells whether a function of this name is among the nearest that led here.
func isCalledBy(function string) bool {
	callers := make([]uintptr, 8)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, function) {
			return true
		}
		if !more {
			return false
		}
	}
}

// Survives tells whether a group works without this node's replica: more than half of its members follow one leader in its term. The members
// are those of the catalog, which are at least those of the group.
func (h *Host) Survives(ctx context.Context, id transport.GroupID, members []transport.NodeID) bool {
	var leader transport.NodeID
	var term uint64
	said := make(map[transport.NodeID]replicaStatus)
	for _, n := range members {
		if n == h.cfg.Local || !h.reachable(n) {
			continue
		}
		all, err := h.askStatus(ctx, n, 0, []transport.GroupID{id})
		if err != nil {
			continue
		}
		said[n] = all[0]
		if all[0].leads() && all[0].term > term {
			leader, term = n, all[0].term
		}
	}
	following := 0
	for n, s := range said {
		if s.known() && s.voter() && s.term == term && (n == leader || s.leader == leader) {
			following++
		}
	}
	return leader != "" && following >= len(members)/2+1
}

// Yield moves the leadership of a group to another live voter if this node has it. It ends with ctx.
func (h *Host) Yield(ctx context.Context, id transport.GroupID) {
	if g, ok := h.Group(id); ok && g.IsLeader() {
		h.moveAway(ctx, g, nil)
	}
}
