package fsm

import (
	"fmt"
	"slices"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// EncodePart encodes what a transaction does in another queue: a Publish with
// verdict Accept, or a Settle.
func EncodePart(dst []byte, op Op) []byte { return appendOp(dst, op) }

// DecodePart decodes what EncodePart wrote. The result shares part's bytes.
func DecodePart(part []byte) (Op, error) {
	r := reader{b: part}
	op := r.partOp()
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("decode part of a transaction: %w", err)
	}
	return op, nil
}

// partOp reads an operation that may be in a transaction.
func (r *reader) partOp() Op {
	if tag := r.byte(); tag != tagPublish && tag != tagSettle {
		r.fail(ErrMalformed, "operation in a transaction")
		return nil
	}
	r.pos--
	op := r.op()
	if p, ok := op.(Publish); ok && p.Verdict != Accept {
		r.fail(ErrMalformed, "verdict in a transaction")
	}
	return op
}

// part reads a part with its length, and checks that it decodes.
func (r *reader) part() []byte {
	b := r.bytes()
	if r.err == nil {
		if _, err := DecodePart(b); err != nil {
			r.fail(ErrMalformed, err.Error())
		}
	}
	return b
}

// appendTx writes the targets of all parts in front, where apply needs them.
func appendTx(dst []byte, t *Tx) []byte {
	dst = append(dst, tagTx, byte(t.Verdict))
	var targets []uint64
	for i := range t.Parts {
		targets = append(targets, t.Parts[i].Targets...)
	}
	slices.Sort(targets)
	targets = slices.Compact(targets)
	dst = appendUint(dst, uint64(len(targets)))
	for _, q := range targets {
		dst = appendUint(dst, q)
	}
	dst = appendUint(dst, uint64(len(t.Ops)))
	for _, op := range t.Ops {
		dst = appendOp(dst, op)
	}
	dst = appendUint(dst, uint64(len(t.Parts)))
	for i := range t.Parts {
		p := &t.Parts[i]
		dst = appendUint(dst, uint64(len(p.Targets)))
		for _, q := range p.Targets {
			place, _ := slices.BinarySearch(targets, q)
			dst = appendUint(dst, uint64(place))
		}
		dst = appendBytes(dst, p.Part)
	}
	return dst
}

func (r *reader) txHeader() (v Verdict, targets []uint64) {
	v = Verdict(r.enum(byte(RefuseConsumers), "verdict of a transaction"))
	for range r.count(1) {
		targets = append(targets, r.uvarint())
	}
	return v, targets
}

// txPart reads one part; targets are all of the transaction.
func (r *reader) txPart(targets []uint64) (p TxPart) {
	n := r.count(1)
	if n > len(targets) {
		r.fail(ErrMalformed, "targets of a part")
		return p
	}
	for least := uint64(0); len(p.Targets) < n; {
		i := r.uvarint()
		if i < least || i >= uint64(len(targets)) {
			r.fail(ErrMalformed, "target of a part")
			return p
		}
		p.Targets = append(p.Targets, targets[i])
		least = i + 1
	}
	p.Part = r.part()
	return p
}

func (r *reader) tx() Op {
	var t Tx
	var targets []uint64
	t.Verdict, targets = r.txHeader()
	for range r.count(2) {
		op := r.partOp()
		if r.err != nil {
			return nil
		}
		t.Ops = append(t.Ops, op)
	}
	for range r.count(2) {
		p := r.txPart(targets)
		if r.err != nil {
			return nil
		}
		t.Parts = append(t.Parts, p)
	}
	return t
}

// tx decodes and applies a transaction, or steps over it.
func (a *apply) tx() (OutcomeKind, uint64) {
	verdict, targets := a.r.txHeader()
	kind := a.txOutcome(verdict, targets)
	if a.r.err != nil {
		return Done, 0
	}
	for range a.r.count(2) {
		op := a.r.partOp()
		if a.r.err == nil && kind == Done {
			a.part(op)
		}
	}
	var last OutboxID
	for range a.r.count(2) {
		p := a.r.txPart(targets)
		if a.r.err != nil || kind != Done {
			continue
		}
		if id, ok := a.outbox.Relay(a.ref(p.Part), bodyBytes(p.Part), a.time, p.Targets); ok {
			last = id
			a.counters.Relayed++
			a.reclaimable -= int64(len(p.Part))
			a.changed(true)
		}
	}
	if last > 0 {
		return Relayed, uint64(last)
	}
	return kind, 0
}

// txOutcome says whether a transaction is refused.
func (a *apply) txOutcome(v Verdict, targets []uint64) OutcomeKind {
	unknown := a.e.CatalogRev < a.floor && slices.ContainsFunc(targets, func(t uint64) bool {
		known, _ := a.outbox.Known(t)
		return !known
	})
	switch {
	case a.closed:
		return Gone
	case v == RefuseFull || v == RefuseFullDLX:
		return RefusedFull
	case v == RefuseOutbox:
		return RefusedOutbox
	case v == RefuseConsumers:
		return RefusedConsumers
	case unknown:
		return RefusedCatalog
	}
	return Done
}

// part does what a transaction does in this queue; the operation was just decoded.
func (a *apply) part(op Op) {
	switch op := op.(type) {
	case Publish:
		a.publish(&op)
	case Settle:
		a.settleInTx(op.Kind, op.Runs)
	}
}

// settleInTx settles by message. One that came back and is somebody else's now has been
// dealt with all the same; it is not returned a second time.
func (a *apply) settleInTx(kind SettleKind, runs []Run) {
	if kind != Ack && kind != Discard {
		a.settle(kind, runs, "")
		return
	}
	for _, run := range runs {
		if run.Count > 0 {
			a.eachLive([]queue.IDRange{run.ids()}, func(m queue.Message) { a.settleOne(kind, m, "") })
		}
	}
}

// transferredPart does a part of another queue's transaction; it was just decoded.
func (a *apply) transferredPart(part []byte) {
	if op, err := DecodePart(part); err == nil { // else it would not have been decoded
		a.part(op)
	}
}

// bodyBytes is what a part counts in the outbox.
func bodyBytes(part []byte) uint32 {
	if op, err := DecodePart(part); err == nil {
		if p, ok := op.(Publish); ok {
			return p.BodyBytes
		}
	}
	return 0
}

// Part returns the bytes of an outbox item that is a part of a transaction, from the
// payload of its entry.
func Part(entry []byte, it dlx.Pending) ([]byte, error) {
	end := uint64(it.Ref.Offset) + uint64(it.Ref.Length)
	if uint64(len(entry)) < end {
		return nil, fmt.Errorf("entry %d has %d bytes, the part ends at %d", it.Ref.Index, len(entry), end)
	}
	return entry[it.Ref.Offset:end], nil
}
