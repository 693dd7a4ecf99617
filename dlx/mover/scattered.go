package mover

import (
	"bytes"
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// An entry of the log is read whole, and may have hundreds of messages. Those that leave in another order than they came, as delayed ones
// do, lie in another entry than the one before, each: they are gathered, so that an entry is read once for all of a batch, and kept from
// the decision where they go until they are sent.

const (
	// scatteredMin is the least number of messages for which an entry is read once, in the mean, that is no scattering.
	scatteredMin = 4
	// keptMax bounds the bytes of messages that are kept.
	keptMax = 2 << 20
	// keptEach bounds one that is kept. A larger one is most of its entry, which is as well read for it alone: thousands of movers would keep two MiB each.
	keptEach = 128 << 10
	// keptNodeMax bounds what all movers of a node keep, beside a batch each.
	keptNodeMax = 64 << 20
	// keptRest is how long they are kept: a target that takes nothing may do so for hours.
	keptRest = time.Second
	// cacheMax is how large an entry may be that is kept until the next batch. A larger one is one message, nearly, and that is in the batch.
	cacheMax = 1 << 20
	// gatherItems are gathered at a time of those that are under way to a target.
	gatherItems = 4096
)

// Kept counts the bytes that all movers of a node keep. The zero value counts nothing yet; nil has no bound.
type Kept struct{ bytes atomic.Int64 }

// gathered are the stored bytes of messages. The zero value is ready.
type gathered struct {
	node  *Kept
	kept  map[queue.Ref][]byte
	bytes int
	since time.Time // when there was none kept last
}

func (g *gathered) count(n int) {
	g.bytes += n
	if g.node != nil {
		g.node.bytes.Add(int64(n))
	}
}

// room is how many bytes may be gathered, of so many that are wanted.
func (g *gathered) room(want int) int {
	if g.node != nil && int64(want) > keptNodeMax-g.node.bytes.Load() {
		want = transferBytes
	}
	return min(want, keptMax) - g.bytes
}

func (g *gathered) clear() {
	g.count(-g.bytes)
	g.kept = nil
}

func (g *gathered) has(ref queue.Ref) bool {
	_, ok := g.kept[ref]
	return ok
}

func (g *gathered) drop(ref queue.Ref) {
	if b, ok := g.kept[ref]; ok {
		g.count(-len(b))
		delete(g.kept, ref)
	}
}

// scattered tells whether messages that are used in this order have an entry read for few of them.
func scattered[M any](messages []M, ref func(M) queue.Ref) bool {
	changes := 0
	for i := 1; i < len(messages); i++ {
		if ref(messages[i]).Index != ref(messages[i-1]).Index {
			changes++
		}
	}
	return changes > len(messages)/scatteredMin
}

func itself(ref queue.Ref) queue.Ref { return ref }

// gather reads the messages that are about to be used in the order of refs, want bytes of them at most, if that order would read entries again
// and again. One that cannot be read is left for who uses it.
func (m *Mover) gather(refs []queue.Ref, want int) {
	g := &m.gathered
	if !scattered(refs, itself) || g.has(refs[0]) {
		return // the first is used first: when it is there, what was gathered last is not used up
	}
	if g.bytes > keptMax/2 || len(g.kept) == 0 {
		g.clear()
		g.kept, g.since = map[queue.Ref][]byte{}, time.Now()
	}
	refs = slices.DeleteFunc(refs, func(ref queue.Ref) bool { return ref.Length > keptEach || g.has(ref) })
	room := g.room(want)
	for i := range refs {
		if room -= int(refs[i].Length); room < 0 {
			refs = refs[:i]
			break
		}
	}
	slices.SortFunc(refs, func(a, b queue.Ref) int { return cmp.Compare(a.Index, b.Index) })
	for _, ref := range refs {
		data, err := m.read(ref.Index)
		if err != nil || uint64(len(data)) < uint64(ref.Offset)+uint64(ref.Length) {
			return
		}
		g.kept[ref] = bytes.Clone(data[ref.Offset:][:ref.Length])
		g.count(int(ref.Length))
	}
}

// gatherPending does so for what is about to be sent to a target. If that is scattered, so is what follows: the more are gathered at a
// time, the fewer entries are read again. But not more than the target may be sent by now: one that takes nothing is sent a batch again and again.
func (m *Mover) gatherPending(target uint64, f *flight, pending []dlx.Pending) {
	refs := refsOf(pending)
	if !scattered(refs, itself) || m.gathered.has(refs[0]) {
		return
	}
	m.cfg.View(func(fm *fsm.Machine) { pending = fm.Outbox().Pending(target, f.sent, gatherItems) })
	m.gather(refsOf(pending), max(f.room.bytes, transferBytes))
}

func refsOf(pending []dlx.Pending) []queue.Ref {
	refs := make([]queue.Ref, 0, len(pending))
	for i := range pending {
		if pending[i].Reason != dlx.Transaction {
			refs = append(refs, pending[i].Ref)
		}
	}
	return refs
}

// message returns a stored message. It shares the bytes that were read.
func (m *Mover) message(ref queue.Ref) (fsm.Message, error) {
	if b, ok := m.gathered.kept[ref]; ok {
		return fsm.DecodeMessage(b)
	}
	data, err := m.read(ref.Index)
	if err != nil {
		return fsm.Message{}, err
	}
	return fsm.MessageIn(data, ref)
}

// restCache lets go of the entry read last when there is nothing to do, or it was read a while ago: a MiB of the log, of all queues' entries, stays
// in memory as long as one of them is kept. What was gathered a while ago goes, too.
func (m *Mover) restCache() {
	if len(m.gathered.kept) > 0 {
		if left := keptRest - time.Since(m.gathered.since); left > 0 {
			m.againIn(left)
		} else {
			m.gathered.clear()
		}
	}
	if m.cache == nil {
		return
	}
	if left := cacheRest - time.Since(m.cachedAt); !m.wakeAt.IsZero() && left > 0 && len(m.cache) <= cacheMax {
		m.againIn(left)
		return
	}
	m.cache = nil
}
