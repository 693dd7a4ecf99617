package store

import "slices"

// loc is the place of a record. segment 0 does not exist: the zero loc is a hole.
type loc struct {
	segment   uint32
	off       uint32
	bodyBytes uint32
}

func (l loc) bytes() int64 { return padded(l.bodyBytes) }

// runMax bounds a run, so that an insertion or a removal moves little.
const runMax = 1024

// run is a stretch of consecutive indexes that may have holes, but not at its ends.
type run struct {
	start uint64
	locs  []loc
	live  int    // locs that are no holes; > 0
	bytes uint64 // sum of their bodyBytes
}

func (r *run) end() uint64 { return r.start + uint64(len(r.locs)) } // exclusive

// index maps entry indexes to places: 12 bytes an entry, cheap at the tail, sparse elsewhere.
type index struct {
	runs []run // sorted, disjoint
	n    int
}

// find returns the position of the first run whose end is above i.
func (x *index) find(i uint64) int {
	if n := len(x.runs); n > 0 && i >= x.runs[n-1].start {
		if i < x.runs[n-1].end() {
			return n - 1
		}
		return n
	}
	p, _ := slices.BinarySearchFunc(x.runs, i, func(r run, i uint64) int {
		if r.end() <= i {
			return -1
		}
		return 1
	})
	return p
}

func (x *index) get(i uint64) (loc, bool) {
	p := x.find(i)
	if p == len(x.runs) || i < x.runs[p].start {
		return loc{}, false
	}
	l := x.runs[p].locs[i-x.runs[p].start]
	return l, l.segment != 0
}

// put sets i and returns what was there, the zero loc if nothing.
func (x *index) put(i uint64, l loc) (old loc) {
	p := x.find(i)
	if p < len(x.runs) && i >= x.runs[p].start {
		r := &x.runs[p]
		old = r.locs[i-r.start]
		if old.segment == 0 {
			r.live++
			x.n++
		}
		r.locs[i-r.start] = l
		r.bytes += uint64(l.bodyBytes) - uint64(old.bodyBytes)
		return old
	}
	x.n++
	if p > 0 && x.runs[p-1].end() == i && len(x.runs[p-1].locs) < runMax {
		r := &x.runs[p-1]
		r.locs = append(r.locs, l)
		r.live++
		r.bytes += uint64(l.bodyBytes)
		return loc{}
	}
	x.runs = slices.Insert(x.runs, p, run{start: i, locs: []loc{l}, live: 1, bytes: uint64(l.bodyBytes)})
	return loc{}
}

// ceil returns the lowest present index at or above i.
func (x *index) ceil(i uint64) (uint64, bool) {
	p := x.find(i)
	if p == len(x.runs) {
		return 0, false
	}
	r := &x.runs[p]
	if i <= r.start {
		return r.start, true
	}
	for r.locs[i-r.start].segment == 0 { // ends at the latest on the run's last loc, which is no hole
		i++
	}
	return i, true
}

func (x *index) max() (uint64, bool) {
	if len(x.runs) == 0 {
		return 0, false
	}
	return x.runs[len(x.runs)-1].end() - 1, true
}

// each calls fn for every present index in [from, to], ascending, until it answers false.
func (x *index) each(from, to uint64, fn func(i uint64, l loc) bool) {
	for p := x.find(from); p < len(x.runs); p++ {
		r := &x.runs[p]
		if r.start > to {
			return
		}
		lo := max(from, r.start)
		for i := lo; i < r.end() && i <= to; i++ {
			if l := r.locs[i-r.start]; l.segment != 0 && !fn(i, l) {
				return
			}
		}
	}
}

// missing returns the lowest absent index at or above from.
func (x *index) missing(from uint64) uint64 {
	x.each(from, ^uint64(0), func(i uint64, _ loc) bool {
		if i != from {
			return false
		}
		from++
		return true
	})
	return from
}

// sum counts the present indexes in [from, to] and their bodies' bytes. It looks at single entries only in the runs
// that the range cuts.
func (x *index) sum(from, to uint64) (n, bytes uint64) {
	for p := x.find(from); p < len(x.runs) && x.runs[p].start <= to; p++ {
		r := &x.runs[p]
		if from <= r.start && r.end()-1 <= to {
			n, bytes = n+uint64(r.live), bytes+r.bytes
			continue
		}
		for i := max(from, r.start); i < r.end() && i <= to; i++ {
			if l := r.locs[i-r.start]; l.segment != 0 {
				n, bytes = n+1, bytes+uint64(l.bodyBytes)
			}
		}
	}
	return n, bytes
}

// remove drops every present index in [from, to] and calls fn for each.
func (x *index) remove(from, to uint64, fn func(i uint64, l loc)) {
	first := x.find(from)
	p := first
	var kept []run
	for ; p < len(x.runs) && x.runs[p].start <= to; p++ {
		r := x.runs[p]
		for i := max(from, r.start); i < r.end() && i <= to; i++ {
			if l := r.locs[i-r.start]; l.segment != 0 {
				r.locs[i-r.start] = loc{}
				r.live--
				r.bytes -= uint64(l.bodyBytes)
				x.n--
				fn(i, l)
			}
		}
		if r.live > 0 {
			kept = append(kept, r.tidy()...)
		}
	}
	if p > first {
		x.runs = slices.Replace(x.runs, first, p, kept...)
	}
}

// tidy cuts holes off the ends, and parts a run that is mostly holes.
func (r *run) tidy() []run {
	lo, hi := 0, len(r.locs)
	for r.locs[lo].segment == 0 {
		lo++
	}
	for r.locs[hi-1].segment == 0 {
		hi--
	}
	r.start, r.locs = r.start+uint64(lo), r.locs[lo:hi]
	if r.live*4 >= len(r.locs) {
		return []run{*r}
	}
	var out []run
	for i := 0; i < len(r.locs); {
		if r.locs[i].segment == 0 {
			i++
			continue
		}
		j := i
		for j < len(r.locs) && r.locs[j].segment != 0 {
			j++
		}
		part := run{start: r.start + uint64(i), locs: slices.Clone(r.locs[i:j]), live: j - i}
		for _, l := range part.locs {
			part.bytes += uint64(l.bodyBytes)
		}
		out = append(out, part)
		i = j
	}
	return out
}

// Range is a stretch of log indexes, both ends included; First <= Last.
type Range struct{ First, Last uint64 }

// normalize sorts ranges and joins those that touch; ok is false if one is upside down or has index 0.
func normalize(in []Range) (out []Range, ok bool) {
	rs := slices.Clone(in)
	slices.SortFunc(rs, func(a, b Range) int {
		if a.First < b.First {
			return -1
		}
		if a.First > b.First {
			return 1
		}
		return 0
	})
	for _, r := range rs {
		if r.First == 0 || r.First > r.Last || r.Last == ^uint64(0) {
			return nil, false
		}
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out, true
}

// contains reports whether sorted, disjoint ranges hold i.
func contains(rs []Range, i uint64) bool {
	_, found := slices.BinarySearchFunc(rs, i, func(r Range, i uint64) int {
		if r.Last < i {
			return -1
		}
		if r.First > i {
			return 1
		}
		return 0
	})
	return found
}

// gaps calls fn for the stretches of [from, to] that sorted, disjoint ranges leave out.
func gaps(rs []Range, from, to uint64, fn func(from, to uint64)) {
	for _, r := range rs {
		if r.Last < from {
			continue
		}
		if r.First > to {
			break
		}
		if r.First > from {
			fn(from, r.First-1)
		}
		if r.Last >= to {
			return
		}
		from = r.Last + 1
	}
	if from <= to {
		fn(from, to)
	}
}
