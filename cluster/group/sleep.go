package group

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/transport"
)

// MethodSleep is the transport method number under which the leader of idle groups has their other replicas fall asleep. See
// docs/formats/cluster-calls.md.
const MethodSleep uint8 = 0x23

const (
	sleepVersion = 1
	// sleepWould asks whether they would.
	sleepWould = 1
	// sleepAtOnce bounds the groups that fall asleep in one round.
	sleepAtOnce = 128
	// sleepTimeout bounds the question to one node.
	sleepTimeout = 2 * time.Second
)

// sleeper has groups that are led here fall asleep when they have been idle for long.
type sleeper struct {
	h *Host

	mu    sync.Mutex
	tires []tiring // in the order of time
	busy  bool     // a round is under way
}

// tiring is a group that had nothing to do since a moment. There is one of each group at most.
type tiring struct {
	g     *Group
	since time.Time
}

// RestIf says when the group may sleep, if not always. may is asked at the leader once in HostConfig.SleepAfter, and is quick.
func (g *Group) RestIf(may func() bool) { g.mayRest.Store(&may) }

// Asleep tells whether the replica sleeps.
func (g *Group) Asleep() bool { return g.asleep.Load() }

// tired notes that the watchdogs have nothing to look after in g.
func (s *sleeper) tired(g *Group) {
	if s.h.cfg.SleepAfter <= 0 || !g.leading.Load() || g.asleep.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.tiredAt = time.Now()
	if !g.tiring {
		g.tiring = true
		s.tires = append(s.tires, tiring{g, g.tiredAt})
	}
}

// due takes the groups whose time has come. Those that had something to do meanwhile come again: what they have to wait for begins with
// the last time, and others are before them, so that it may be twice as long.
func (s *sleeper) due(now time.Time) (all []*Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return nil
	}
	n := 0
	for n < len(s.tires) && len(all) < sleepAtOnce && now.Sub(s.tires[n].since) >= s.h.cfg.SleepAfter {
		g := s.tires[n].g
		n++
		switch {
		case isClosed(g.stopped) || !g.leading.Load():
			g.tiring = false // it is tired again after it has led again
		case g.awake.Load():
			s.tires = append(s.tires, tiring{g, now})
		case now.Sub(g.tiredAt) < s.h.cfg.SleepAfter:
			s.tires = append(s.tires, tiring{g, g.tiredAt})
		default:
			g.tiring = false
			all = append(all, g)
		}
	}
	clear(s.tires[:n])
	if s.tires = s.tires[n:]; len(s.tires) == 0 {
		s.tires = nil
	}
	s.busy = len(all) > 0
	return all
}

// round begins to put groups to sleep. It does not wait.
func (s *sleeper) round(now time.Time) {
	groups := s.due(now)
	if len(groups) == 0 {
		return
	}
	s.h.spawn(func() {
		s.lull(groups)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy = false
	})
}

// candidate is a group that may sleep, as it was when that was found.
type sleepCandidate struct {
	g      *Group
	l      leadership
	last   uint64
	absent []transport.NodeID
	refuse bool
}

// lull has the other nodes' replicas fall asleep, each node asked once for all groups, and then those here. All are asked whether they
// would before, because a replica whose leader stays awake is woken by it.
func (s *sleeper) lull(groups []*Group) {
	byNode := make(map[transport.NodeID][]*sleepCandidate)
	all := make([]*sleepCandidate, 0, len(groups))
	for _, g := range groups {
		c, others, ok := g.maySleep()
		if !ok {
			s.tired(g) // another time
			continue
		}
		all = append(all, c)
		for _, n := range others {
			byNode[n] = append(byNode[n], c)
		}
	}
	s.askAll(byNode, sleepWould)
	for n, cs := range byNode {
		byNode[n] = slices.DeleteFunc(cs, func(c *sleepCandidate) bool { return c.refuse })
	}
	s.askAll(byNode, 0)
	for _, c := range all {
		if c.refuse || c.g.awake.Load() || !c.g.ownerAgrees() || !c.g.doze(c.l, c.last, false, c.absent) {
			s.tired(c.g)
		}
	}
}

// askAll notes who refuses.
func (s *sleeper) askAll(byNode map[transport.NodeID][]*sleepCandidate, flags uint8) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n, cs := range byNode {
		if len(cs) == 0 {
			continue
		}
		wg.Go(func() {
			sleeps, err := s.ask(n, flags, cs)
			if err != nil {
				s.h.log.Debug("a node's replicas cannot be sent to sleep", "node", n, "groups", len(cs), "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for i, c := range cs {
				c.refuse = c.refuse || err != nil || !sleeps[i]
			}
		})
	}
	wg.Wait()
}

// ownerAgrees asks as RestIf says.
func (g *Group) ownerAgrees() bool {
	may := g.mayRest.Load()
	return may == nil || (*may)()
}

// maySleep tells whether the group has nothing to do and every other member would be asked, except dead ones.
func (g *Group) maySleep() (c *sleepCandidate, others []transport.NodeID, ok bool) {
	c = &sleepCandidate{g: g}
	g.mu.Lock()
	c.l = g.seen
	g.mu.Unlock()
	m := g.wanted.Load()
	if !c.l.self || g.asleep.Load() || !g.settled.Load() || g.host.draining.Load() || m != nil && !m.Settled || g.apply.entries.Load() > dozeEntriesMax {
		return nil, nil, false
	}
	term, last, settled := settledLog(g.replica())
	if !settled || term != c.l.term {
		return nil, nil, false
	}
	if !g.ownerAgrees() {
		return nil, nil, false
	}
	c.last = last
	for _, m := range g.Members() {
		switch {
		case m.Node == g.host.cfg.Local:
		case !m.Voter:
			return nil, nil, false
		case g.host.cfg.Detector.State(m.Node) == detector.Dead:
			c.absent = append(c.absent, m.Node)
		default:
			others = append(others, m.Node)
		}
	}
	return c, others, true
}

// missedBy returns the groups that are led here and sleep, by the nodes that were dead when they fell asleep and can be reached now.
func (h *Host) missedBy(groups []*Group) map[transport.NodeID][]*Group {
	byNode := make(map[transport.NodeID][]*Group)
	reachable := h.reachableOnce()
	for _, g := range groups {
		absent := g.dozing.absent.Load()
		if absent == nil || !g.asleep.Load() {
			continue
		}
		for _, n := range *absent {
			if reachable(n) {
				byNode[n] = append(byNode[n], g)
			}
		}
	}
	return byNode
}

// reunite wakes the groups whose replica on a node that was dead lacks something. One that does not run yet asks by itself when it does.
func (h *Host) reunite(n transport.NodeID, groups []*Group) {
	for part := range slices.Chunk(groups, statusGroupsMax) {
		ids := make([]transport.GroupID, len(part))
		for i, g := range part {
			ids[i] = g.spec.ID
		}
		ctx, cancel := context.WithTimeout(h.ctx, pollTimeout)
		all, err := h.askStatus(ctx, n, 0, ids)
		cancel()
		if err != nil {
			h.log.Debug("a node that is back does not say what it has", "node", n, "groups", len(part), "err", err)
			select {
			case <-time.After(quorumRetry):
				h.watch.revived.Store(true)
				h.watch.poke()
			case <-h.ctx.Done():
			}
			return
		}
		for i, g := range part {
			term, last := g.lastEntry()
			if s := all[i]; s.known() && (s.lastTerm != term || s.lastIndex != last || s.term != g.replica().CurrentTerm()) {
				g.rouse(true)
			} else {
				g.dozing.found(n)
			}
		}
	}
}

// found takes a node out of those that were absent.
func (d *dozing) found(n transport.NodeID) {
	absent := d.absent.Load()
	if absent == nil {
		return
	}
	left := slices.DeleteFunc(slices.Clone(*absent), func(a transport.NodeID) bool { return a == n })
	d.absent.CompareAndSwap(absent, &left)
}

// heardSince tells whether a leader of this term leads since a replica woke: it has told, or will tell, what is committed.
func (g *Group) heardSince(term uint64) bool {
	slept := g.dozing.term.Load()
	return slept > 0 && term > slept
}

// ask has a node's replicas fall asleep; the answers are in the order of cs.
func (s *sleeper) ask(n transport.NodeID, flags uint8, cs []*sleepCandidate) ([]bool, error) {
	ctx, cancel := context.WithTimeout(s.h.ctx, sleepTimeout)
	defer cancel()
	b := binary.AppendUvarint([]byte{sleepVersion, flags}, uint64(len(cs)))
	for _, c := range cs {
		b = binary.AppendUvarint(b, uint64(c.g.spec.ID))
		b = binary.AppendUvarint(b, c.l.term)
		b = binary.AppendUvarint(b, c.last)
	}
	b, err := s.h.cfg.Mesh.Call(ctx, n, MethodSleep, b)
	if err != nil {
		return nil, err
	}
	answer := cursor{b: b}
	if _, err := answer.version("answer", sleepVersion); err != nil {
		return nil, err
	}
	all := make([]bool, answer.count())
	for i := range all {
		all[i] = answer.u8() == 1
	}
	if answer.bad || len(answer.b) > 0 || len(all) != len(cs) {
		return nil, fmt.Errorf("%w: %d answers to %d groups", errStatus, len(all), len(cs))
	}
	return all, nil
}

// decodeSleep reads a question: groups, and of each the term and the last index.
func decodeSleep(b []byte) (flags uint8, all [][3]uint64, err error) {
	c := cursor{b: b}
	if _, err := c.version("sleep", sleepVersion); err != nil {
		return 0, nil, err
	}
	flags = c.u8()
	all = make([][3]uint64, c.count())
	for i := range all {
		all[i] = [3]uint64{c.uvarint(), c.uvarint(), c.uvarint()}
	}
	if c.bad || len(c.b) > 0 {
		return 0, nil, fmt.Errorf("%w: sleep of %d bytes", errStatus, len(b))
	}
	return flags, all, nil
}

// answerSleep serves MethodSleep.
func (h *Host) answerSleep(_ context.Context, from transport.NodeID, request []byte) ([]byte, error) {
	flags, all, err := decodeSleep(request)
	if err != nil {
		return nil, fmt.Errorf("sleep asked by %s: %w", from, err)
	}
	b := binary.AppendUvarint([]byte{sleepVersion}, uint64(len(all)))
	for _, of := range all {
		g, ok := h.Group(transport.GroupID(of[0]))
		ok = ok && h.cfg.SleepAfter > 0
		if l := (leadership{term: of[1], leader: from}); ok && flags&sleepWould != 0 {
			ok = g.mayDoze(l, of[2], false)
		} else if ok {
			ok = g.doze(l, of[2], false, nil)
		}
		if ok {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b, nil
}
