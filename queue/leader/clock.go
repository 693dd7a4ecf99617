package leader

// slewShare is the largest share of elapsed time by which machine time is bent
// toward the node's clock.
const slewShare = 20 // one twentieth: 5 %

// clock is machine time on the leader: the node's clock, but never behind the
// time found in the machine. A lead over the node's clock (an earlier leader's
// ran ahead) is worn off slowly, so that time neither stops nor runs backwards.
type clock struct {
	ahead int64 // ms by which machine time leads the node's clock
	seen  int64 // node time up to which the lead was worn off
	last  int64 // last machine time given out
}

func (c *clock) start(found, node int64) {
	c.ahead = max(0, found-node)
	c.seen = node
	c.last = max(found, node)
}

// raise is start for a time that was found later: what earlier leaders got into the log may be applied only when the clock runs already.
func (c *clock) raise(found, node int64) {
	if found > c.now(node) {
		c.start(found, node)
	}
}

func (c *clock) now(node int64) int64 {
	if steps := (node - c.seen) / slewShare; c.ahead > 0 && steps > 0 {
		c.ahead = max(0, c.ahead-steps)
		c.seen += steps * slewShare
	}
	c.last = max(c.last, node+c.ahead)
	return c.last
}
