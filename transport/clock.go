package transport

import "time"

// clockDrift is by how much two monotonic clocks go apart at most, as a share of elapsed time.
const clockDrift = 1000 // one thousandth

// clockSample is what one answer to a ping told of a node's clock.
type clockSample struct {
	offset  time.Duration // how far it is ahead of ours
	doubt   time.Duration // by how much that may be wrong: half a round trip
	taken   time.Time
	process uint64 // whose clock it is: another process of the node has another
}

func (c clockSample) known() bool { return !c.taken.IsZero() }

// better is the one of two samples that is to be believed. Both clocks go on by monotonic ones, so what a fast answer
// told once stays right but for their drift, and a slow one tells less.
func (c clockSample) better(newer clockSample) clockSample {
	if c.known() && c.process == newer.process && c.doubt+newer.taken.Sub(c.taken)/clockDrift < newer.doubt {
		return c
	}
	return newer
}
