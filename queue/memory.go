package queue

import "unsafe"

// MapShare is about how many bytes a map takes for each byte of keys and values in it: a table is between half and seven eighths full.
const MapShare = 1.5

// Memory is about how many bytes of memory q takes. It looks at every 4096th message, and counts what slices have room for.
func (q *Queue) Memory() int64 {
	n := int64(unsafe.Sizeof(*q)) + int64(cap(q.chunks))*pointerBytes
	for _, c := range q.chunks {
		n += c.memory()
	}
	for _, l := range q.lanes {
		n += l.memory()
	}
	if q.spare != nil {
		n += q.spare.memory()
	}
	n += int64(cap(q.expiry.heap)) * int64(unsafe.Sizeof(expiryEntry{}))
	for _, r := range q.expiry.runs {
		n += int64(unsafe.Sizeof(*r)) + r.ids.Memory()
	}
	return n
}

const pointerBytes = int64(unsafe.Sizeof(uintptr(0)))

func (l *lane) memory() int64 { return int64(unsafe.Sizeof(*l)) + l.ids.Memory() }

func (c *chunk) memory() int64 {
	n := int64(unsafe.Sizeof(*c)) + int64(cap(c.touched))*int64(unsafe.Sizeof(touch{})) + c.cols.memory()
	if c.kept != nil {
		n += int64(unsafe.Sizeof(*c.kept))
	}
	return n
}

func (c *columns) memory() int64 {
	n := int64(cap(c.records))*int64(unsafe.Sizeof(record{})) + int64(cap(c.expires))*8 + int64(cap(c.priority))
	if p := c.packed; p != nil {
		n += int64(unsafe.Sizeof(*p)) + int64(cap(p.starts))*int64(unsafe.Sizeof(start{})) + int64(cap(p.sums))*4
		for _, s := range []*series{&p.length, &p.overhead, &p.expires, &p.priority, &p.space, &p.index, &p.offset} {
			n += int64(cap(s.data))
		}
	}
	return n
}

// Memory is about how many bytes s takes beside itself.
func (s *Set) Memory() int64 {
	blocks := int64(len(s.blocks))
	if s.spare != nil {
		blocks++
	}
	return int64(cap(s.blocks))*pointerBytes + blocks*int64(unsafe.Sizeof(block{}))
}

// Memory is about how many bytes d takes beside itself.
func (d *Delays) Memory() int64 {
	const size = int64(unsafe.Sizeof(Delay{}))
	return int64(float64(len(d.until))*float64(size)*MapShare) + int64(cap(d.heap))*size
}

// Memory is about how many bytes w takes beside itself.
func (w *DedupWindow) Memory() int64 {
	const size = int64(unsafe.Sizeof(DedupEntry{}))
	n := int64(float64(len(w.until)) * float64(size) * MapShare)
	for _, c := range w.chunks {
		n += int64(cap(c)) * size
	}
	return n
}
