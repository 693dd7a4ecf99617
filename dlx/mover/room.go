package mover

import (
	"cmp"
	"slices"
	"time"

	"github.com/warrenmq/warren/dlx"
)

// A target may have thousands of sources, whose messages may all expire at one time. If each of them sent a whole window at once, and after a second
// without an answer once more, the target's node would hold all of that, and most of what is read from the logs and sent would be for nothing.
// So a source begins with one batch, sends twice as much each time that the target has taken as much as was allowed, and begins anew with one batch
// when the target did not take what was sent, or was too busy to say so in time.

// room is how many bytes may be under way to a target. The zero value allows one batch.
type room struct {
	bytes int
	used  bool // all of it was under way since it was last made larger
}

// has tells whether more may be sent beside what is under way.
func (r *room) has(underWay int) bool {
	if underWay < max(r.bytes, transferBytes) {
		return true
	}
	r.used = true
	return false
}

// taken notes that the target has taken some of what was under way.
func (r *room) taken() {
	if r.used {
		r.bytes, r.used = min(2*max(r.bytes, transferBytes), windowBytes), false
	}
}

// narrow begins anew.
func (r *room) narrow() { *r = room{} }

// crowdBytes is how much may be under way to all targets of a mover that answer, exceeded by one batch. A letter may have thousands of targets, and
// each is sent a copy of its own: of one of 16 MiB to a hundred of them a node held gigabytes.
const crowdBytes = 64 << 20

// lapsedTime is for how long what a target has not taken, while it answers, takes up the room of others: the time in which a disk that is slow, and
// not hung, writes crowdBytes.
const lapsedTime = 5 * time.Second

// crowd is what is under way to all targets together. The zero value is ready.
type crowd struct {
	bytes int
	// turn is the first target that there was no room for, 0 if there was for all. pump begins with it the next time.
	turn uint64
}

// counted are the bytes under way that take up the room of other targets. What a target that does not answer was sent does not: nobody waits for that.
func (f *flight) counted() int {
	switch {
	case f == nil || f.repeats > quietRepeats:
		return 0
	case f.lapsed > 0 && time.Since(f.lapsedAt) < lapsedTime:
		return f.bytes + f.lapsed
	}
	return f.bytes
}

// begin counts anew, and has the targets begin with the one whose turn it is.
func (c *crowd) begin(targets []dlx.Target, flights map[uint64]*flight) []dlx.Target {
	c.bytes = 0
	for _, t := range targets {
		c.bytes += flights[t.Queue].counted()
	}
	if c.turn == 0 {
		return targets
	}
	i, _ := slices.BinarySearchFunc(targets, c.turn, func(t dlx.Target, id uint64) int { return cmp.Compare(t.Queue, id) })
	c.turn = 0
	return slices.Concat(targets[i:], targets[:i])
}

// has tells whether more may be sent to a target, beside what is under way to others. One that does not answer is sent a batch now and then.
func (c *crowd) has(target uint64, f *flight, others int) bool {
	if f.repeats > quietRepeats || others+f.counted() < crowdBytes {
		return true
	}
	if c.turn == 0 {
		c.turn = target
	}
	return false
}
