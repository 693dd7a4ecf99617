package mover

import (
	"bytes"
	"cmp"
	"slices"
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
	// gatherItems are gathered at a time of those that are under way to a target.
	gatherItems = 4096
)

// gathered are the stored bytes of messages. The zero value is ready.
type gathered struct {
	kept  map[queue.Ref][]byte
	bytes int
}

func (g *gathered) has(ref queue.Ref) bool {
	_, ok := g.kept[ref]
	return ok
}

func (g *gathered) drop(ref queue.Ref) {
	if b, ok := g.kept[ref]; ok {
		g.bytes -= len(b)
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

// gather reads the messages that are about to be used in the order of refs, if that order would read entries again and again. One that
// cannot be read is left for who uses it.
func (m *Mover) gather(refs []queue.Ref) {
	g := &m.gathered
	if !scattered(refs, itself) || g.has(refs[0]) {
		return // the first is used first: when it is there, what was gathered last is not used up
	}
	if g.bytes > keptMax/2 || g.kept == nil {
		*g = gathered{kept: map[queue.Ref][]byte{}}
	}
	refs = slices.DeleteFunc(refs, func(ref queue.Ref) bool { return ref.Length > keptEach || g.has(ref) })
	room := keptMax - g.bytes
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
		g.bytes += int(ref.Length)
	}
}

// gatherPending does so for what is about to be sent to a target. If that is scattered, so is what follows: the more are gathered at a
// time, the fewer entries are read again.
func (m *Mover) gatherPending(target, after uint64, pending []dlx.Pending) {
	refs := refsOf(pending)
	if !scattered(refs, itself) || m.gathered.has(refs[0]) {
		return
	}
	m.cfg.View(func(fm *fsm.Machine) { pending = fm.Outbox().Pending(target, after, gatherItems) })
	m.gather(refsOf(pending))
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
// in memory as long as one of them is kept.
func (m *Mover) restCache() {
	if m.cache == nil {
		return
	}
	if left := cacheRest - time.Since(m.cachedAt); !m.wakeAt.IsZero() && left > 0 {
		m.againIn(left)
		return
	}
	m.cache = nil
}
