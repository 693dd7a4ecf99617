package deep

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/warrenmq/warren/transport"
)

// A run whose members move has groups that come and go, as queues do that are declared and deleted: at any time between groupsMin and groupsMax.
const (
	groupsMin = 2
	groupsMax = 9
	// youngest is the most that passes before a group is deleted whose birth is under way.
	youngest = 300 * time.Millisecond
)

// born enters a group.
func (c *plans) born(founders []transport.NodeID) transport.GroupID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index++
	id := transport.GroupID(c.index)
	c.groups[id] = placing{founders: founders, members: founders, generations: make(map[transport.NodeID]uint64), settings: c.index}
	return id
}

// gone takes a group out. Its number is never given again.
func (c *plans) gone(id transport.GroupID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.groups, id)
}

// all are the groups that there are.
func (c *plans) all() []transport.GroupID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.groups))
}

// all are the groups that there are now.
func (w *world) all() []transport.GroupID {
	if w.plans == nil {
		return w.groups
	}
	return w.plans.all()
}

// bear has a group come or go. Some are deleted while they are being born.
func (x *nemesis) bear() {
	w := x.w
	live := w.all()
	if len(live) > groupsMin && x.births.IntN(2) == 0 {
		x.delete(live[x.births.IntN(len(live))])
		return
	}
	if len(live) >= groupsMax {
		return
	}
	founders := slices.Clone(w.ids)
	x.births.Shuffle(len(founders), func(i, j int) { founders[i], founders[j] = founders[j], founders[i] })
	id := w.plans.born(founders[:3])
	w.oracle.Note("group %d is born on %v", id, founders[:3])
	w.report.born.Add(1)
	if x.births.IntN(3) == 0 {
		time.Sleep(time.Duration(x.births.Int64N(int64(youngest))))
		x.delete(id)
	}
}

func (x *nemesis) delete(id transport.GroupID) {
	x.w.oracle.Note("group %d is deleted", id)
	x.w.report.deleted.Add(1)
	x.w.plans.gone(id)
}

// known are the groups that a process has heard of and those of which it has a replica yet.
func (l *life) known(k knowledge) []transport.GroupID {
	ids := slices.Collect(maps.Keys(k.groups))
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.hosted {
		if _, there := k.groups[id]; !there {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// remains says who has something of a group that there is no more, "" if nobody has.
func (w *world) remains() string {
	for _, n := range w.ids {
		l := w.nodes[n].running()
		if l == nil {
			return string(n) + " does not run"
		}
		for _, id := range l.st.Groups() {
			if !w.plans.view().needs(n, transport.GroupID(id)) {
				return fmt.Sprintf("%s keeps group %d, which is gone", n, id)
			}
		}
		for _, g := range l.host.Groups() {
			if len(w.plans.get(g.ID()).members) == 0 {
				return fmt.Sprintf("%s runs group %d, which is gone", n, g.ID())
			}
		}
	}
	return ""
}

// buried waits until nothing is left of deleted groups.
func (w *world) buried() {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		why := w.remains()
		if why == "" {
			return
		}
		if time.Since(began) > reachLimit {
			w.oracle.Fail("%s %v after healing", why, reachLimit)
			return
		}
	}
}
