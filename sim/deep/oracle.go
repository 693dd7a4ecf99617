package deep

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/sim/trace"
	"github.com/warrenmq/warren/transport"
)

// oracle knows what was proposed, answered, applied and led, and says what must not be.
type oracle struct {
	*trace.Trace

	mu     sync.Mutex // guards the rest
	groups map[transport.GroupID]*history
}

// entry is a committed entry as the first replica that applied it saw it.
type entry struct {
	term uint64
	id   string
	hash uint64 // of everything up to it
	data []byte
}

// history is everything known of one group.
type history struct {
	entries map[uint64]entry
	place   map[string]uint64 // where a proposal was applied
	acked   map[string]uint64 // where its proposer was told
	refused map[string]bool   // proposals never appended, as the leader said
	leaders map[uint64]transport.NodeID
	newest  uint64
	// base is what a group that goes on from another one has begun with, and inherits says that it has not begun yet.
	base     state
	inherits bool
}

func newOracle(live io.Writer) *oracle {
	return &oracle{Trace: trace.New(live), groups: make(map[transport.GroupID]*history)}
}

// of returns a group's history. Caller holds mu.
func (o *oracle) of(id transport.GroupID) *history {
	h := o.groups[id]
	if h == nil {
		h = &history{
			entries: make(map[uint64]entry), place: make(map[string]uint64), acked: make(map[string]uint64),
			refused: make(map[string]bool), leaders: make(map[uint64]transport.NodeID),
		}
		o.groups[id] = h
	}
	return h
}

// name is what tells a proposal from others: its text up to the padding.
func name(data []byte) string {
	id, _, _ := bytes.Cut(data, []byte("|"))
	return string(id)
}

// applied checks an entry that a replica applies against what others applied there.
func (o *oracle) applied(n *life, id transport.GroupID, e group.Entry, hash uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n.dead.Load() {
		return
	}
	h := o.of(id)
	if h.inherits {
		return // nobody hears of it, and it may be begun again
	}
	was, known := h.entries[e.Index]
	if !known {
		if e.Index <= h.newest {
			o.Fail("group %d: %s applies entry %d, which those that applied up to %d have not", id, n.id, e.Index, h.newest)
		}
		h.newest = max(h.newest, e.Index)
		text := name(e.Data)
		if at, twice := h.place[text]; twice {
			o.Fail("group %d: %s is applied at %d and at %d", id, text, at, e.Index)
		}
		if h.refused[text] {
			o.Fail("group %d: %s was refused and is applied at %d", id, text, e.Index)
		}
		h.place[text] = e.Index
		h.entries[e.Index] = entry{e.Term, text, hash, bytes.Clone(e.Data)}
		return
	}
	if was.term != e.Term || !bytes.Equal(was.data, e.Data) {
		o.Fail("group %d entry %d: %s applies %s of term %d, others %s of term %d", id, e.Index, n.id, name(e.Data), e.Term, was.id, was.term)
	} else if was.hash != hash {
		o.Fail("group %d entry %d: %s has hash %x, others %x", id, e.Index, n.id, hash, was.hash)
	}
}

// restored checks a snapshot's state against what was applied up to it.
func (o *oracle) restored(n *life, id transport.GroupID, last, hash uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last == 0 || n.dead.Load() {
		return
	}
	h := o.of(id)
	if h.inherits || last == h.base.last && hash == h.base.hash {
		return
	}
	if was, ok := h.entries[last]; !ok || was.hash != hash {
		o.Fail("group %d: %s restores hash %x at %d, applied was %x", id, n.id, hash, last, was.hash)
	}
}

// leads checks that a term has one leader.
func (o *oracle) leads(n *life, id transport.GroupID, term uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n.dead.Load() {
		return
	}
	h := o.of(id)
	if was, ok := h.leaders[term]; ok && was != n.id {
		o.Fail("group %d: term %d is led by %s and by %s", id, term, was, n.id)
	}
	h.leaders[term] = n.id
	o.Note("%s leads group %d in term %d", n.id, id, term)
}

// answered takes the answer to a proposal. What a dead process says nobody hears.
func (o *oracle) answered(n *life, id transport.GroupID, text string, at any, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n.dead.Load() {
		return
	}
	h := o.of(id)
	switch {
	case err == nil:
		index, _ := at.(uint64)
		if was, ok := h.place[text]; !ok || was != index {
			o.Fail("group %d: %s is confirmed by %s at %d, applied at %d", id, text, n.id, index, was)
		}
		h.acked[text] = index
		n.w.report.acked.Add(1)
	case !errors.Is(err, group.ErrUnknown):
		if at, there := h.place[text]; there {
			o.Fail("group %d: %s was refused by %s (%v) and is applied at %d", id, text, n.id, err, at)
		}
		h.refused[text] = true
		n.w.report.refused.Add(1)
	default:
		n.w.report.unknown.Add(1)
	}
}

// confirmed records a confirm that came too soon.
func (o *oracle) confirmed(id transport.GroupID, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h := o.of(id); h.acked[text] == 0 {
		h.acked[text] = 0
	}
}

// verify compares a replica that has caught up with everything that was confirmed.
func (o *oracle) verify(n *life, id transport.GroupID, s state) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.of(id)
	last, count := h.entries[s.last].hash, h.base.count+uint64(len(h.entries))
	if s.last == h.base.last {
		last = h.base.hash
	}
	if s.last != h.newest || s.hash != last || s.count != count {
		o.Fail("group %d: %s has %d entries up to %d, hash %x; all together %d up to %d, hash %x",
			id, n.id, s.count, s.last, s.hash, count, h.newest, h.entries[h.newest].hash)
	}
	for text, at := range h.acked {
		if _, there := h.place[text]; !there || at != 0 && h.entries[at].id != text {
			o.Fail("group %d: %s was confirmed at %d and is lost", id, text, at)
		}
	}
}

// newest returns the last entry that anybody has applied.
func (o *oracle) newest(id transport.GroupID) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of(id).newest
}

// bytesAt returns what was applied at an index. It is not known of what a group has begun with.
func (o *oracle) bytesAt(id transport.GroupID, at uint64) (data []byte, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.of(id)
	return h.entries[at].data, at > h.base.last
}

// succeeds notes that a group is to go on from another one.
func (o *oracle) succeeds(id transport.GroupID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of(id).inherits = true
}

// begins notes what it has begun with.
func (o *oracle) begins(id transport.GroupID, s state) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.of(id)
	h.inherits, h.base, h.newest = false, s, s.last
}
