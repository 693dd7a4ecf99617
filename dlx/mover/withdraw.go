package mover

import (
	"cmp"
	"slices"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Bounds of withdrawing.
const (
	reviewAfter = time.Second
	reviewMax   = 512 // letters of one review
	// reviewScattered are those of one where they lie scattered in the log: some 50 ms of work, as in so many reviews of their own.
	reviewScattered = 16384
	// withdrawHold is how long newer letters wait for older ones that are being withdrawn,
	// so that all keep their order. A target that cannot be reached holds them up no longer.
	withdrawHold = time.Second
	// A look at all letters under way to a target costs in proportion to them, and so long a
	// pause follows until a later change of the catalog is looked at.
	reviewPauseEach = 100 * time.Microsecond
	reviewPauseMax  = 10 * time.Second
	// reviewPauseMiB is the same for each MiB of them: all are read, which takes some 1 ms per MiB.
	reviewPauseMiB = 4 * time.Millisecond
	// lookBytes are read at a time to decide on letters, exceeded by one of them: other letters are moved in between.
	lookBytes = 16 << 20
)

// review looks again at letters that have been under way to one target for a while.
type review struct {
	// Letters up to old were under way a while ago, those up to young at the time at.
	old, young uint64
	at         time.Time
	// Letters up to checked were looked at under the catalog's revision or a later one.
	checked, revision uint64
	bytes             int64     // of these letters
	began             time.Time // when the first of them was
	pending           int       // how many there were to look at then
}

// pause is how long after its begin a look of a later revision may follow.
func (r *review) pause() time.Duration {
	return min(time.Duration(r.pending)*reviewPauseEach+time.Duration(r.bytes>>20)*reviewPauseMiB, reviewPauseMax)
}

// begin starts over for a changed catalog, when all are looked at and the pause is over. It
// tells how long to wait for that.
func (r *review) begin(revision uint64, pending int) (wait time.Duration) {
	if r.revision == revision {
		return 0
	}
	now := time.Now()
	if wait = r.began.Add(r.pause()).Sub(now); wait > 0 {
		return wait
	}
	r.checked, r.revision = 0, revision
	r.began, r.pending, r.bytes = now, pending, 0
	return 0
}

// age notes what is under way and tells up to which sequence that is old. It asks to be
// woken when that changes.
func (m *Mover) age(r *review, last uint64) uint64 {
	if now := time.Now(); now.Sub(r.at) >= m.cfg.Review {
		r.old, r.young, r.at = r.young, last, now
	}
	if r.old < last {
		m.again(r.at.Add(m.cfg.Review))
	}
	return r.old
}

// review asks for the letters under way to a target back if the catalog would send one of
// them elsewhere by now. All go back, also those that will take the same way again: so they
// stay in order. It reports whether it asked.
func (m *Mover) review(t dlx.Target, f *flight) bool {
	if m.busy() {
		return false // its commands have their effect first
	}
	last, r := t.Next-1, &f.review
	old := m.age(r, last)
	looked := max(t.Withdraw, last-uint64(t.Pending))
	if max(r.checked, looked) >= old {
		if wait := r.begin(m.cfg.Revision(), t.Pending); wait > 0 {
			m.againIn(wait)
			return false
		}
	}
	from := max(r.checked, looked)
	if from >= old {
		return false
	}
	items, s, after := m.underWay(t.Queue, from, old)
	for i := range items {
		r.bytes += int64(items[i].Ref.Length)
		differs, ok := m.differs(&items[i], s)
		if !ok {
			return false
		}
		if differs {
			m.command(fsm.Withdraw{Target: t.Queue, UpTo: last}, nil)
			return true
		}
	}
	if after == from {
		after = old // what was left is gone
	}
	if r.checked = after; r.checked < old {
		m.again(time.Now())
	}
	return false
}

// underWay returns letters with sequences above after, up to old, for a review that has got to the one returned last. Where they lie scattered in the
// log these are more, in the order of the log, so that an entry is read once for many of them.
func (m *Mover) underWay(target, after, old uint64) (items []dlx.Item, s deadSettings, last uint64) {
	refs := func(it dlx.Item) queue.Ref { return it.Ref }
	for _, limit := range []int{reviewMax, reviewScattered} {
		items, last = items[:0], after
		size := 0
		m.cfg.View(func(fm *fsm.Machine) {
			s = settingsOf(fm)
			for _, p := range fm.Outbox().Pending(target, after, limit) {
				if p.Seq > old || size >= lookBytes {
					break
				}
				last = p.Seq
				size += int(p.Ref.Length)
				if it, ok := fm.Outbox().Item(p.Item); ok && it.Reason != dlx.Transaction && it.Reason != dlx.Redrive {
					items = append(items, it)
				}
			}
		})
		if !scattered(items, refs) {
			break
		}
	}
	slices.SortStableFunc(items, func(a, b dlx.Item) int { return cmp.Compare(a.Ref.Index, b.Ref.Index) })
	return items, s, last
}

// differs tells whether a routed letter would be routed otherwise now. An item that has a
// leg to a queue has no need of it if the catalog sends it there no more; and one that has a
// new target is missing a leg.
func (m *Mover) differs(it *dlx.Item, s deadSettings) (differs, ok bool) {
	d, ok := m.decide(candidate{Item: *it}, s)
	if !ok || m.sameTargets(it, d.Targets) {
		return false, ok
	}
	if !m.fresh() {
		m.againIn(backoffMax)
		return false, false
	}
	d, ok = m.decide(candidate{Item: *it}, s)
	return ok && !m.sameTargets(it, d.Targets), ok
}

// sameTargets tells whether every leg leads to one of the targets, and every target has
// the item or a leg. A leg to a queue that goes on as another one leads there.
func (m *Mover) sameTargets(it *dlx.Item, targets []uint64) bool {
	for _, l := range it.Legs {
		if !slices.Contains(targets, m.lives(l.Target)) {
			return false
		}
	}
	for _, t := range targets {
		if !slices.Contains(it.Taken, t) && !slices.ContainsFunc(it.Legs, func(l dlx.Leg) bool { return m.lives(l.Target) == t }) {
			return false
		}
	}
	return true
}

// recall says what is called back from one target.
type recall struct {
	mark uint64 // letters up to this sequence
	full bool   // the target has no room
	// stopped: what a redrive has sent is called back too, if there is no room for it.
	stopped bool
}

func recallOf(f *fsm.Machine, target uint64, full bool) recall {
	_, mark := f.Outbox().Progress(target)
	return recall{mark, full, f.CallsBack()}
}

// takes tells whether a pending item is among those that are being withdrawn. Parts of
// transactions are sent with these: both do not wait for room. What a redrive sends does, but lets
// letters pass that are being withdrawn, and goes behind what is under way then.
func (r recall) takes(p dlx.Pending) bool {
	if p.Reason == dlx.Redrive {
		return r.full && (p.Seq <= r.mark || r.stopped && p.Alone)
	}
	return p.Seq <= r.mark
}

// withdrawsNext tells whether what is to be sent next to a target, which may be full, is called back.
func (m *Mover) withdrawsNext(target uint64, sent uint64, full bool) (yes bool) {
	m.cfg.View(func(f *fsm.Machine) {
		next := f.Outbox().Pending(target, sent, 1)
		yes = len(next) == 1 && recallOf(f, target, full).takes(next[0])
	})
	return yes
}

// clearWay asks for everything under way to a full target back if something that waits for room
// stands in front of what a stopped redrive has sent: that comes back only in its turn. The others are
// sent again behind it.
func (m *Mover) clearWay(t dlx.Target, f *flight) {
	if !f.full || m.busy() {
		return
	}
	blocked, behind := false, false
	m.cfg.View(func(fm *fsm.Machine) {
		r, number := recallOf(fm, t.Queue, true), fm.Redriving().Number
		if !r.stopped || f.cleared == number {
			return
		}
		f.cleared = number // once: it sends nothing more
		for after, last := t.Next-1-uint64(t.Pending), t.Next-1; !behind && after < last; after += reviewMax {
			for _, p := range fm.Outbox().Pending(t.Queue, after, reviewMax) {
				blocked = blocked || !r.takes(p) && p.Reason != dlx.Transaction
				behind = behind || blocked && p.Reason == dlx.Redrive && p.Alone
			}
		}
	})
	if behind {
		m.command(fsm.Withdraw{Target: t.Queue, UpTo: t.Next - 1}, nil)
	}
}

// busy tells whether a command of this mover that changes routes waits to be applied.
func (m *Mover) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.routing
}

// command proposes a command that changes routes. There is one at a time, so that each is
// decided on what the one before has done.
func (m *Mover) command(c fsm.Command, applied func()) {
	m.mu.Lock()
	m.routing = true
	m.mu.Unlock()
	m.cfg.Propose(c, false, func() {
		m.mu.Lock()
		m.routing = false
		m.mu.Unlock()
		if applied != nil {
			applied()
		}
		m.Wake()
	})
}

// holds tells whether letters are to wait with being routed, because older ones are being
// withdrawn.
func (m *Mover) holds() bool {
	withdraws := false
	m.cfg.View(func(f *fsm.Machine) { withdraws = f.Outbox().Withdrawing() })
	if !withdraws {
		m.holdFrom = time.Time{}
		return false
	}
	if m.holdFrom.IsZero() {
		m.holdFrom = time.Now()
	}
	until := m.holdFrom.Add(withdrawHold)
	if !time.Now().Before(until) {
		return false
	}
	m.again(until)
	return true
}
