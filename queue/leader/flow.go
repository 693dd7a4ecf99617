package leader

import (
	"slices"
	"time"
)

// Publishers wait for the answers of as many messages as they like, thousands of them, consumers hold their prefetch. Where
// processors are what is scarce, both go round at the same pace, and whoever has more under way gets more of the machine: a
// queue grows although its consumers would take more. So a queue that falls behind tries whether its consumers are faster while its
// publishers send no more than goes out, in bursts of hundreds. Are they, it stays so; are they not, because they
// are slow by themselves or have all they need, publishers are free again (ADR 45, 47).

// Bounds of flow control.
const (
	flowWindow = 50 * time.Millisecond  // counted before a decision
	flowFree   = 500 * time.Millisecond // watched with free publishers before a trial
	flowSettle = 250 * time.Millisecond // not counted after its beginning
	flowTrial  = time.Second            // watched with held ones before the two are compared
	flowLumps  = 10                     // settlements seen with free publishers, twice as many with held ones, unless it takes longer than
	flowKeep   = 5 * time.Second        // which is how long held ones are watched again and again
	flowTerm   = 30 * time.Second       // until another comparison, if it is for holding them
	flowRest   = 5 * time.Second        // if it is not; twice as long each time, up to
	flowLong   = 2 * time.Minute
	flowBehind = 1024 // ready messages of a queue that falls behind
	flowCaught = 256  // of one that has caught up, if it has no more for
	flowCalm   = 250 * time.Millisecond
	flowSmooth = 500 * time.Millisecond // over which what goes out is taken in the mean

	// What comes in, for what goes out: of a queue with nothing ready, and of one that is far behind.
	paceMost  = 1.25
	paceLeast = 0.9

	gainMin   = 50  // messages a second
	shareUsed = 0.8 // of its share that a node publishes to which it may be too little
)

// pace is what happened in a time.
type pace struct {
	in, out int64 // messages published, and settled by consumers
	took    time.Duration
	lumps   int // windows in which consumers have settled something
}

func (p *pace) add(w pace) {
	p.in += w.in
	p.out += w.out
	p.took += w.took
	if w.out > 0 {
		p.lumps++
	}
}

// enough tells whether it is long enough to compare with. Consumers that settle hundreds of messages at a time seem to do nothing or
// much in a short one.
func (p *pace) enough(took time.Duration, lumps int) bool {
	return p.took >= took && p.lumps >= lumps || p.took >= flowKeep
}

// rates are messages a second.
func (p *pace) rates() (in, out float64) {
	return float64(p.in) / p.took.Seconds(), float64(p.out) / p.took.Seconds()
}

// flow decides whether publishers are held, and how much.
type flow struct {
	now  pace // counted since from
	from time.Time

	rate   float64       // messages a second that all nodes together may publish; 0: publishers are free
	share  uint64        // of it that a node may publish, at most; 0 if publishers are free
	out    mean          // messages a second that go out while publishers are held
	caught time.Duration // for how long hardly anything was ready
	sum    pace          // since publishers are held or free, as far as it counts
	free   pace          // while publishers were free, before the trial
	held   time.Time
	limit  time.Time // when publishers are free again whatever is known
	// known is until when it is known what becomes of holding publishers, and pays what. rest is how long it was known the
	// last time that it did not pay, 0 after it did.
	known time.Time
	pays  bool
	rest  time.Duration
}

// regulate looks at a window that has ended.
func (l *Leader) regulate() {
	f, now := &l.flow, time.Now()
	if f.now.took = now.Sub(f.from); f.now.took < flowWindow {
		return
	}
	w := f.now
	f.now, f.from = pace{}, now
	ready, _ := l.readyNow()
	f.decide(w, now, ready, l.consumers.len() > 0 && !l.limits.set.Paused && (l.cfg.Bursts == nil || l.cfg.Bursts()))
	rates := make([]float64, 0, len(l.peers))
	for _, p := range l.peers {
		rates = append(rates, p.published.windowEnded(w.took))
	}
	f.share = shareOf(f.rate, rates)
}

// mean is a rate that is taken in the mean over about flowSmooth.
type mean float64

func (m *mean) add(rate float64, took time.Duration) {
	*m += mean((rate - float64(*m)) * min(1, took.Seconds()/flowSmooth.Seconds()))
}

// intake is what one node publishes.
type intake struct {
	now int64 // publishes taken in this window
	mean
}

func (i *intake) windowEnded(took time.Duration) float64 {
	i.add(float64(i.now)/took.Seconds(), took)
	i.now = 0
	return float64(i.mean)
}

// shareOf is how many messages a second each node may publish so that it is rate for all of them, of which some publish less than an equal part.
func shareOf(rate float64, nodes []float64) uint64 {
	if rate == 0 {
		return 0
	}
	slices.Sort(nodes)
	share := rate
	for i, less := range nodes {
		if share = rate / float64(len(nodes)-i); less >= shareUsed*share {
			break
		}
		rate -= less
	}
	return uint64(max(1, share))
}

// decide goes on with a window that ends now, with so many messages ready. may tells whether publishers may be held at all.
func (f *flow) decide(w pace, now time.Time, ready int64, may bool) {
	switch {
	case !may:
		f.release()
	case !f.behind(w, ready):
		if f.rate > 0 && !f.pays && f.sum.enough(flowFree, flowLumps) { // what a trial has shown until now will do
			f.judge(now)
		}
		f.release()
	case f.rate > 0 && now.After(f.limit): // so little happens that nothing can be compared
		f.drop(now)
	case f.rate > 0:
		f.hold(w, now, ready)
	case now.Before(f.known) && f.pays:
		f.sum, f.limit = pace{}, f.known.Add(flowKeep)
		f.adjust(pace{}, ready)
	case now.Before(f.known):
	case w.took > 4*flowWindow: // who was stopped for so long, or had so little to do, learns nothing from it
	default:
		f.watch(w, now, ready)
	}
}

// behind tells whether a queue has fallen behind and not caught up since.
func (f *flow) behind(w pace, ready int64) bool {
	if f.rate == 0 {
		return ready >= flowBehind
	}
	if f.caught += w.took; ready >= flowCaught {
		f.caught = 0
	}
	return f.caught < flowCalm
}

// watch goes on while publishers are free.
func (f *flow) watch(w pace, now time.Time, ready int64) {
	if f.sum.add(w); !f.sum.enough(flowFree, flowLumps) {
		return
	}
	f.free, f.sum = f.sum, pace{}
	f.held, f.pays = now, false
	f.limit = now.Add(flowSettle + flowKeep + flowTrial)
	_, out := f.free.rates()
	f.out = mean(out)
	f.adjust(pace{}, ready)
}

func (f *flow) release() { f.rate, f.sum, f.caught = 0, pace{}, 0 }

// hold goes on while publishers are held.
func (f *flow) hold(w pace, now time.Time, ready int64) {
	if now.Sub(f.held) >= flowSettle {
		f.sum.add(w)
	}
	if (f.sum.took >= flowKeep || !f.pays && f.sum.enough(flowTrial, 2*flowLumps)) && !f.judge(now) {
		f.release()
		return
	}
	f.adjust(w, ready)
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

// adjust brings what comes in to what goes out, and to the less the more is ready, but not below half of what came in before the trial.
func (f *flow) adjust(w pace, ready int64) {
	if w.took > 0 {
		_, out := w.rates()
		f.out.add(out, w.took)
	}
	in, _ := f.free.rates()
	out := float64(f.out)
	enough := max(flowBehind, out*flowWindow.Seconds())
	f.rate = max(1, in/2, out*max(paceLeast, paceMost-(paceMost-1)*float64(ready)/enough))
}
