package broker

// levelBursts is the level of the cluster from which on leaders may ask for bursts.
const levelBursts = 2

// burst is how a stream's publishes go while the queue's leader holds publishers: so many, and the next when all of
// these are answered. Settlements and everything else pass.
type burst struct {
	size  int  // what the leader said last, 0: publishes go as they come
	count int  // publishes without an answer
	full  bool // it has gone out, and not all of it is answered
}

func (b *burst) published() {
	b.count++
	b.full = b.size > 0 && b.count >= b.size
}

func (b *burst) answered(n int) {
	if b.count -= n; b.count <= 0 {
		b.full = false
	}
}

// say takes what the leader of the queue wants from now on.
func (b *burst) say(size int) {
	b.size = size
	b.full = size > 0 && (b.full || b.count >= size)
}
