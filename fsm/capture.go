package fsm

import (
	"maps"
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// IndexRange is an inclusive range of log indexes.
type IndexRange struct{ First, Last uint64 }

// capture is the state at one moment. It shares only what is never changed.
type capture struct {
	fields  Machine // plain fields; its queue, outbox and maps are not used
	live    queue.Frozen
	out     dlx.Frozen
	streams []streamRecord
	sources []sourceRecord
	delays  []queue.Delay // in no order until they are encoded
	leaving []leavingRecord
	dedup   queue.DedupFrozen
	// undecided are the expired messages that may stay.
	undecided []leavingRecord
}

type streamRecord struct {
	node uint32
	stream
}

type sourceRecord struct {
	key Source
	source
}

// capture copies everything small and takes the given views of the large parts.
func (m *Machine) capture(live queue.Frozen, out dlx.Frozen) *capture {
	c := &capture{fields: *m, live: live, out: out, delays: m.delays.List(), leaving: m.leaving.list(), undecided: m.undecided.list(), dedup: m.dedup.Freeze()}
	for _, node := range slices.Sorted(maps.Keys(m.streams)) {
		s := *m.streams[node]
		s.outcomes = slices.Clone(s.outcomes)
		c.streams = append(c.streams, streamRecord{node, s})
	}
	for _, key := range slices.SortedFunc(maps.Keys(m.sources), Source.compare) {
		s := *m.sources[key]
		s.withdrawn = slices.Clone(s.withdrawn)
		c.sources = append(c.sources, sourceRecord{key, s})
	}
	return c
}

// Capture takes the state as it is now, in time proportional to the number of
// chunks and of delayed messages, and sets Reclaimable to zero. The returned function encodes it; it may
// run on any goroutine while Apply goes on, once. Its results are those Snapshot
// and Pins would have had at the time of the capture.
func (m *Machine) Capture() func() (manifest []byte, pins []IndexRange) {
	m.reclaimable = 0
	return m.Freeze()
}

// Freeze is Capture for what is not going to be the log's snapshot: Reclaimable stays.
func (m *Machine) Freeze() func() (manifest []byte, pins []IndexRange) {
	c := m.capture(m.queue.Freeze(), m.outbox.Freeze())
	return func() ([]byte, []IndexRange) { return c.encode(), c.pins() }
}

// Snapshot encodes the whole replicated state as a manifest. Replicas that have
// applied the same entries give the same bytes.
func (m *Machine) Snapshot() []byte { return m.capture(m.queue.View(), m.outbox.View()).encode() }

// Pins lists the log indexes whose payloads live messages or outbox items refer
// to, ascending, neighbours coalesced.
func (m *Machine) Pins() []IndexRange {
	return (&capture{live: m.queue.View(), out: m.outbox.View()}).pins()
}

func (c *capture) pins() []IndexRange {
	dead := make([]uint64, 0, c.out.Len())
	for it := range c.out.All {
		dead = append(dead, it.Ref.Index)
	}
	slices.Sort(dead)
	var pins []IndexRange
	for index := range c.live.Indexes {
		if n := len(pins); n > 0 && pins[n-1].Last == index && (len(dead) == 0 || dead[0] > index) {
			continue
		}
		for len(dead) > 0 && dead[0] <= index {
			pins = appendIndex(pins, dead[0])
			dead = dead[1:]
		}
		pins = appendIndex(pins, index)
	}
	for _, index := range dead {
		pins = appendIndex(pins, index)
	}
	return pins
}

// appendIndex adds an index that is at least the last one.
func appendIndex(pins []IndexRange, index uint64) []IndexRange {
	if n := len(pins); n > 0 && pins[n-1].Last+1 >= index {
		pins[n-1].Last = index
		return pins
	}
	return append(pins, IndexRange{index, index})
}

// compare orders sources by queue and epoch.
func (s Source) compare(o Source) int {
	switch {
	case s.Queue != o.Queue && s.Queue < o.Queue, s.Queue == o.Queue && s.Epoch < o.Epoch:
		return -1
	case s == o:
		return 0
	}
	return 1
}
