package fsm

import (
	"fmt"
	"math"
	"strings"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// manifestVersion is the first byte of a manifest.
const manifestVersion = 1

// Bits of a manifest's flag byte.
const (
	manifestClosed = 1 << iota
	manifestSettings
	manifestConsumed
	manifestDelays
	manifestTenure
	manifestWay
)

// manifestMore says that a second byte of flags follows.
const (
	manifestRedrive = 64
	manifestMore    = 128
)

// Bits of the second one.
const (
	manifestDedup     = 1 << iota
	manifestCancelled // of level 2
)

// encode writes the manifest. The format is described in docs/formats/manifest.md.
func (c *capture) encode() []byte {
	m := &c.fields
	var flags byte
	if m.closed {
		flags |= manifestClosed
	}
	if m.settingsSet {
		flags |= manifestSettings
	}
	if m.consumed {
		flags |= manifestConsumed
	}
	queue.SortDelays(c.delays)
	if len(c.delays) > 0 {
		flags |= manifestDelays
	}
	if m.tenure != (Tenure{}) {
		flags |= manifestTenure
	}
	if m.way != wayOf(&m.settings) {
		flags |= manifestWay
	}
	if m.redriving.Number > 0 {
		flags |= manifestRedrive
	}
	var more byte
	if c.dedup.Len() > 0 {
		more |= manifestDedup
	}
	if len(m.cancelled) > 0 {
		more |= manifestCancelled
	}
	if more != 0 {
		flags |= manifestMore
	}
	b := append(make([]byte, 0, 1024+c.live.Len()/16+24*c.out.Len()+18*c.dedup.Len()), manifestVersion, flags)
	if more != 0 {
		b = append(b, more)
	}
	b = appendUint(b, m.index)
	b = appendUint(b, m.session)
	b = appendInt(b, m.time)
	b = appendUint(b, m.catalogRev)
	b = appendUint(b, uint64(m.mark))
	b = appendUint(b, m.floor)
	b = appendUint(b, m.settingsRev)
	b = appendString(appendString(b, m.name), m.vhost)
	b = appendSettings(b, &m.settings)
	for _, v := range m.counters.list() {
		b = appendUint(b, *v)
	}
	b = appendUint(b, uint64(c.live.Tail()))
	b = appendUint(b, uint64(c.live.Len()))
	b = appendMessages(b, c.live)
	b = appendOutbox(b, c.out, c.undecided)
	b = appendUint(b, uint64(len(c.streams)))
	for i := range c.streams {
		b = appendStreamRecord(b, &c.streams[i])
	}
	b = appendUint(b, uint64(len(c.sources)))
	for i := range c.sources {
		b = appendSourceRecord(b, &c.sources[i])
	}
	b = appendDelays(b, c.delays)
	if m.tenure != (Tenure{}) {
		b = appendTenure(b, m.tenure)
	}
	if flags&manifestWay != 0 {
		b = appendString(appendString(appendBool(b, m.way.keySet), m.way.exchange), m.way.key)
	}
	if flags&manifestRedrive != 0 {
		b = appendRedriving(b, &m.redriving, c.leaving)
	}
	if more&manifestDedup != 0 {
		b = appendWindow(b, c.dedup)
	}
	if more&manifestCancelled != 0 {
		b = appendCancelled(b, m.cancelled)
	}
	return b
}

// list names every counter in the order of the manifest.
func (c *Counters) list() []*uint64 {
	l := []*uint64{&c.Published, &c.Transferred, &c.Refused, &c.RefusedDead, &c.Acked, &c.Purged, &c.Closed, &c.Moved, &c.Relayed, &c.Redriven, &c.Duplicates, &c.Forgotten, &c.Stayed}
	for i := range c.Died {
		l = append(l, &c.Died[i])
	}
	for i := range c.Dropped {
		for k := range c.Dropped[i] {
			l = append(l, &c.Dropped[i][k])
		}
	}
	return l
}

func appendDelays(b []byte, delays []queue.Delay) []byte {
	if len(delays) == 0 {
		return b
	}
	b = appendUint(b, uint64(len(delays)))
	var p queue.Delay
	for _, d := range delays {
		b = appendUint(b, uint64(d.ID-p.ID))
		b = appendInt(b, d.Until-p.Until)
		p = d
	}
	return b
}

func appendStreamRecord(b []byte, s *streamRecord) []byte {
	b = appendUint(b, uint64(s.node))
	b = appendUint(b, s.incarnation)
	b = appendUint(b, s.watermark)
	b = appendUint(b, s.answered)
	b = appendUint(b, uint64(len(s.outcomes)))
	last := s.answered
	for _, o := range s.outcomes {
		b = appendUint(b, o.Seq-last)
		b = append(b, byte(o.Kind))
		b = appendUint(b, o.Count)
		last = o.Seq
	}
	return b
}

func appendSourceRecord(b []byte, s *sourceRecord) []byte {
	b = appendSource(b, s.key)
	b = appendUint(b, s.watermark)
	b = appendUint(b, s.answered)
	b = appendUint(b, uint64(len(s.withdrawn)))
	last := s.answered
	for _, seq := range s.withdrawn {
		b = appendUint(b, seq-last)
		last = seq
	}
	return b
}

// Bits of an outbox item's flag byte; reason in the low bits.
const (
	itemReason     = 0x07
	itemStateShift = 3
	itemState      = 0x03 << itemStateShift
	itemTaken      = 0x20
	itemAnew       = 0x40
	itemMore       = 0x80 // a second flag byte follows
)

// Bits of the second one.
const (
	itemUndecided = 0x01
	itemDetail    = 0x02 // of level 2
)

// appendOutbox writes the outbox; undecided are items whose messages may stay, by item.
func appendOutbox(b []byte, out dlx.Frozen, undecided []leavingRecord) []byte {
	b = appendUint(b, uint64(out.Last()))
	b = appendUint(b, uint64(len(out.Targets())))
	for _, t := range out.Targets() {
		b = appendUint(b, t.Queue)
		b = appendUint(b, t.Next)
		b = appendUint(b, uint64(t.Pending))
		b = appendGone(b, &t)
		b = appendUint(b, t.Withdraw)
	}
	b = appendUint(b, uint64(out.Len()))
	var p dlx.Item
	for it := range out.All {
		flags := byte(it.Reason) | byte(it.State)<<itemStateShift
		if len(it.Taken) > 0 {
			flags |= itemTaken
		}
		if it.Anew {
			flags |= itemAnew
		}
		mayStay := len(undecided) > 0 && undecided[0].item == it.ID
		var more byte
		if mayStay {
			more |= itemUndecided
		}
		if it.Detail != "" {
			more |= itemDetail
		}
		if more != 0 {
			b = append(b, flags|itemMore, more)
		} else {
			b = append(b, flags)
		}
		if mayStay {
			b = appendUint(b, uint64(undecided[0].id))
			undecided = undecided[1:]
		}
		if it.Detail != "" {
			b = appendString(b, it.Detail)
		}
		b = appendUint(b, uint64(it.ID-p.ID))
		b = appendInt(b, int64(it.Ref.Index-p.Ref.Index))
		b = appendUint(b, uint64(it.Ref.Offset))
		b = appendUint(b, uint64(it.Ref.Length))
		b = appendUint(b, uint64(it.BodyBytes))
		b = appendInt(b, it.TimeMillis-p.TimeMillis)
		b = appendUint(b, uint64(len(it.Legs)))
		for _, l := range it.Legs {
			b = appendUint(appendUint(b, l.Target), l.Seq)
		}
		if len(it.Taken) > 0 {
			b = appendAscending(b, it.Taken)
		}
		p = it
	}
	return b
}

// goneMoved is what stands in place of a target's flag "gone" if another queue goes on in its place; its id follows.
const goneMoved = 2

func appendGone(b []byte, t *dlx.Target) []byte {
	if t.To == 0 {
		return appendBool(b, t.Gone)
	}
	return appendUint(append(b, goneMoved), t.To)
}

func (r *reader) gone(t *dlx.Target) {
	how := r.enum(goneMoved, "end of a target")
	if t.Gone = how > 0; how < goneMoved {
		return
	}
	if t.To = r.uvarint(); t.To <= t.Queue {
		r.fail(ErrMalformed, "target that goes on as another")
	}
}

// restoreMessagesMax bounds what a manifest may hold. Repeats make a short
// manifest stand for many messages.
const restoreMessagesMax = 1 << 32

// Restore builds the machine that a manifest describes. Damaged input gives an
// error, never a panic. The machine keeps no part of manifest.
func Restore(manifest []byte) (*Machine, error) {
	m, err := restore(manifest, restoreMessagesMax)
	if err != nil {
		return nil, fmt.Errorf("restore manifest of %d bytes: %w", len(manifest), err)
	}
	return m, nil
}

func restore(manifest []byte, messagesMax uint64) (*Machine, error) {
	r := reader{b: manifest}
	if v := r.byte(); r.err == nil && v != manifestVersion {
		return nil, fmt.Errorf("%w %d", ErrVersion, v)
	}
	m := New()
	flags := r.enum(manifestClosed|manifestSettings|manifestConsumed|manifestDelays|manifestTenure|manifestWay|manifestRedrive|manifestMore, "manifest flags")
	var more byte
	if flags&manifestMore != 0 {
		if more = r.enum(manifestDedup|manifestCancelled, "more manifest flags"); more == 0 {
			r.fail(ErrMalformed, "more manifest flags")
		}
	}
	m.closed, m.settingsSet = flags&manifestClosed != 0, flags&manifestSettings != 0
	m.consumed = flags&manifestConsumed != 0
	m.index = r.uvarint()
	m.session = r.uvarint()
	m.time = r.varint()
	m.catalogRev = r.uvarint()
	m.mark = queue.MessageID(r.uvarint())
	m.floor = r.uvarint()
	m.settingsRev = r.uvarint()
	m.name, m.vhost = strings.Clone(r.string()), strings.Clone(r.string())
	m.settings = r.settings()
	m.settings.DeadLetterExchange = strings.Clone(m.settings.DeadLetterExchange)
	m.settings.DeadLetterRoutingKey = strings.Clone(m.settings.DeadLetterRoutingKey)
	m.way = wayOf(&m.settings)
	for _, v := range m.counters.list() {
		*v = r.uvarint()
	}
	if m.time < 0 {
		r.fail(ErrMalformed, "negative time")
	}
	r.messages(m, messagesMax)
	r.outbox(m)
	r.streamRecords(m)
	r.sourceRecords(m)
	if flags&manifestDelays != 0 {
		r.delays(m)
	}
	if flags&manifestTenure != 0 {
		if m.tenure = r.tenure(); m.tenure == (Tenure{}) {
			r.fail(ErrMalformed, "empty tenure")
		}
	}
	if flags&manifestWay != 0 {
		m.way = deadWay{true, r.bool(), strings.Clone(r.string()), strings.Clone(r.string())}
		if m.settings.DeadLetter {
			r.fail(ErrMalformed, "way of dead letters")
		}
	}
	if flags&manifestRedrive != 0 {
		r.redriving(m)
	}
	if more&manifestDedup != 0 {
		r.window(m)
	}
	if more&manifestCancelled != 0 {
		r.cancelled(m)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return m, nil
}

func (r *reader) delays(m *Machine) {
	var d queue.Delay
	for range r.count(2) {
		d.ID += queue.MessageID(r.uvarint())
		d.Until += r.varint()
		if x, ok := m.queue.Get(d.ID); !ok || x.Attempt == 0 || d.Until <= m.time || m.delays.Until(d.ID) != 0 {
			r.fail(ErrMalformed, "delay")
			return
		}
		m.delays.Set(d.ID, d.Until)
	}
}

func (r *reader) outbox(m *Machine) {
	last := dlx.ItemID(r.uvarint())
	var targets []dlx.Target
	for range r.count(5) {
		t := dlx.Target{Queue: r.uvarint(), Next: r.uvarint()}
		pending := r.uvarint()
		if pending > math.MaxInt32 {
			r.fail(ErrMalformed, "pending items")
		}
		t.Pending = int(pending)
		r.gone(&t)
		t.Withdraw = r.uvarint()
		if t.Gone && t.Pending > 0 || len(targets) > 0 && targets[len(targets)-1].Queue >= t.Queue {
			r.fail(ErrMalformed, "target")
		}
		targets = append(targets, t)
	}
	n := r.count(8)
	box, err := dlx.Restore(last, targets, func(yield func(dlx.Item) bool) {
		var p dlx.Item
		for range n {
			var place queue.MessageID
			p, place = r.item(&p, m.index)
			if place > 0 {
				r.undecided(m, &p, place)
			}
			if r.err != nil || !yield(p) {
				return
			}
		}
	})
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	m.outbox = box
}

// undecided notes that the message of an item is at its place yet.
func (r *reader) undecided(m *Machine, it *dlx.Item, id queue.MessageID) {
	msg, live := m.queue.Get(id)
	if !live || m.closed || it.Reason != dlx.Expired || it.State != dlx.Unrouted || len(it.Taken) > 0 ||
		it.Ref != msg.Ref || msg.ExpiresAt != 0 || m.undecided.has(id) {
		r.fail(ErrMalformed, "expired message that may stay")
		return
	}
	m.undecided.add(it.ID, id)
}

// item reads the outbox item after p. place is where its message is yet, 0 for nowhere.
func (r *reader) item(p *dlx.Item, indexMax uint64) (it dlx.Item, place queue.MessageID) {
	flags := r.byte()
	if flags&itemMore != 0 {
		more := r.byte()
		if more == 0 || more&^(itemUndecided|itemDetail) != 0 {
			r.fail(ErrMalformed, "flags of an outbox item")
		}
		if more&itemUndecided != 0 {
			if place = queue.MessageID(r.uvarint()); place == 0 {
				r.fail(ErrMalformed, "place of an outbox item")
			}
		}
		if more&itemDetail != 0 {
			it.Detail = strings.Clone(r.detail())
		}
	}
	it.Reason = dlx.Reason(flags & itemReason)
	it.State = dlx.State(flags & itemState >> itemStateShift)
	it.Anew = flags&itemAnew != 0
	it.ID = p.ID + dlx.ItemID(r.uvarint())
	it.Ref.Index = p.Ref.Index + uint64(r.varint())
	it.Ref.Offset, it.Ref.Length = r.uint32(), r.uint32()
	it.BodyBytes = r.uint32()
	it.TimeMillis = p.TimeMillis + r.varint()
	for range r.count(2) {
		l := dlx.Leg{Target: r.uvarint(), Seq: r.uvarint()}
		it.Legs = append(it.Legs, l)
	}
	if flags&itemTaken != 0 {
		if it.Taken = r.ascending(); len(it.Taken) == 0 {
			r.fail(ErrMalformed, "targets that have taken an item")
		}
	}
	if it.Reason < dlx.Rejected || it.Reason > dlx.Redrive || (it.Reason == dlx.Transaction || it.Reason == dlx.Redrive) && it.State != dlx.Routed || flags&^(itemReason|itemState|itemTaken|itemAnew|itemMore) != 0 ||
		it.ID <= p.ID || it.Ref.Index > indexMax || it.Detail != "" && it.Reason != dlx.Rejected {
		r.fail(ErrMalformed, "outbox item")
	}
	return it, place
}

func (r *reader) streamRecords(m *Machine) {
	last := -1
	for range r.count(5) {
		node := r.uint32()
		s := &stream{incarnation: r.uvarint(), watermark: r.uvarint(), answered: r.uvarint()}
		seq := s.answered
		for range r.count(3) {
			o := Outcome{Seq: seq + r.uvarint(), Kind: OutcomeKind(r.byte()), Count: r.uvarint()}
			if o.Seq <= seq || o.Seq > s.watermark || o.Kind == Done || o.Kind > Cancelled {
				r.fail(ErrMalformed, "outcome")
				return
			}
			s.outcomes = append(s.outcomes, o)
			seq = o.Seq
		}
		if int(node) <= last || s.answered > s.watermark {
			r.fail(ErrMalformed, "stream")
			return
		}
		last = int(node)
		m.streams[node] = s
	}
}

func (r *reader) sourceRecords(m *Machine) {
	var last *Source
	for range r.count(5) {
		key := r.source()
		s := &source{watermark: r.uvarint(), answered: r.uvarint()}
		seq := s.answered
		for range r.count(1) {
			w := seq + r.uvarint()
			if w <= seq || w > s.watermark {
				r.fail(ErrMalformed, "withdrawn sequence")
				return
			}
			s.withdrawn = append(s.withdrawn, w)
			seq = w
		}
		if last != nil && last.compare(key) >= 0 || s.answered > s.watermark {
			r.fail(ErrMalformed, "source")
			return
		}
		last = &key
		m.sources[key] = s
	}
}
