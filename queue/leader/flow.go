package leader

import "time"

// Publishers wait for the answers of as many messages as they like, thousands of them, consumers hold their prefetch. Where
// processors are what is scarce, both go round at the same pace, and whoever has more under way gets more of the machine: a
// queue grows although its consumers would take more. So a queue that falls behind tries whether its consumers are faster while its
// publishers send in bursts of a few hundred, each when the one before is answered. Are they, it stays so; are they not, because they
// are slow by themselves or have all they need, publishers are free again (ADR 45).

// Bounds of flow control.
const (
	flowWindow = 50 * time.Millisecond  // counted before a decision
	flowFree   = 500 * time.Millisecond // watched with free publishers before a trial
	flowSettle = 250 * time.Millisecond // not counted after its beginning
	flowTrial  = time.Second            // watched with held ones before the two are compared
	flowKeep   = 5 * time.Second        // and again as long as they are held
	flowTerm   = 30 * time.Second       // until another comparison, if it is for holding them
	flowRest   = 5 * time.Second        // if it is not; twice as long each time, up to
	flowLong   = 2 * time.Minute
	flowBehind = 1024 // ready messages of a queue that falls behind
	flowCaught = 256  // of one that has caught up

	// Sizes of a burst, of all nodes together: of a first one, and bounds. What an entry costs whatever it carries would
	// be most of the cost with less.
	burstFirst = 256
	burstMin   = 128
	burstMax   = 4096

	gainMin = 50 // messages a second
)

// pace is what happened in a time.
type pace struct {
	in, out int64 // messages published, and settled by consumers
	took    time.Duration
}

func (p *pace) add(w pace) {
	p.in += w.in
	p.out += w.out
	p.took += w.took
}

// rates are messages a second.
func (p *pace) rates() (in, out float64) {
	return float64(p.in) / p.took.Seconds(), float64(p.out) / p.took.Seconds()
}

// flow decides whether publishers are held, and how much.
type flow struct {
	now   pace // counted since from
	from  time.Time
	nodes int64 // whose publishes were counted in the last window

	burst int64 // what all nodes together may send at a time; 0: publishers are free
	sum   pace  // since this is so, as far as it counts
	free  pace  // while publishers were free, before the trial
	held  time.Time
	limit time.Time // when publishers are free again whatever is known
	// known is until when it is known what becomes of holding publishers, and pays what. rest is how long it was known the
	// last time that it did not pay, 0 after it did.
	known time.Time
	pays  bool
	rest  time.Duration
	size  int64 // the last burst
}

// share is how much each node may send at a time.
func (f *flow) share() uint64 {
	if f.burst == 0 {
		return 0
	}
	return uint64(max(1, f.burst/max(1, f.nodes)))
}

// regulate looks at a window that has ended.
func (l *Leader) regulate() {
	f, now := &l.flow, time.Now()
	if f.now.took = now.Sub(f.from); f.now.took < flowWindow {
		return
	}
	w := f.now
	f.now, f.from, f.nodes = pace{}, now, 0
	for _, p := range l.peers {
		if p.published {
			p.published = false
			f.nodes++
		}
	}
	limit := int64(flowBehind)
	if f.burst > 0 {
		limit = flowCaught
	}
	ready, _ := l.readyNow()
	f.decide(w, now, ready >= limit && l.consumers.len() > 0 && !l.limits.set.Paused && (l.cfg.Bursts == nil || l.cfg.Bursts()))
}

// decide goes on with a window that ends now. behind tells that the queue has a backlog and consumers.
func (f *flow) decide(w pace, now time.Time, behind bool) {
	switch {
	case !behind:
		f.release()
	case f.burst > 0 && now.After(f.limit): // so little happens that nothing can be compared
		f.drop(now)
	case f.burst > 0:
		f.hold(w, now)
	case now.Before(f.known) && f.pays:
		f.burst, f.sum, f.limit = f.size, pace{}, f.known.Add(flowKeep)
	case now.Before(f.known):
	case w.took > 4*flowWindow: // who was stopped for so long, or had so little to do, learns nothing from it
	default:
		f.watch(w, now)
	}
}

// watch goes on while publishers are free.
func (f *flow) watch(w pace, now time.Time) {
	if f.sum.add(w); f.sum.took < flowFree {
		return
	}
	f.free, f.sum = f.sum, pace{}
	f.burst, f.held, f.pays = burstFirst, now, false
	f.limit = now.Add(flowSettle + 4*flowTrial)
}

func (f *flow) release() { f.burst, f.sum = 0, pace{} }

// hold goes on while publishers are held.
func (f *flow) hold(w pace, now time.Time) {
	if now.Sub(f.held) >= flowSettle {
		f.sum.add(w)
	}
	if enough := f.sum.took >= flowKeep || f.sum.took >= flowTrial && !f.pays; enough && !f.judge(now) {
		f.release()
		return
	}
	f.adjust(w)
	f.size = f.burst
}

// judge compares, and tells whether publishers are held further.
func (f *flow) judge(now time.Time) bool {
	paid := f.pays
	f.pays = f.gains(f.sum)
	f.sum = pace{}
	switch {
	case !f.pays:
		f.drop(now)
		return false
	case !paid:
		f.rest = 0
		f.known = now.Add(flowTerm)
		f.limit = f.known.Add(flowKeep)
	}
	return now.Before(f.known)
}

// drop frees publishers for a while: to hold them was good for nothing.
func (f *flow) drop(now time.Time) {
	f.release()
	f.pays = false
	f.rest = min(max(2*f.rest, flowRest), flowLong)
	f.known = now.Add(f.rest)
}

// gains tells whether what publishers lose is worth it: consumers get an eighth of it or more, and so much that it is no chance.
func (f *flow) gains(held pace) bool {
	in, out := held.rates()
	freeIn, freeOut := f.free.rates()
	gain := out - freeOut
	return gain >= max(freeOut/16, gainMin) && 8*gain >= freeIn-in
}

// adjust brings what comes in to what goes out, but not below half of what came in before the trial, about.
func (f *flow) adjust(w pace) {
	in, _ := w.rates()
	freeIn, _ := f.free.rates()
	switch {
	case w.in <= w.out || 2*in < freeIn:
		f.burst = min(burstMax, f.burst+f.burst/8)
	case 16*in < 9*freeIn: // a smaller burst would go below
	default:
		f.burst = max(burstMin, f.burst-f.burst/9)
	}
}
