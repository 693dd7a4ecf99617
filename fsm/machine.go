package fsm

import (
	"hash/fnv"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// Machine is the replicated state of one queue. It has one owner, which
// serialises Apply with every reader.
type Machine struct {
	index      uint64 // log index of the newest applied entry
	session    uint64 // highest seen: entries of older ones come from deposed leaders
	time       int64  // ms, never falls
	catalogRev uint64 // highest seen
	mark       queue.MessageID
	closed     bool
	consumed   bool // has had a consumer
	tenure     Tenure

	settings    queue.Settings
	settingsRev uint64
	settingsSet bool
	name, vhost string
	// way is where dead letters go: the newest settings that had dead lettering say so.
	way deadWay

	queue    queue.Queue
	delays   queue.Delays
	outbox   *dlx.Outbox
	streams  map[uint32]*stream
	sources  map[Source]*source
	floor    uint64 // catalog revision of the newest ForgetSources
	counters Counters

	dedup queue.DedupWindow
	// cancelled are the messages that were taken back last, the oldest first. The list is never changed in place.
	cancelled []queue.MessageID

	redriving dlx.Redriving
	leaving   leaving
	undecided leaving // expired messages that may stay

	// reclaimable is derived and not part of the state.
	reclaimable int64
}

// Counters are totals since the queue was created. Every accepted message and
// relayed part is live, in the outbox, or counted as Acked, Purged, Closed, Moved, Redriven or Dropped.
type Counters struct {
	Published   uint64 // accepted from clients
	Transferred uint64 // accepted from other queues
	Refused     uint64 // publishes refused, those that went to the outbox included
	RefusedDead uint64 // of these, the ones that went to the outbox
	Acked       uint64
	Purged      uint64
	Closed      uint64 // dropped when the queue was closed
	Moved       uint64 // taken by every target
	Relayed     uint64 // parts of transactions that entered the outbox; they leave as Moved
	Redriven    uint64 // sent back by a redrive and taken
	// Duplicates were published again within the window of deduplication, and not stored
	// again; they are in no other number. Forgotten are ids that left the window before
	// their time, because it was full.
	Duplicates, Forgotten uint64
	Stayed                uint64 // expired, and lost their time to live instead of leaving
	// Died counts deaths by reason, Dropped drops by reason and cause.
	Died    [dlx.LastDeath + 1]uint64
	Dropped [dlx.LastDeath + 1][DropCycle + 1]uint64
}

// DroppedTotal is the sum of all drops.
func (c *Counters) DroppedTotal() (n uint64) {
	for _, causes := range c.Dropped {
		for _, v := range causes {
			n += v
		}
	}
	return n
}

// New returns the machine of a queue before its first entry: open, empty, without
// limits, dead lettering or a time-to-live.
func New() *Machine {
	return &Machine{
		settings: queue.Settings{
			MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1, OutboxMax: -1, OutboxMaxBytes: -1,
		},
		outbox:  &dlx.Outbox{},
		streams: map[uint32]*stream{},
		sources: map[Source]*source{},
	}
}

// Index is the log index of the newest applied entry.
func (m *Machine) Index() uint64 { return m.index }

// Time is the machine time in ms.
func (m *Machine) Time() int64 { return m.time }

// CatalogRev is the highest catalog revision an entry carried.
func (m *Machine) CatalogRev() uint64 { return m.catalogRev }

// Mark is the delivered mark: messages above it have never been delivered.
func (m *Machine) Mark() queue.MessageID { return m.mark }

// Settings are the effective settings.
func (m *Machine) Settings() queue.Settings { return m.settings }

// deadWay is what the settings say of the way of dead letters.
type deadWay struct {
	set, keySet   bool
	exchange, key string
}

func wayOf(s *queue.Settings) deadWay {
	if !s.DeadLetter {
		return deadWay{}
	}
	return deadWay{true, s.DeadLetterKeySet, s.DeadLetterExchange, s.DeadLetterRoutingKey}
}

// OutboxSettings are the settings under which the items of the outbox go. They are the
// effective ones, with the dead-letter exchange and key that were last set: taking these
// away ends no move that has begun.
func (m *Machine) OutboxSettings() queue.Settings {
	s := m.settings
	s.DeadLetter, s.DeadLetterKeySet = m.way.set, m.way.keySet
	s.DeadLetterExchange, s.DeadLetterRoutingKey = m.way.exchange, m.way.key
	return s
}

// SettingsRevision is the catalog revision of the settings, 0 before the first.
func (m *Machine) SettingsRevision() uint64 { return m.settingsRev }

// Name is the queue's name, from the settings.
func (m *Machine) Name() string { return m.name }

// VHost is the name of the queue's virtual host, from the settings.
func (m *Machine) VHost() string { return m.vhost }

// Closed reports whether the queue is closed for clients.
func (m *Machine) Closed() bool { return m.closed }

// Consumed reports whether the queue has ever had a consumer, as far as it matters.
func (m *Machine) Consumed() bool { return m.consumed }

// Tenure tells which consumer was last made the holder of a queue with a single active
// consumer, zero if none was.
func (m *Machine) Tenure() Tenure { return m.tenure }

// Counters returns the totals.
func (m *Machine) Counters() Counters { return m.counters }

// Arrivals are what a queue has counted of the messages that came.
type Arrivals struct {
	Taken      uint64 // accepted from clients or from other queues
	Duplicates uint64 // published again within the window of deduplication
	Forgotten  uint64 // ids that left that window before their time
}

// Arrivals is that part of Counters.
func (m *Machine) Arrivals() Arrivals {
	c := &m.counters
	return Arrivals{c.Published + c.Transferred, c.Duplicates, c.Forgotten}
}

// Since is what has come after before.
func (a Arrivals) Since(before Arrivals) Arrivals {
	return Arrivals{a.Taken - before.Taken, a.Duplicates - before.Duplicates, a.Forgotten - before.Forgotten}
}

// Queue is the live messages, for reading.
func (m *Machine) Queue() *queue.Queue { return &m.queue }

// Delays are the live messages that wait out a retry delay, for reading: of those whose
// instant is past at the machine time none is left.
func (m *Machine) Delays() *queue.Delays { return &m.delays }

// Outbox is the dead messages on their way out, for reading.
func (m *Machine) Outbox() *dlx.Outbox { return m.outbox }

// Watermark returns the newest incarnation known of a node and its watermark.
func (m *Machine) Watermark(node uint32) (o Origin, seq uint64, ok bool) {
	s := m.streams[node]
	if s == nil {
		return Origin{}, 0, false
	}
	return Origin{node, s.incarnation}, s.watermark, true
}

// Recorded returns the recorded outcomes of an origin's sequences above the given
// one, in order. Sequences up to the watermark that are not listed ended in plain
// success or were forgotten as answered.
func (m *Machine) Recorded(o Origin, above uint64) []Outcome {
	s := m.streams[o.Node]
	if s == nil || s.incarnation != o.Incarnation {
		return nil
	}
	return s.recorded(above, math.MaxUint64)
}

// SourceWatermark returns the highest sequence taken or withdrawn of a source.
func (m *Machine) SourceWatermark(s Source) (seq uint64, ok bool) {
	x := m.sources[s]
	if x == nil {
		return 0, false
	}
	return x.watermark, true
}

// Withdrawn lists the sequences of a source that were withdrawn, as far as the source may
// not have recorded them.
func (m *Machine) Withdrawn(s Source) []uint64 {
	if x := m.sources[s]; x != nil {
		return slices.Clone(x.withdrawn)
	}
	return nil
}

// Reclaimable is the number of payload bytes in the log that were pinned at the
// last Capture or came later and are needed by no message now: what the next
// manifest lets go. A part of an entry whose rest is still needed is included.
func (m *Machine) Reclaimable() int64 { return m.reclaimable }

// Hash digests the whole replicated state. It encodes all of it, so that it
// costs what Snapshot does.
func (m *Machine) Hash() uint64 {
	h := fnv.New64a()
	h.Write(m.Snapshot())
	return h.Sum64()
}

// Sources yields the sources known and their watermarks, by queue and epoch. The
// machine must not change meanwhile.
func (m *Machine) Sources() iter.Seq2[Source, uint64] {
	return func(yield func(Source, uint64) bool) {
		for _, key := range slices.SortedFunc(maps.Keys(m.sources), Source.compare) {
			if !yield(key, m.sources[key].watermark) {
				return
			}
		}
	}
}
