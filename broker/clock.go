package broker

import "slices"

// clockError is how far this node's clock is ahead of the median of all nodes' clocks
// that are known, its own included, in ms; negative if it is behind. Of two in the middle
// the one behind counts: with it messages expire late rather than early. There is no
// tolerance: by what leaders let pass they would differ, and a message would expire so much
// early when one that is behind is followed by one that is ahead.
func (b *Broker) clockError() int64 {
	if b.cfg.ClockOffsets == nil {
		return 0
	}
	offsets := append(b.cfg.ClockOffsets(), 0)
	slices.Sort(offsets)
	return -offsets[(len(offsets)-1)/2].Milliseconds()
}
