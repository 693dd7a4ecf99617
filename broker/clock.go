package broker

import (
	"slices"
	"time"
)

// clockTolerance is how far a node's clock may be from the median of the clocks it knows
// before leaders here correct it.
const clockTolerance = 500 * time.Millisecond

// clockError is how far this node's clock is ahead of the median of all nodes' clocks
// that are known, its own included, in ms; negative if it is behind, 0 within the
// tolerance. Of two in the middle the one behind counts: with it messages expire late
// rather than early.
func (b *Broker) clockError() int64 {
	if b.cfg.ClockOffsets == nil {
		return 0
	}
	offsets := append(b.cfg.ClockOffsets(), 0)
	slices.Sort(offsets)
	median := offsets[(len(offsets)-1)/2]
	if median.Abs() <= clockTolerance {
		return 0
	}
	return -median.Milliseconds()
}
