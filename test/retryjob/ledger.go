package retryjob

import (
	"sync"
	"time"
)

// hopID numbers one publish of one client. Numbers are never used again.
type hopID int64

// hop is what is known about one publish.
type hop struct {
	job     int
	attempt int
	waits   bool // published to wait-exchange, so that only the move brings it to primary

	confirmed  bool
	deliveries int  // from primary
	finished   bool // done, or its successor is confirmed
	rejected   bool
	parked     int // copies found in parking
}

// Ledger keeps the books of one run. All methods may be called by any goroutine.
type Ledger struct {
	mu   sync.Mutex
	hops []hop // index: hopID
	jobs []jobState

	confirmed, closed int // jobs
	redelivered       int
	unflagged         int // second deliveries without the flag, of hops not moved
	movedTwice        int
	repeats           int // publishes beyond the first for the same step
	wrongDelays       int
	moves             int
	progress          time.Time
	pauses            map[string]*pause
}

type jobState struct {
	confirmed bool
	closed    bool // done, or rejected for the last time
	done      bool
	parked    bool
}

func newLedger(jobs int) *Ledger {
	return &Ledger{jobs: make([]jobState, jobs), progress: time.Now(), pauses: map[string]*pause{}}
}

// publish opens a hop. again says that the same step was published before.
func (l *Ledger) publish(job, attempt int, waits, again bool) hopID {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hops = append(l.hops, hop{job: job, attempt: attempt, waits: waits})
	if again {
		l.repeats++
	}
	return hopID(len(l.hops) - 1)
}

// confirm notes that the broker took responsibility for the hop.
func (l *Ledger) confirm(id hopID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.hops[id]
	h.confirmed = true
	l.progress = time.Now()
	if job := &l.jobs[h.job]; !job.confirmed {
		job.confirmed = true
		l.confirmed++
	}
}

// deliver notes a delivery from primary and returns whether the hop still has
// to be worked on.
func (l *Ledger) deliver(id hopID, redelivered bool) (open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.hops[id]
	h.deliveries++
	l.progress = time.Now()
	if h.waits && h.deliveries == 1 {
		l.moves++
	}
	switch {
	case redelivered:
		l.redelivered++
	case h.deliveries > 1 && h.waits:
		l.movedTwice++
	case h.deliveries > 1:
		l.unflagged++
	}
	return !h.finished
}

// finish notes that the hop's work is complete: done tells whether the job is,
// else a successor was confirmed.
func (l *Ledger) finish(id hopID, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.hops[id]
	h.finished = true
	if done {
		l.jobs[h.job].done = true
		l.close(h.job)
	}
}

// reject notes that the hop is given up and belongs into parking. It may be
// called again for a redelivery.
func (l *Ledger) reject(id hopID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hops[id].rejected = true
	l.close(l.hops[id].job)
}

func (l *Ledger) close(job int) {
	if state := &l.jobs[job]; !state.closed {
		state.closed = true
		l.closed++
	}
}

// park notes a copy found in parking.
func (l *Ledger) park(id hopID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.hops[id]
	h.parked++
	l.moves++
	l.jobs[h.job].parked = true
}

// wrongDelay notes an x-death whose original-expiration is not that of the hop.
func (l *Ledger) wrongDelay() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrongDelays++
}

// state returns how many jobs are confirmed and closed, and when something
// happened last.
func (l *Ledger) state() (confirmed, closed int, progress time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed, l.closed, l.progress
}

// movedToPrimary returns the number of different hops that came to primary by
// dead-lettering.
func (l *Ledger) movedToPrimary() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, h := range l.hops {
		if h.waits && h.deliveries > 0 {
			n++
		}
	}
	return n
}

// report sums up. Call it when nothing is under way any more.
func (l *Ledger) report() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{
		Confirmed: l.confirmed, Redelivered: l.redelivered, Unflagged: l.unflagged, Duplicated: l.movedTwice,
		Repeats: l.repeats, WrongDelays: l.wrongDelays, Moves: l.moves,
	}
	for _, job := range l.jobs {
		switch {
		case job.done:
			r.Done++
		case job.parked:
			r.Parked++
		}
		if job.confirmed && !job.done && !job.parked {
			r.LostJobs++
		}
	}
	for _, h := range l.hops {
		if h.confirmed && h.deliveries == 0 || h.rejected && !h.finished && h.parked == 0 {
			r.Lost++
		}
		if h.parked > 1 {
			r.Duplicated += h.parked - 1
		}
		if h.parked > 0 && h.finished {
			r.Duplicated++
		}
	}
	r.Lost = max(r.Lost, r.LostJobs)
	for what, p := range l.pauses {
		if p.longest > r.Pause {
			r.Pause, r.PauseOf = p.longest, what
		}
	}
	return r
}

// pause measures the longest time in which something was awaited and nothing
// came.
type pause struct {
	waiting int
	since   time.Time
	longest time.Duration
}

// await notes n more (or, below zero, fewer) awaited events of this kind.
func (l *Ledger) await(what string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pause(what)
	if p.waiting == 0 {
		p.since = time.Now()
	}
	p.waiting += n
}

// came notes that one of them happened.
func (l *Ledger) came(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pause(what)
	now := time.Now()
	p.longest = max(p.longest, now.Sub(p.since))
	p.since = now
	p.waiting--
}

func (l *Ledger) pause(what string) *pause {
	p := l.pauses[what]
	if p == nil {
		p = &pause{}
		l.pauses[what] = p
	}
	return p
}
