package deep

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/warrenmq/warren/store/crashfs"
	"github.com/warrenmq/warren/transport"
)

// disksMax is how many disks a node may lose in a run.
const disksMax = 16

// storages are nodes' disks that were lost, and those that are to take their places. It is used by the goroutine of Run only.
type storages struct {
	next map[transport.NodeID]transport.NodeID // a lost one: the node's next one
	lost []transport.NodeID
	// spare are storages that nobody has yet, by the one in whose place each comes.
	spare map[transport.NodeID]transport.NodeID
}

// addSpares makes the storages that a node may get one after the other: the world's nodes do not change once it runs.
func (w *world) addSpares(n *node, seed uint64) {
	name := string(n.id[:slices.Index([]byte(n.id), '/')])
	for i, last := 0, n.id; i < disksMax; i++ {
		id := transport.NodeID(fmt.Sprintf("%s/v%d", name, i+2))
		w.nodes[id] = &node{w: w, id: id, fs: crashfs.New(), rnd: rand.New(rand.NewPCG(w.cfg.Seed, seed+uint64(i)<<16)), lost: make(map[transport.GroupID]bool)}
		w.disks.spare[last], last = id, id
	}
}

// wipe takes a node's disk away for good. The node comes back under its name with an empty one, which is another storage.
func (x *nemesis) wipe() {
	w := x.w
	var can []transport.NodeID
	for _, id := range w.ids {
		if w.spares(id) {
			can = append(can, id)
		}
	}
	if len(can) == 0 {
		return
	}
	n := w.nodes[can[x.moves.IntN(len(can))]]
	next := w.disks.spare[n.id]
	w.oracle.Note("%s loses its disk, and will be %s", n.id, next)
	w.report.wiped.Add(1)
	n.crash(true)
	w.disks.next[n.id], w.disks.lost = next, append(w.disks.lost, n.id)
	w.ids = slices.Clone(w.ids)
	w.ids[slices.Index(w.ids, n.id)] = next
}

// spares tells whether each group keeps a majority without a node's disk: no other disk is missed, and no change of members is under way where
// this one has a part.
func (w *world) spares(n transport.NodeID) bool {
	for _, id := range w.all() {
		p := w.plans.get(id)
		if w.misses(p) || slices.Contains(p.members, n) && (p.wanted != nil || len(p.members) < 3) {
			return false
		}
	}
	return w.disks.spare[n] != ""
}

// misses tells whether a group has a member whose disk is lost.
func (w *world) misses(p placing) bool {
	return slices.ContainsFunc(p.members, func(n transport.NodeID) bool { return w.disks.next[n] != "" })
}

// introduce tells all processes which storages there are, and which never answer again.
func (w *world) introduce() {
	for _, id := range w.ids {
		if l := w.nodes[id].running(); l != nil {
			l.mesh.SetPeers(w.ids)
			l.det.SetPeers(w.ids)
			l.det.Gone(w.disks.lost)
		}
	}
}

// replaceLost plans, as the steward does, that new storages take the places of lost ones, as soon as they are there.
func (w *world) replaceLost() {
	for _, id := range w.all() {
		p := w.plans.get(id)
		wanted := slices.Clone(p.target())
		changed := false
		for i, n := range wanted {
			if next := w.disks.next[n]; next != "" && w.nodes[next].running() != nil {
				wanted[i], changed = next, true
			}
		}
		if changed && w.plans.plan(id, wanted, nil, p.settings) {
			w.oracle.Note("group %d: plan %d from %v to %v, for a lost disk", id, w.plans.get(id).settings, p.members, wanted)
		}
	}
}
