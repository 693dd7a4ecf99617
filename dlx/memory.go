package dlx

import (
	"unsafe"

	"github.com/warrenmq/warren/queue"
)

// Memory is about how many bytes of memory o takes.
func (o *Outbox) Memory() int64 {
	n := int64(unsafe.Sizeof(*o))
	for _, p := range o.pages {
		n += int64(unsafe.Sizeof(*p)) + int64(cap(p.items))*int64(unsafe.Sizeof(stored{}))
		// Of lists of legs and takers there are few, with two or three each.
		n += int64(queue.MapShare * float64(len(p.fans)) * 3 * float64(unsafe.Sizeof(Leg{})))
		n += int64(queue.MapShare * float64(len(p.took)) * 3 * 8)
		n += int64(queue.MapShare * float64(len(p.details)) * float64(unsafe.Sizeof("")))
		for _, text := range p.details {
			n += int64(len(text))
		}
	}
	for i := range o.waiting {
		n += o.waiting[i].Memory()
	}
	for _, t := range o.targets {
		n += int64(unsafe.Sizeof(*t)) + int64(cap(t.pending))*8
	}
	return n
}
