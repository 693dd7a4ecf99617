package load

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// subBits is the precision of a histogram: 2^subBits buckets for each power of
// two, so that a value is off by at most 1/2^subBits.
const subBits = 5

// histogram counts durations from 1 µs to hours. It may be used by several
// goroutines at once.
type histogram struct {
	buckets [40 << subBits]atomic.Uint64
}

func bucketOf(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	if us < 1<<subBits {
		return int(us)
	}
	shift := bits.Len64(us) - subBits - 1
	return min((shift+1)<<subBits+int(us>>shift)-1<<subBits, 40<<subBits-1)
}

// valueOf returns the smallest duration that falls into the bucket.
func valueOf(bucket int) time.Duration {
	if bucket < 1<<subBits {
		return time.Duration(bucket) * time.Microsecond
	}
	shift := bucket>>subBits - 1
	return time.Duration((1<<subBits+bucket&(1<<subBits-1))<<shift) * time.Microsecond
}

func (h *histogram) add(d time.Duration) { h.buckets[bucketOf(d)].Add(1) }

func (h *histogram) reset() {
	for i := range h.buckets {
		h.buckets[i].Store(0)
	}
}

// quantile returns the value below which the share q of all values lies, or 0
// when there is none.
func (h *histogram) quantile(q float64) time.Duration {
	var total uint64
	for i := range h.buckets {
		total += h.buckets[i].Load()
	}
	if total == 0 {
		return 0
	}
	rank := uint64(q * float64(total-1))
	for i := range h.buckets {
		n := h.buckets[i].Load()
		if rank < n {
			return valueOf(i)
		}
		rank -= n
	}
	return 0
}
