package deep

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/sim/links"
	"github.com/warrenmq/warren/store/crashfs"
)

// nemesis breaks things by its own chance until the time is over, and leaves them broken.
type nemesis struct {
	w *world
	r *rand.Rand
	// moves is its chance of changes of members, births that of groups that come and go.
	moves, births *rand.Rand
}

func (x *nemesis) run(limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		time.Sleep(time.Duration(x.r.Int64N(int64(x.w.cfg.gap()))))
		x.w.reap()
		if x.w.plans != nil && x.moves.IntN(2) == 0 {
			x.move()
		}
		if x.w.plans != nil {
			if x.moves.IntN(4) == 0 {
				x.wipe()
			}
			x.w.replaceLost()
			if x.births.IntN(4) == 0 {
				x.bear()
			}
			if x.births.IntN(12) == 0 {
				if err := x.recover(); err != nil {
					return err
				}
			}
		}
		if err := x.strike(); err != nil || !x.w.oracle.OK() {
			return err
		}
	}
	return nil
}

func (x *nemesis) anyone() *node { return x.w.nodes[x.w.ids[x.r.IntN(len(x.w.ids))]] }

func (x *nemesis) strike() error {
	w, n := x.w, x.anyone()
	w.report.strikes.Add(1)
	switch x.r.IntN(16) {
	case 0, 1, 2:
		silent := x.r.IntN(2) == 0
		w.oracle.Note("%s crashes, silent=%v", n.id, silent)
		n.crash(silent)
	case 3, 4, 5, 6:
		return w.bootAll()
	case 7:
		x.cut(n)
	case 8, 9:
		w.oracle.Note("links are healed")
		w.net.Change(func(l map[links.Link]links.State) { clear(l) })
	case 10:
		d := time.Duration(x.r.IntN(400)+1) * time.Millisecond
		o := x.anyone()
		w.oracle.Note("link %s to %s adds up to %v", n.id, o.id, d)
		w.net.Change(func(l map[links.Link]links.State) { l[links.Link{From: n.id, To: o.id}] = links.State{Slow: d} })
	case 11, 12:
		d := time.Duration(x.r.IntN(8)) * 60 * time.Millisecond
		if x.r.IntN(6) == 0 {
			d = 4 * time.Second
		}
		if l := n.running(); l != nil {
			w.oracle.Note("syncs of %s take up to %v more", n.id, d)
			l.disk.slow.Store(int64(d))
		}
	case 13:
		if l := n.running(); x.r.IntN(2) == 0 && l != nil {
			op, how := l.disk.breakSome(n.rnd)
			w.oracle.Note("each %s of %s fails: %v", op, n.id, how)
			w.report.brokenSyncs.Add(1)
		}
	case 14:
		x.transfer()
	case 15:
		if x.r.IntN(3) == 0 {
			w.oracle.Note("all nodes lose power")
			for _, id := range w.ids {
				w.nodes[id].crash(true)
			}
		}
	}
	return nil
}

// cut breaks links: a node's, one pair's, or one direction.
func (x *nemesis) cut(n *node) {
	w, o, kind := x.w, x.anyone(), x.r.IntN(3)
	w.oracle.Note("cut: %s", []string{"all of " + string(n.id), string(n.id) + " and " + string(o.id), string(n.id) + " to " + string(o.id)}[kind])
	w.report.cuts.Add(1)
	w.net.Change(func(l map[links.Link]links.State) {
		for _, id := range w.ids {
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

// transfer asks a leader to hand over, aside because it may take its time.
func (x *nemesis) transfer() {
	w := x.w
	all := w.all()
	id := all[x.r.IntN(len(all))]
	members := w.members(id)
	to := members[x.r.IntN(len(members))]
	if w.moving.CompareAndSwap(false, true) {
		w.wg.Go(func() {
			defer w.moving.Store(false)
			for _, n := range w.members(id) {
				if l := w.nodes[n].running(); l != nil {
					if g, ok := l.host.Group(id); ok && g.IsLeader() {
						w.oracle.Note("group %d is to move from %s to %s", id, n, to)
						_ = g.TransferTo(context.Background(), to)
						return
					}
				}
			}
		})
	}
}

// damage changes bytes in old segments of a node that is down meanwhile, and has the replicas that noticed refilled:
// demoted, wiped, filled as non-voters, promoted. All else is whole.
func (x *nemesis) damage() error {
	w, n := x.w, x.anyone()
	if err := w.threeOfEach(); err != nil {
		return err
	}
	n.crash(false)
	n.fs = n.fs.Image(n.fs.Len(), n.rnd) // what decays is on the disk
	files, err := n.fs.ReadDir("/data")
	if err != nil {
		return err
	}
	hit := corrupt(n.fs, files, n.rnd)
	w.oracle.Note("%s: %d bytes decay", n.id, len(hit))
	w.damaging.Store(true)
	defer w.damaging.Store(false)
	if err := n.boot(); err != nil {
		// A place that every group depends on: such a volume is given up. Here its bytes are put right instead.
		w.oracle.Note("%s does not start: %v", n.id, err)
		w.report.volumes.Add(1)
		for _, h := range hit {
			if err := n.fs.Corrupt(h.file, h.off, h.change); err != nil {
				return err
			}
		}
		n.fs = n.fs.Image(n.fs.Len(), n.rnd)
		if err := n.boot(); err != nil {
			return err
		}
	}
	if w.plans != nil {
		return w.settle() // whatever is damaged begins anew by itself
	}
	for id := range n.lost {
		if err := w.refill(n, id); err != nil {
			return err
		}
	}
	return nil
}

// decay is one byte that has changed.
type decay struct {
	file   string
	off    int64
	change byte
}

// corrupt changes some bytes in the older half of the segments. The newest must stay as it is: damage at
// its end cannot be told from a write that was never finished.
func corrupt(fs *crashfs.FS, names []string, r *rand.Rand) []decay {
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".seg") })
	slices.Sort(names)
	if len(names) < 6 {
		return nil
	}
	var hit []decay
	for range 1 + r.IntN(6) {
		d := decay{"/data/" + names[r.IntN(len(names)/2)], 4096 + r.Int64N(segmentBytes-4096), byte(1 + r.IntN(255))}
		if fs.Corrupt(d.file, d.off, d.change) == nil {
			hit = append(hit, d)
		}
	}
	return hit
}
