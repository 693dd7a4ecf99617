package meta

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/warrenmq/warren/sim/links"
	"github.com/warrenmq/warren/transport"
)

// gapMax is the most time between two strikes.
const gapMax = 1200 * time.Millisecond

// nemesis breaks things by its own chance until the time is over, and leaves them broken.
type nemesis struct {
	w *world
	r *rand.Rand
}

func (x *nemesis) run(limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		x.pass(gapMax)
		x.w.reap()
		x.w.oracle.counted(func(c *counters) { c.strikes++ })
		if err := x.strike(); err != nil || !x.w.oracle.OK() {
			return err
		}
	}
	return nil
}

// pass lets time go by.
func (x *nemesis) pass(most time.Duration) { time.Sleep(time.Duration(x.r.Int64N(int64(most)))) }

func (x *nemesis) anyone() *node {
	ids := x.w.present()
	return x.w.node(ids[x.r.IntN(len(ids))])
}

// leader is the node that leads, or any.
func (x *nemesis) leader() *node {
	for _, id := range x.w.present() {
		if l := x.w.node(id).running(); l != nil && l.cat.Leading() {
			return x.w.node(id)
		}
	}
	return x.anyone()
}

func (x *nemesis) strike() error {
	w, n := x.w, x.anyone()
	if x.r.IntN(3) == 0 {
		n = x.leader()
	}
	switch x.r.IntN(20) {
	case 0, 1, 2:
		silent := x.r.IntN(2) == 0
		w.oracle.Note("%s crashes, silent=%v", n.id, silent)
		n.crash(silent)
	case 3, 4, 5:
		return w.bootAll()
	case 6:
		x.cut(n)
	case 7, 8:
		x.heal()
	case 9:
		d, o := time.Duration(x.r.IntN(1500)+1)*time.Millisecond, x.anyone()
		w.oracle.Note("link %s to %s adds up to %v", n.id, o.id, d)
		w.net.Change(func(l map[links.Link]links.State) { l[links.Link{From: n.id, To: o.id}] = links.State{Slow: d} })
	case 10, 11:
		x.deafen(x.leader())
	case 12, 13:
		return x.depose(x.leader())
	case 14:
		x.breakDisk(n)
	case 15:
		x.freeze(n)
	case 16:
		x.yield(x.leader())
	case 17:
		x.compact(n)
	case 18:
		if x.r.IntN(3) == 0 {
			w.oracle.Note("all nodes lose power")
			for _, id := range w.present() {
				w.node(id).crash(true)
			}
		}
	case 19:
		x.w.reshape(x.r)
	}
	return nil
}

func (x *nemesis) heal() {
	x.w.oracle.Note("links are healed")
	x.w.net.Change(func(l map[links.Link]links.State) { clear(l) })
	for _, id := range x.w.present() {
		if l := x.w.node(id).running(); l != nil && x.r.IntN(2) == 0 {
			l.disk.heal()
		}
	}
}

// cut breaks links: a node's, one pair's, or one direction.
func (x *nemesis) cut(n *node) {
	w, o, kind := x.w, x.anyone(), x.r.IntN(3)
	w.oracle.Note("cut: %s", []string{"all of " + string(n.id), string(n.id) + " and " + string(o.id), string(n.id) + " to " + string(o.id)}[kind])
	ids := w.present()
	w.net.Change(func(l map[links.Link]links.State) {
		for _, id := range ids {
			if id == n.id || kind != 0 && id != o.id {
				continue
			}
			l[links.Link{From: n.id, To: id}] = links.State{Cut: true}
			if kind != 2 {
				l[links.Link{From: id, To: n.id}] = links.State{Cut: true}
			}
		}
	})
}

// toward changes all links to a node, and from it, too, if both.
func (x *nemesis) toward(n *node, both, cut bool) {
	ids := x.w.present()
	x.w.net.Change(func(l map[links.Link]links.State) {
		for _, id := range ids {
			if id == n.id {
				continue
			}
			l[links.Link{From: id, To: n.id}] = links.State{Cut: cut}
			if both {
				l[links.Link{From: n.id, To: id}] = links.State{Cut: cut}
			}
		}
	})
}

// suspect has some of the others hear that a node is dead: they may be wrong, and elect another leader.
func (x *nemesis) suspect(id transport.NodeID) {
	for _, o := range x.w.present() {
		if l := x.w.node(o).running(); l != nil && o != id && x.r.IntN(4) > 0 {
			l.cat.NodeDead(id)
		}
	}
}

// deafen lets a leader's word arrive and holds back what it is answered, for less than its lease, while others elect another one. Then the answers come,
// and the readers that have waited for them are told by one who leads no more.
func (x *nemesis) deafen(n *node) {
	w := x.w
	w.oracle.Note("%s hears nothing", n.id)
	x.toward(n, false, true)
	x.pass(1200 * time.Millisecond)
	x.suspect(n.id)
	x.pass(time.Second)
	if l := n.running(); l != nil {
		for i := range 4 {
			w.wg.Go(func() {
				ctx, cancel := context.WithTimeout(l.ctx, 3*time.Second)
				defer cancel()
				w.look(ctx, l, fmt.Sprintf("register-%d", i))
			})
		}
	}
	x.pass(400 * time.Millisecond)
	w.oracle.Note("%s hears again", n.id)
	x.toward(n, false, false)
}

// freeze stops a node as SIGSTOP would: nothing comes from it, and what comes to it waits.
func (x *nemesis) freeze(n *node) {
	w, l := x.w, n.running()
	if l == nil {
		return
	}
	w.oracle.Note("%s freezes", n.id)
	x.toward(n, true, true)
	l.disk.hang()
	if x.r.IntN(2) == 0 {
		x.pass(time.Second)
		x.suspect(n.id)
	}
	x.pass(4 * time.Second)
	w.oracle.Note("%s thaws", n.id)
	l.disk.heal()
	x.toward(n, true, false)
}

// depose cuts a leader off with what its clients propose, alone or with one follower, has the others go on and forget their logs, and lets it come
// back to a snapshot. Then the others die, or it is to lead.
func (x *nemesis) depose(n *node) error {
	w, with := x.w, x.anyone()
	w.oracle.Note("%s and %s are cut off", n.id, with.id)
	ids := w.present()
	w.net.Change(func(l map[links.Link]links.State) {
		for _, id := range ids {
			for _, off := range []*node{n, with} {
				if id != n.id && id != with.id {
					l[links.Link{From: id, To: off.id}], l[links.Link{From: off.id, To: id}] = links.State{Cut: true}, links.State{Cut: true}
				}
			}
		}
	})
	x.suspect(n.id)
	x.pass(3 * time.Second)
	for _, id := range ids {
		if id != n.id {
			x.compact(w.node(id))
		}
	}
	if x.r.IntN(2) == 0 {
		return nil
	}
	lame := x.anyone()
	if lame != n && x.r.IntN(2) == 0 {
		w.oracle.Note("%s crashes", lame.id)
		lame.crash(true)
	}
	x.heal()
	if l := n.running(); l != nil && x.r.IntN(3) == 0 {
		w.oracle.Note("%s is to end behind its next snapshot", n.id)
		l.disk.fail(fault{what: atPublish})
	}
	x.pass(2 * time.Second)
	x.toward(lame, true, false)
	if o := x.leader(); o != n && x.r.IntN(2) == 0 {
		w.oracle.Note("%s crashes", o.id)
		o.crash(false)
	} else {
		x.yield(o)
	}
	x.pass(2 * time.Second)
	return w.bootAll()
}

func (x *nemesis) breakDisk(n *node) {
	l := n.running()
	if l == nil {
		return
	}
	switch x.r.IntN(4) {
	case 0:
		x.w.oracle.Note("the disk of %s hangs", n.id)
		l.disk.hang()
	case 1:
		d := time.Duration(x.r.IntN(400)) * time.Millisecond
		x.w.oracle.Note("syncs of %s take up to %v more", n.id, d)
		l.disk.mu.Lock()
		l.disk.slow = d
		l.disk.mu.Unlock()
	default:
		f := faults[x.r.IntN(len(faults))]
		x.w.oracle.Note("%s of %s fails: %v", f.what, n.id, f.how)
		x.w.oracle.counted(func(c *counters) { c.disks++ })
		l.disk.fail(f)
	}
}

// yield has a leader give its leadership away, aside because it may take its time.
func (x *nemesis) yield(n *node) {
	l := n.running()
	if l == nil {
		return
	}
	x.w.oracle.Note("%s yields", n.id)
	x.w.wg.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, 3*time.Second)
		defer cancel()
		_ = l.cat.Yield(ctx, nil)
		l.cat.Willing()
	})
}

// compact has a node forget its log, but for a few entries.
func (x *nemesis) compact(n *node) {
	l := n.running()
	if l == nil {
		return
	}
	keep := uint64(x.r.IntN(6))
	if !l.compacting.CompareAndSwap(false, true) {
		return
	}
	x.w.wg.Go(func() {
		defer l.compacting.Store(false)
		if l.cat.Compact(keep) == nil {
			x.w.oracle.counted(func(c *counters) { c.snapshots++ })
		}
	})
}
