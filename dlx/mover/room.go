package mover

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
