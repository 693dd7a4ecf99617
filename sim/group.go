package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
)

var (
	errNotLeader = errors.New("sim: not the leader")
	errUnknown   = errors.New("sim: outcome is unknown")
	errGone      = errors.New("sim: entry is not in the log")
)

// group stands in for a queue's Raft group: one committed sequence that all
// members share, a leader whose proposals are committed after a while or dropped
// with its fall, and members that apply at their own pace. World.mu guards it.
type group struct {
	w       *World
	id      uint64
	members []string

	log     []entry // entry i has index i+1
	pending []*proposal
	term    uint64
	leader  string // "" for none
	since   time.Time
	wake    chan struct{}
	stopped chan struct{}
	gone    map[string]bool // members that have wiped their replica

	replicas map[string]*member
	disks    map[string]*disk
}

type entry struct {
	data []byte
	term uint64
}

// proposal is an entry that the leader has appended and that is not committed.
type proposal struct {
	data []byte
	done func(error)
}

// disk is what a member keeps over restarts.
type disk struct {
	manifest []byte
	index    uint64 // of the manifest; entries up to it are there only if pinned
	pins     []fsm.IndexRange
}

func (d *disk) has(index uint64) bool {
	if index > d.index {
		return true
	}
	return slices.ContainsFunc(d.pins, func(r fsm.IndexRange) bool { return index >= r.First && index <= r.Last })
}

// member is one node's replica during one incarnation. It implements broker.Group.
type member struct {
	g    *group
	n    *node
	r    *leader.Replica
	lead func(term uint64, node string, self bool)

	// Guarded by World.mu.
	leads    bool        // as the member believes
	zombies  []*proposal // proposed after it was deposed and before it learnt of it
	notices  []notice
	applied  uint64
	lapsed   bool // the lease has run out
	silent   bool // crashed or wiped
	applyNow chan struct{}
	tellNow  chan struct{}
	stop     chan struct{}
}

type notice struct {
	term uint64
	node string
}

// nodeGroups implements broker.Groups for one incarnation of a node.
type nodeGroups struct {
	n  *node
	mu sync.Mutex

	members map[uint64]*member
}

// Heat implements broker.Groups: after a start queues are opened in another order.
func (ng *nodeGroups) Heat(id uint64) int64 { return int64(id * 7919 % 5) }

// Start implements broker.Groups.
func (ng *nodeGroups) Start(q *catalog.Queue, r *leader.Replica, lead func(uint64, string, bool)) (broker.Group, error) {
	w := ng.n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.groups[q.ID]
	if g == nil {
		g = &group{
			w: w, id: q.ID, wake: make(chan struct{}, 1), stopped: make(chan struct{}), gone: map[string]bool{},
			replicas: map[string]*member{}, disks: map[string]*disk{},
		}
		for _, m := range q.Members {
			g.members = append(g.members, string(m))
		}
		w.groups[q.ID] = g
		w.oracle.add(q.ID)
		w.work.Go(g.commitLoop)
	}
	m := &member{
		g: g, n: ng.n, r: r, lead: lead,
		applyNow: make(chan struct{}, 1), tellNow: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	if d := g.disks[ng.n.id]; d != nil && d.index > 0 {
		if err := r.Restore(d.manifest); err != nil {
			w.problem("queue %d: restore on %s: %v", g.id, ng.n.id, err)
		}
		m.applied = d.index
	} else if d == nil {
		g.disks[ng.n.id] = &disk{}
	}
	g.replicas[ng.n.id] = m
	ng.mu.Lock()
	ng.members[q.ID] = m
	ng.mu.Unlock()
	w.work.Go(m.applyLoop)
	w.work.Go(m.noticeLoop)
	kick(m.applyNow)
	if g.leader != "" {
		m.notify(notice{g.term, g.leader})
	}
	return m, nil
}

// Yield implements broker.Groups. The members of a queue do not change here; package sim/deep has that.
func (*nodeGroups) Yield(context.Context, uint64) {}

// Survives implements broker.Groups.
func (*nodeGroups) Survives(context.Context, *catalog.Queue) bool { return false }

// Follow implements broker.Group.
func (*member) Follow(*catalog.Queue) {}

// Stop implements broker.Groups. No queue of the simulation is recovered.
func (ng *nodeGroups) Stop(id uint64) error { return fmt.Errorf("queue %d is stopped", id) }

// Delete implements broker.Groups.
func (ng *nodeGroups) Delete(id uint64) error {
	w := ng.n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	ng.mu.Lock()
	m := ng.members[id]
	delete(ng.members, id)
	ng.mu.Unlock()
	if m == nil {
		return nil
	}
	m.end()
	g := m.g
	delete(g.disks, ng.n.id)
	g.gone[ng.n.id] = true
	if g.leader == ng.n.id {
		g.fall()
	}
	if len(g.gone) == len(g.members) {
		close(g.stopped)
		delete(w.groups, id)
	}
	return nil
}

// crash ends every member of the incarnation: what it had appended is committed in
// part, as other members may have got it.
func (ng *nodeGroups) crash() {
	w := ng.n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	ng.mu.Lock()
	defer ng.mu.Unlock()
	for _, m := range ng.members {
		m.end()
		if m.g.leader == ng.n.id {
			m.g.fall()
		}
	}
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// end is called with World.mu held.
func (m *member) end() {
	if m.silent {
		return
	}
	m.silent = true
	m.leads = false
	m.zombies = nil
	close(m.stop)
	if m.g.replicas[m.n.id] == m {
		delete(m.g.replicas, m.n.id)
	}
}

// fall ends the present leadership: a part of what is pending is committed, the
// rest is lost. World.mu is held.
func (g *group) fall() {
	if g.leader == "" {
		return
	}
	keep := g.w.rand(len(g.pending) + 1)
	old := g.replicas[g.leader]
	for i, p := range g.pending {
		if i < keep {
			g.commit(p.data)
		}
		if old != nil {
			old.zombies = append(old.zombies, p) // learns of its fate later
		}
	}
	g.pending = nil
	g.leader = ""
	g.since = time.Now()
}

// elect makes a member the leader. World.mu is held.
func (g *group) elect(id string) {
	g.fall()
	g.term++
	g.leader = id
	for _, m := range g.replicas {
		if g.w.oneIn(3) {
			m.notify(notice{g.term, ""})
		}
		m.notify(notice{g.term, id})
	}
}

// notify is called with World.mu held.
func (m *member) notify(n notice) {
	m.notices = append(m.notices, n)
	kick(m.tellNow)
}

// noticeLoop tells the host of changes of leadership, late but in order.
func (m *member) noticeLoop() {
	w := m.g.w
	for {
		select {
		case <-m.stop:
			return
		case <-m.tellNow:
		}
		for {
			d := w.between(0, 3*time.Millisecond)
			if w.fails(8) {
				d = w.between(0, 300*time.Millisecond)
			}
			if !w.sleep(d) {
				return
			}
			w.mu.Lock()
			if m.silent || len(m.notices) == 0 {
				w.mu.Unlock()
				break
			}
			n := m.notices[0]
			m.notices = m.notices[1:]
			self := n.node == m.n.id && m.g.leader == n.node && m.g.term == n.term
			m.leads = self
			m.lapsed = false
			zombies := m.zombies
			m.zombies = nil
			w.mu.Unlock()
			for _, p := range zombies {
				p.done(errUnknown)
			}
			m.lead(n.term, n.node, self)
		}
	}
}

// Propose implements leader.Log.
func (m *member) Propose(data []byte, done func(error)) {
	w := m.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	g := m.g
	p := &proposal{data, done}
	switch {
	case m.silent:
	case !m.leads:
		w.work.Go(func() { done(errNotLeader) })
	case g.leader != m.n.id:
		m.zombies = append(m.zombies, p)
	case w.fails(700):
		w.work.Go(func() { done(errUnknown) }) // never appended, while later ones may be
	default:
		if w.fails(700) {
			w.work.Go(func() { // appended, but the answer is too late
				w.sleep(w.between(0, 5*time.Millisecond))
				done(errUnknown)
			})
		}
		g.pending = append(g.pending, p)
		kick(g.wake)
	}
}

// Read implements leader.Log.
func (m *member) Read(index uint64) ([]byte, error) {
	m.g.w.mu.Lock()
	defer m.g.w.mu.Unlock()
	d := m.g.disks[m.n.id]
	if m.silent || d == nil || index == 0 || index > uint64(len(m.g.log)) {
		return nil, errGone
	}
	if !d.has(index) {
		return nil, errGone // let go since the reader looked, or a pin is missing: then the message stays for ever
	}
	return m.g.log[index-1].data, nil
}

// HasLease implements leader.Log.
func (m *member) HasLease() bool {
	m.g.w.mu.Lock()
	defer m.g.w.mu.Unlock()
	return m.leads && !m.lapsed
}

// RestIf implements broker.Group.
func (m *member) RestIf(func() bool) {}

// Beginning implements broker.Group.
func (m *member) Beginning() (index, term uint64) { return 0, 0 }

// IsLeader implements broker.Group.
func (m *member) IsLeader() bool {
	m.g.w.mu.Lock()
	defer m.g.w.mu.Unlock()
	return m.leads
}

// commitLoop commits what the leader has appended while it has a quorum.
func (g *group) commitLoop() {
	w := g.w
	for {
		select {
		case <-g.stopped:
			return
		case <-w.ctx.Done():
			return
		case <-g.wake:
		}
		for {
			if !w.sleep(w.between(100*time.Microsecond, 3*time.Millisecond)) {
				return
			}
			w.mu.Lock()
			if len(g.pending) == 0 || g.leader == "" {
				w.mu.Unlock()
				break
			}
			if g.quorum(g.leader) {
				n := 1 + w.rand(len(g.pending))
				for _, p := range g.pending[:n] {
					g.commit(p.data)
				}
				g.pending = g.pending[n:]
			}
			w.mu.Unlock()
		}
	}
}

// quorum tells whether a node reaches most members. World.mu is held.
func (g *group) quorum(from string) bool {
	n := 0
	for _, id := range g.members {
		if m := g.replicas[id]; m != nil && g.w.net.connected(from, id) {
			n++
		}
	}
	return 2*n > len(g.members)
}

// commit is called with World.mu held.
func (g *group) commit(data []byte) {
	g.log = append(g.log, entry{data, g.term})
	g.w.oracle.commit(g, uint64(len(g.log)), data)
	for _, m := range g.replicas {
		kick(m.applyNow)
	}
}

// applyLoop applies committed entries and takes a snapshot now and then.
func (m *member) applyLoop() {
	w := m.g.w
	for {
		select {
		case <-m.stop:
			return
		case <-m.applyNow:
		}
		for {
			d := w.between(0, time.Millisecond)
			if w.fails(60) {
				d = w.between(0, 80*time.Millisecond)
			}
			if !w.sleep(d) {
				return
			}
			if w.fails(40) {
				m.install()
			}
			if !m.applySome(1 + w.rand(8)) {
				break
			}
			if w.oneIn(25) {
				m.snapshot()
			}
		}
	}
}

// install replaces the machine of a member that has fallen far behind by the newest
// manifest of another, as InstallSnapshot does; it may still take itself for the leader.
func (m *member) install() {
	w := m.g.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.silent || m.g.leader == m.n.id {
		return
	}
	for _, id := range m.g.members {
		d, own := m.g.disks[id], m.g.disks[m.n.id]
		if d == nil || own == nil || d.index <= m.applied {
			continue
		}
		if err := m.r.Restore(d.manifest); err != nil {
			w.problem("queue %d: install on %s: %v", m.g.id, m.n.id, err)
			return
		}
		own.manifest, own.index, own.pins = d.manifest, d.index, d.pins
		m.applied = d.index
		return
	}
}

func (m *member) applySome(n int) bool {
	w := m.g.w
	for range n {
		w.mu.Lock()
		if m.silent || m.applied >= uint64(len(m.g.log)) {
			w.mu.Unlock()
			return false
		}
		m.applied++
		index := m.applied
		data := m.g.log[index-1].data
		w.mu.Unlock()
		m.r.Apply(index, data)
	}
	return true
}

func (m *member) snapshot() {
	encode := m.r.Snapshot()
	w := m.g.w
	w.mu.Lock()
	index := m.applied
	w.mu.Unlock()
	manifest, pins := encode()
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := m.g.disks[m.n.id]; d != nil && !m.silent {
		d.manifest, d.index, d.pins = manifest, index, pins
	}
}

// elector gives groups without a working leader another one, as detector and
// injected elections do.
func (w *World) elector() {
	for w.sleep(15 * time.Millisecond) {
		w.mu.Lock()
		for _, g := range w.sortedGroups() {
			if g.leader != "" && g.replicas[g.leader] != nil && g.quorum(g.leader) {
				g.since = time.Time{}
				continue
			}
			if g.since.IsZero() {
				g.since = time.Now()
			}
			patience := 250 * time.Millisecond
			if g.term == 0 {
				patience = 0
			}
			if time.Since(g.since) < patience {
				continue
			}
			var able []string
			for _, id := range g.members {
				if g.replicas[id] != nil && g.quorum(id) {
					able = append(able, id)
				}
			}
			if len(able) > 0 {
				g.elect(able[w.rand(len(able))])
				g.since = time.Time{}
			}
		}
		w.mu.Unlock()
	}
}

// sortedGroups is called with mu held.
func (w *World) sortedGroups() []*group {
	list := make([]*group, 0, len(w.groups))
	for _, g := range w.groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int { return int(int64(a.id) - int64(b.id)) })
	return list
}
