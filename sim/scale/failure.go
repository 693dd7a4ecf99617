package scale

import (
	"container/heap"
	"time"
)

// failure is the modelled aftermath of nodes that fail at once.
type failure struct {
	Lost      int           // nodes
	Orphans   int           // queues whose leader is gone
	NoQuorum  int           // of them, those without a majority of their replicas
	Last      time.Duration // until the last one has a leader, detection included
	Median    time.Duration
	Messages  float64 // in the cluster: questions, votes, first entries and roll calls
	Roll      float64 // of them roll calls
	Double    int     // queues that got two leaders; must be 0
	MostLed   int     // queues that a node leads afterwards, at most
	leaders   []uint8 // afterwards
	processor time.Duration
}

// zoneOf returns the nodes of a zone.
func (l *layout) zoneOf(zone int) (gone []bool) {
	for _, z := range l.zones {
		gone = append(gone, z == zone)
	}
	return gone
}

// site is one node of the event simulation.
type site struct {
	c Costs
	// cpu is when the processors are free; jobs are served one after the other at Costs.Cores times the speed.
	cpu time.Duration
	// The sync that has not begun yet, and its end: all that is written until then is in it.
	begins, ends time.Duration
	waiting      []int // queues led by the dead whose elections this node starts
	running      int
}

// work is when a job that arrives at now is done.
func (s *site) work(now, cost time.Duration) time.Duration {
	s.cpu = max(s.cpu, now) + cost/time.Duration(s.c.Cores)
	return s.cpu
}

// sync is when what is written at now is on the disk: with the sync that begins next.
func (s *site) sync(now time.Duration) time.Duration {
	if now > s.begins {
		s.begins = max(now, s.ends)
		s.ends = s.begins + s.c.Sync
	}
	return s.ends
}

// event is something that happens at a time; equal times in the order of their making.
type event struct {
	at  time.Duration
	seq int
	do  func(now time.Duration)
}

type agenda struct {
	events []event
	seq    int
}

func (a *agenda) Len() int { return len(a.events) }
func (a *agenda) Less(i, j int) bool {
	x, y := a.events[i], a.events[j]
	return x.at < y.at || x.at == y.at && x.seq < y.seq
}
func (a *agenda) Swap(i, j int) { a.events[i], a.events[j] = a.events[j], a.events[i] }
func (a *agenda) Push(e any)    { a.events = append(a.events, e.(event)) }
func (a *agenda) Pop() any {
	e := a.events[len(a.events)-1]
	a.events = a.events[:len(a.events)-1]
	return e
}

func (a *agenda) at(t time.Duration, do func(time.Duration)) {
	a.seq++
	heap.Push(a, event{t, a.seq, do})
}

func (a *agenda) run() {
	for a.Len() > 0 {
		e := heap.Pop(a).(event)
		e.do(e.at)
	}
}

// elections simulates the elections after a failure.
type elections struct {
	c     Costs
	l     *layout
	gone  []bool
	live  int
	sites []*site
	a     agenda
	out   failure
	done  []bool
	times []time.Duration
	room  int // elections at a time of a node, in queues of the layout
}

// fail simulates what follows when nodes are gone and the survivors know it after detected, as real
// detectors do (runDetectors).
func (c Costs) fail(l *layout, gone []bool, detected time.Duration) failure {
	e := &elections{c: c, l: l, gone: gone, done: make([]bool, len(l.queues)), room: max(1, c.ElectionsMax/l.weight)}
	e.out.leaders = make([]uint8, len(l.queues))
	for _, g := range gone {
		e.sites = append(e.sites, &site{c: c, begins: -1})
		if g {
			e.out.Lost++
		}
	}
	e.live = len(gone) - e.out.Lost
	for q, p := range l.queues {
		e.out.leaders[q] = p[0]
		if !gone[p[0]] {
			continue
		}
		e.out.Orphans += l.weight
		alive := 0
		for _, m := range p {
			if !gone[m] {
				alive++
			}
		}
		if alive < 2 {
			e.out.NoQuorum += l.weight
			continue
		}
		s := successor(q, p, func(m uint8) bool { return !gone[m] })
		e.sites[s].waiting = append(e.sites[s].waiting, q)
	}
	for i, s := range e.sites {
		// The other voters are asked about all groups at once, a question and an answer for 4,096.
		asked := detected + 5*time.Millisecond + 2*c.OneWay
		e.out.Messages += 2 * float64(e.c.Replicas-1) * float64(len(s.waiting)*l.weight) / 4096
		e.a.at(asked, func(now time.Duration) { e.next(i, now) })
	}
	e.a.run()
	e.count()
	return e.out
}

// next starts elections at a node as far as there is room.
func (e *elections) next(at int, now time.Duration) {
	s := e.sites[at]
	for len(s.waiting) > 0 && s.running < e.room {
		q := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.running++
		e.elect(q, at, now)
	}
}

// elect follows one election: the vote is written and asked for, the voter writes its vote, the first entry goes the same
// way, and the roll is called. A dead voter answers nothing and nobody waits for it.
func (e *elections) elect(q, at int, now time.Duration) {
	s := e.sites[at]
	var other *site
	for _, m := range e.l.queues[q] {
		if int(m) != at && !e.gone[m] {
			other = e.sites[m]
		}
	}
	weight := time.Duration(e.l.weight)
	quarter := e.c.ElectionCPU * weight / 4
	e.out.processor += e.c.ElectionCPU * weight
	e.out.Messages += 4 * float64(e.l.weight) // vote and first entry, with their answers
	there := func(t time.Duration, do func(time.Duration)) { e.a.at(t, do) }
	there(s.sync(s.work(now, quarter)), func(now time.Duration) {
		there(now+e.c.OneWay, func(now time.Duration) {
			there(other.sync(other.work(now, quarter))+e.c.OneWay, func(now time.Duration) {
				wrote := s.sync(s.work(now, quarter))
				there(now+e.c.OneWay, func(now time.Duration) {
					answered := other.sync(other.work(now, quarter)) + e.c.OneWay
					there(max(answered, wrote), func(now time.Duration) { e.elected(q, at, now) })
				})
			})
		})
	})
}

func (e *elections) elected(q, at int, now time.Duration) {
	if e.done[q] {
		e.out.Double++
	}
	e.done[q] = true
	e.out.leaders[q] = uint8(at)
	s := e.sites[at]
	s.running--
	// The new leader asks every live node for its consumers, and each answers.
	roll := float64(e.live-1) * float64(e.l.weight)
	e.out.Roll += 2 * roll
	e.out.Messages += 2 * roll
	cost := time.Duration(roll * float64(e.c.RollCPU) / 2)
	e.out.processor += 2 * cost
	ready := s.work(now, cost)
	for i, o := range e.sites {
		if i != at && !e.gone[i] {
			o.work(now, e.c.RollCPU*time.Duration(e.l.weight)/2)
		}
	}
	e.times = append(e.times, ready)
	e.next(at, now)
}

func (e *elections) count() {
	led := make([]int, len(e.sites))
	for q, n := range e.out.leaders {
		if !e.gone[e.l.queues[q][0]] || e.done[q] {
			led[n] += e.l.weight
		}
	}
	for _, n := range led {
		e.out.MostLed = max(e.out.MostLed, n)
	}
	if n := len(e.times); n > 0 {
		for _, t := range e.times {
			e.out.Last = max(e.out.Last, t)
		}
		e.out.Median = e.times[n/2] // elections end about in this order
	}
}
