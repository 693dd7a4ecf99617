package dirty

import "sync"

// lent are the sizes of what is lent: powers of two from 64 KiB to 4 MiB with room for a head, for what is
// carried is cut near such sizes.
var lent [7]struct {
	size int
	pool sync.Pool
}

// returned is memory that may be lent again.
type returned struct {
	b        []byte
	poisoned bool
}

const (
	lentMin  = 64 << 10
	lentHead = 4 << 10
)

func init() {
	for i := range lent {
		lent[i].size = lentMin<<i + lentHead
	}
}

// Lend returns n bytes with anything in them; the caller writes all that it, or anybody, will read. Somebody is to Return them when
// they are large: what is not returned is collected like all else.
func Lend(n int) []byte {
	if n < lentMin/4 {
		return make([]byte, n)
	}
	for i := range lent {
		t := &lent[i]
		if n > t.size {
			continue
		}
		if r, ok := t.pool.Get().(*returned); ok {
			if r.poisoned && !untouched(r.b) {
				panic("dirty: memory was written to after it had been returned")
			}
			return r.b[:n]
		}
		return make([]byte, t.size)[:n]
	}
	return make([]byte, n)
}

// Return takes back what Lend gave, from its first byte on, of any length. Nobody may read or write it any more. Bytes
// from elsewhere are left alone.
func Return(b []byte) {
	for i := range lent {
		if t := &lent[i]; cap(b) == t.size {
			r := &returned{b: b[:t.size], poisoned: poisoning.Load()}
			if r.poisoned {
				fill(r.b)
			}
			t.pool.Put(r)
			return
		}
	}
}
