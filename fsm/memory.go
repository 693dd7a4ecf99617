package fsm

import (
	"unsafe"

	"github.com/warrenmq/warren/queue"
)

// Memory is about how many bytes of memory the machine takes: what it knows of messages, dead letters, streams and sources, and not the
// messages themselves, which are in the log.
func (m *Machine) Memory() int64 {
	n := int64(unsafe.Sizeof(*m)-unsafe.Sizeof(m.queue)) + m.queue.Memory() + m.delays.Memory() + m.outbox.Memory() + m.dedup.Memory() + int64(cap(m.cancelled))*8
	for _, s := range m.streams {
		n += int64(unsafe.Sizeof(*s)) + int64(cap(s.outcomes))*int64(unsafe.Sizeof(Outcome{}))
	}
	for _, s := range m.sources {
		n += int64(unsafe.Sizeof(*s)+unsafe.Sizeof(Source{})) + int64(cap(s.withdrawn))*8
	}
	// Each is in two maps, of two numbers each.
	n += int64(queue.MapShare * 32 * float64(len(m.leaving.ids)+len(m.undecided.ids)))
	return n
}
