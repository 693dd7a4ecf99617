package stats

import (
	"context"
	"sync"
	"time"
)

// Interval is how often samples are taken.
const Interval = 5 * time.Second

// Bounds of what is kept.
const (
	// history is how many samples an object's history has: ten minutes.
	history = 121
	// histories bounds the objects with a history, at 16 KiB each.
	histories = 256
	// quiet is how long an object keeps its history without being active or looked at.
	quiet = history * Interval
	// minutes is how many samples at a distance of a minute the node's history has beside: eight hours.
	minutes = 481
)

// Kind is a kind of objects.
type Kind uint8

// The kinds of objects.
const (
	Node Kind = iota
	VHost
	Exchange
	Queue // as clients of this node use it
	Led   // a queue that this node leads: its lengths
	Connection
	Channel
	Churn   // what came and went on the node
	Process // what the node uses
)

// Key names an object of a node: queues by their ids, others by name.
type Key struct {
	Kind Kind
	ID   uint64
	Name string
}

// Source calls yield for each object. What has counted nothing need not be told. The set is the caller's again after the call.
type Source func(yield func(k Key, s *Set))

// series is what is known of one object.
type series struct {
	last, before Set // as of the last sample, and of the one before
	// began is when it was seen first; changed, when a sample differed last. Both in ms since 1970.
	began, changed int64
	seen           uint64 // number of the round that found it last
	looked         int64  // when somebody asked for its history last
	ring           *ring  // nil: no history
}

// Sampler takes samples. When the clock is put back by more than an interval it begins anew: times that come again would not be in order. Its methods are safe for concurrent use, with Sample called by one goroutine.
type Sampler struct {
	sources []Source

	mu         sync.Mutex
	objects    map[Key]*series
	long       *ring // of the node, by the minute
	round      uint64
	at, atLast int64 // when the last two samples were taken, ms since 1970; 0: not yet
	rings      int
}

// New returns a sampler of the sources.
func New(sources ...Source) *Sampler {
	s := &Sampler{sources: sources}
	s.begin()
	return s
}

// begin forgets all samples.
func (s *Sampler) begin() {
	s.objects, s.long, s.at, s.atLast, s.rings = map[Key]*series{}, newRing(minutes), 0, 0, 0
}

// Run samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	for {
		now := time.Now()
		// All nodes sample at the same moments, so that theirs can be added up.
		timer := time.NewTimer(now.Truncate(Interval).Add(Interval).Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		s.Sample(time.Now().UnixMilli())
	}
}

// Sample takes one sample, at a time in ms since 1970.
func (s *Sampler) Sample(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now <= s.at {
		if s.at-now < Interval.Milliseconds() {
			return // a rate needs time
		}
		s.begin() // the clock was put back
	}
	s.round++
	s.at, s.atLast = now, s.at
	for _, source := range s.sources {
		source(s.take)
	}
	for k, o := range s.objects {
		if o.seen != s.round {
			s.drop(o)
			delete(s.objects, k)
		}
	}
	if o := s.objects[Key{Kind: Node}]; o != nil && s.long.due(now, time.Minute) {
		s.long.add(now, &o.last)
	}
}

// take notes one object of the present round.
func (s *Sampler) take(k Key, set *Set) {
	o := s.objects[k]
	if o == nil {
		if *set == (Set{}) && k.Kind != Node && k.Kind != Churn {
			return
		}
		// What it has counted before was within the interval, unless there was none: then nobody knows when.
		o = &series{began: s.at, changed: s.at}
		if s.atLast == 0 {
			o.last = *set
		}
		s.objects[k] = o
	}
	o.seen = s.round
	o.before, o.last = o.last, *set
	if o.before.differs(&o.last) {
		o.changed = s.at
	}
	switch {
	case o.ring != nil:
		if k.Kind != Node && s.at-max(o.changed, o.looked) > quiet.Milliseconds() {
			s.drop(o)
			return
		}
	case k.Kind == Node || o.changed == s.at && s.rings < histories:
		s.keep(o)
	default:
		return
	}
	o.ring.add(s.at, set)
}

// keep begins a history.
func (s *Sampler) keep(o *series) {
	o.ring = newRing(history)
	s.rings++
}

func (s *Sampler) drop(o *series) {
	if o.ring != nil {
		o.ring = nil
		s.rings--
	}
}

// Rates are the rates of an object over the last interval, 0 for one that is not known.
func (s *Sampler) Rates(k Key) (r Rates) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[k]; o != nil {
		s.rates(o, &r)
	}
	return r
}

// Each calls f for each object of a kind that has rates other than 0.
func (s *Sampler) Each(kind Kind, f func(k Key, r *Rates)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, o := range s.objects {
		var r Rates
		if k.Kind == kind && s.rates(o, &r) {
			f(k, &r)
		}
	}
}

func (s *Sampler) rates(o *series, r *Rates) (some bool) {
	if s.atLast == 0 || o.last == o.before {
		return false
	}
	seconds := float64(s.at-s.atLast) / 1e3
	for i := range r {
		r[i] = float64(int64(o.last[i]-o.before[i])) / seconds
	}
	return true
}

// Changed is when an object was active last, to the interval, in ms since 1970; ok is false if it has never been.
func (s *Sampler) Changed(k Key) (at int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[k]; o != nil {
		return o.changed, true
	}
	return 0, false
}

// History returns what an object had counted at times in ms since 1970, which ascend. It keeps the history of an object that is asked
// for in the place of another's. Before its beginning an object has counted nothing; known is false if there is no history of it.
func (s *Sampler) History(k Key, times []int64) (sets []Set, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[k]
	if o == nil {
		return nil, false
	}
	o.looked = s.at
	if o.ring == nil {
		if s.rings >= histories {
			s.evict()
		}
		s.keep(o)
		o.ring.add(s.at, &o.last)
	}
	sets = make([]Set, len(times))
	for i, t := range times {
		if set := o.ring.find(t); set != nil {
			sets[i] = *set
		} else if set := s.long.find(t); set != nil && k.Kind == Node {
			sets[i] = *set
		} else if t >= o.began || k.Kind == Led {
			sets[i] = *o.ring.oldest() // its history is shorter than it is old
		}
	}
	return sets, true
}

// evict ends the history that nobody has looked at, or that has not changed, for the longest time.
func (s *Sampler) evict() {
	var worst *series
	var at int64
	for k, o := range s.objects {
		if o.ring == nil || k.Kind == Node {
			continue
		}
		if worst == nil || o.looked < worst.looked || o.looked == worst.looked && o.changed < at {
			worst, at = o, o.changed
		}
	}
	if worst != nil {
		s.drop(worst)
	}
}

// ring is a bounded list of samples, in order of time.
type ring struct {
	times []int64
	sets  []Set
	next  int // where the next one goes, once it is full
}

func newRing(n int) *ring { return &ring{times: make([]int64, 0, n), sets: make([]Set, 0, n)} }

func (r *ring) add(at int64, s *Set) {
	if len(r.sets) < cap(r.sets) {
		r.times, r.sets = append(r.times, at), append(r.sets, *s)
		return
	}
	r.times[r.next], r.sets[r.next] = at, *s
	r.next = (r.next + 1) % len(r.sets)
}

// at is the i-th oldest sample.
func (r *ring) at(i int) (int64, *Set) {
	i = (r.next + i) % len(r.sets)
	return r.times[i], &r.sets[i]
}

func (r *ring) oldest() *Set {
	_, s := r.at(0)
	return s
}

// due tells whether the newest sample is so old that it is time for another.
func (r *ring) due(now int64, distance time.Duration) bool {
	if len(r.sets) == 0 {
		return true
	}
	newest, _ := r.at(len(r.sets) - 1)
	return now-newest >= distance.Milliseconds()
}

// find returns the newest sample that is not younger than t, nil if there is none.
func (r *ring) find(t int64) *Set {
	for i := range r.sets {
		if at, s := r.at(len(r.sets) - 1 - i); at <= t {
			return s
		}
	}
	return nil
}
