package fsm

import (
	"slices"
	"strings"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// tagRedrive is the tag of the commands of a redrive, which a byte tells apart.
const tagRedrive = 15

const (
	redriveStart = iota
	redriveStop
	redriveTake
)

// Bits of the flag byte of a redrive.
const (
	redriveDiscards = 1 << iota
	redriveStopped  // in a manifest only
	redriveOnlyRetried
	redriveNeverRetried
)

func appendRedriveCommand(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case StartRedrive:
		return appendSpec(append(dst, tagRedrive, redriveStart), &c.Spec, 0)
	case StopRedrive:
		return appendUint(append(dst, tagRedrive, redriveStop), c.Number)
	case TakeRedrive:
		dst = appendUint(append(dst, tagRedrive, redriveTake), c.Number)
		dst = appendUint(appendUint(dst, uint64(c.After)), uint64(c.Through))
		dst = appendPassed(dst, &c.Passed)
		dst = appendUint(dst, uint64(len(c.Items)))
		last := c.After
		for i := range c.Items {
			it := &c.Items[i]
			dst = appendInt(dst, int64(it.ID-last))
			dst = appendUint(dst, uint64(it.Attempt))
			dst = appendUint(dst, uint64(len(it.Targets)))
			for _, t := range it.Targets {
				dst = appendUint(dst, t)
			}
			last = it.ID
		}
	}
	return dst
}

func (r *reader) redriveCommand() Command {
	switch r.enum(redriveTake, "kind of redrive command") {
	case redriveStart:
		spec, flags := r.spec()
		if flags&redriveStopped != 0 {
			r.fail(ErrMalformed, "start of a stopped redrive")
		}
		return StartRedrive{spec}
	case redriveStop:
		return StopRedrive{r.uvarint()}
	}
	c := TakeRedrive{Number: r.uvarint(), After: queue.MessageID(r.uvarint()), Through: queue.MessageID(r.uvarint()), Passed: r.passed()}
	last := c.After
	for range r.count(3) {
		it := RedriveItem{ID: last + queue.MessageID(r.varint()), Attempt: r.uint32()}
		for range r.count(1) {
			it.Targets = append(it.Targets, r.uvarint())
		}
		if r.err != nil {
			return nil
		}
		c.Items = append(c.Items, it)
		last = it.ID
	}
	return c
}

func appendPassed(dst []byte, p *dlx.RedriveCounts) []byte {
	return appendUint(appendUint(appendUint(dst, p.NoOrigin), p.Missing), p.Busy)
}

func (r *reader) passed() dlx.RedriveCounts {
	return dlx.RedriveCounts{NoOrigin: r.uvarint(), Missing: r.uvarint(), Busy: r.uvarint()}
}

func appendSpec(dst []byte, s *dlx.RedriveSpec, flags byte) []byte {
	if s.Discard {
		flags |= redriveDiscards
	}
	switch s.Filter.Retried {
	case dlx.OnlyRetried:
		flags |= redriveOnlyRetried
	case dlx.NeverRetried:
		flags |= redriveNeverRetried
	}
	dst = append(dst, flags, byte(s.To))
	dst = appendString(appendUint(dst, s.Token), s.Queue)
	dst = appendUint(dst, uint64(s.Rate))
	f := &s.Filter
	dst = appendUint(dst, uint64(len(f.Reasons)))
	for _, reason := range f.Reasons {
		dst = append(dst, byte(reason))
	}
	dst = appendInt(appendInt(appendString(dst, f.Queue), f.DiedBefore), f.DiedAfter)
	dst = appendUint(dst, uint64(len(f.IDs)))
	last := uint64(0)
	for _, id := range f.IDs {
		dst = appendInt(dst, int64(id-last))
		last = id
	}
	dst = appendUint(dst, uint64(len(f.MessageIDs)))
	for _, id := range f.MessageIDs {
		dst = appendString(dst, id)
	}
	return appendString(appendString(dst, f.Header), f.HeaderValue)
}

func (r *reader) spec() (s dlx.RedriveSpec, flags byte) {
	flags = r.enum(redriveDiscards|redriveStopped|redriveOnlyRetried|redriveNeverRetried, "redrive flags")
	s.Discard = flags&redriveDiscards != 0
	s.To = dlx.RedriveTo(r.enum(byte(dlx.ToNamedQueue), "way of a redrive"))
	s.Token, s.Queue, s.Rate = r.uvarint(), r.string(), r.uint32()
	f := &s.Filter
	switch flags & (redriveOnlyRetried | redriveNeverRetried) {
	case 0:
	case redriveOnlyRetried:
		f.Retried = dlx.OnlyRetried
	case redriveNeverRetried:
		f.Retried = dlx.NeverRetried
	default:
		r.fail(ErrMalformed, "redrive flags")
	}
	for range r.count(1) {
		reason := dlx.Reason(r.byte())
		if !isDeath(reason) {
			r.fail(ErrMalformed, "reason in a filter")
		}
		f.Reasons = append(f.Reasons, reason)
	}
	f.Queue, f.DiedBefore, f.DiedAfter = r.string(), r.varint(), r.varint()
	last := uint64(0)
	for range r.count(1) {
		last += uint64(r.varint())
		f.IDs = append(f.IDs, last)
	}
	f.MessageIDs = r.strings()
	f.Header, f.HeaderValue = r.string(), r.string()
	return s, flags
}

// cloneSpec copies everything that shares the entry's bytes.
func cloneSpec(s *dlx.RedriveSpec) dlx.RedriveSpec {
	c := *s
	c.Queue = strings.Clone(c.Queue)
	f := &c.Filter
	f.Reasons, f.IDs = slices.Clone(f.Reasons), slices.Clone(f.IDs)
	f.Queue, f.Header, f.HeaderValue = strings.Clone(f.Queue), strings.Clone(f.Header), strings.Clone(f.HeaderValue)
	f.MessageIDs = slices.Clone(f.MessageIDs)
	for i, id := range f.MessageIDs {
		f.MessageIDs[i] = strings.Clone(id)
	}
	return c
}

// leavingRecord is a message that is leaving, in a manifest.
type leavingRecord struct {
	item OutboxID
	id   queue.MessageID
}

func (l *leaving) list() (list []leavingRecord) {
	for it, id := range l.items {
		list = append(list, leavingRecord{it, id})
	}
	slices.SortFunc(list, func(a, b leavingRecord) int {
		if a.item < b.item {
			return -1
		}
		return 1
	})
	return list
}

// appendRedriving writes the redrive's part of a manifest.
func appendRedriving(b []byte, r *dlx.Redriving, list []leavingRecord) []byte {
	var flags byte
	if r.Stopped {
		flags |= redriveStopped
	}
	b = appendUint(b, r.Number)
	b = appendSpec(b, &r.Spec, flags)
	b = appendInt(appendInt(b, r.StartedMillis), r.EndedMillis)
	b = appendUint(appendUint(b, uint64(r.Tail)), uint64(r.Cursor))
	b = appendPassed(b, &r.RedriveCounts)
	b = appendUint(appendUint(b, r.Moved), r.Returned)
	b = appendUint(b, uint64(len(list)))
	last := OutboxID(0)
	for _, x := range list {
		b = appendUint(appendUint(b, uint64(x.item-last)), uint64(x.id))
		last = x.item
	}
	return b
}

func (r *reader) redriving(m *Machine) {
	x := dlx.Redriving{Number: r.uvarint()}
	spec, flags := r.spec()
	x.Spec, x.Stopped = cloneSpec(&spec), flags&redriveStopped != 0
	x.StartedMillis, x.EndedMillis = r.varint(), r.varint()
	x.Tail, x.Cursor = queue.MessageID(r.uvarint()), queue.MessageID(r.uvarint())
	x.RedriveCounts = r.passed()
	x.Moved, x.Returned = r.uvarint(), r.uvarint()
	if x.Number == 0 || x.Cursor > x.Tail || x.EndedMillis < 0 {
		r.fail(ErrMalformed, "redrive")
	}
	m.redriving = x
	last := OutboxID(0)
	for range r.count(2) {
		item, id := last+OutboxID(r.uvarint()), queue.MessageID(r.uvarint())
		it, ok := m.outbox.Item(item)
		msg, live := m.queue.Get(id)
		if !ok || !live || item <= last || it.Reason != dlx.Redrive || it.Ref != msg.Ref || m.away(id) {
			r.fail(ErrMalformed, "message that is leaving")
			return
		}
		m.leaving.add(item, id)
		last = item
	}
	if m.closed && len(m.leaving.ids) > 0 {
		r.fail(ErrMalformed, "closed with messages that are leaving")
	}
	if (x.EndedMillis > 0) == (x.Searching() || len(m.leaving.ids) > 0) && !m.closed {
		r.fail(ErrMalformed, "end of a redrive")
	}
}
