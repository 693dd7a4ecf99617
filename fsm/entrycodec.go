package fsm

import (
	"fmt"
	"math"

	"github.com/warrenmq/warren/queue"
)

// entryVersion is the first byte of an entry.
const entryVersion = 1

// Tags of commands and of a stream's operations.
const (
	tagStream = iota + 1
	tagReturn
	tagExpire
	tagDropHeads
	tagRoute
	tagTransferIn
	tagTransferDone
	tagTargetGone
	tagRelease
	tagForgetSources
	tagSetSettings
	tagClose
	tagConsumed
	tagWithdraw
)

// Tags that do not follow the ones above: those between belong to other work.
const tagTenure = 17

const (
	tagPublish = iota + 1
	tagSettle
	tagPurge
	tagTx
	tagReject // a settle that says why, of level 2
)

// Bits of the flag byte of a publish or transfer; the verdict is in the low bits.
const (
	flagVerdict   = 0x07
	flagTTL       = 0x08
	flagPriority  = 0x10
	flagWithdrawn = 0x20 // of a transfer
	flagImmediate = 0x20 // of a publish
	flagDelay     = 0x01 // of a transfer, which has no verdict
	flagDead      = 0x02 // of a transfer
	flagTell      = 0x40 // of a publish, of level 2
	flagPart      = 0x40 // a transfer that is a part of a transaction
	flagDedup     = 0x80
)

// publishOverhead bounds what an encoded publish adds to its message: tag, flags,
// time-to-live, priority, deduplication id, body size, length.
const publishOverhead = 1 + 1 + 10 + 1 + 16 + 5 + 5

// PublishSize bounds from above what p takes in an encoded entry.
func PublishSize(p *Publish) int { return publishOverhead + len(p.Message) }

// EncodeEntry appends the encoding of e to dst. The format is described in
// docs/formats/entry.md.
func EncodeEntry(dst []byte, e *Entry) []byte {
	dst = append(dst, entryVersion)
	dst = appendBool(dst, e.MarkSelf)
	dst = appendUint(dst, e.Session)
	dst = appendUint(dst, e.Ordinal)
	dst = appendInt(dst, e.TimeMillis)
	dst = appendUint(dst, e.CatalogRev)
	dst = appendUint(dst, uint64(e.Mark))
	dst = appendUint(dst, uint64(len(e.Commands)))
	for _, c := range e.Commands {
		dst = appendCommand(dst, c)
	}
	return dst
}

func appendCommand(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case Stream:
		return appendStream(dst, &c)
	case Return:
		dst = append(dst, tagReturn, byte(c.Kind))
		return appendRuns(dst, c.Runs)
	case Expire:
		return appendRanges(append(dst, tagExpire), c.IDs)
	case DropHeads:
		return appendRanges(append(dst, tagDropHeads), c.IDs)
	case Route:
		if c.Settings != 0 {
			dst = appendUint(append(dst, tagWithdraw, withdrawRoute), c.Settings)
			return appendRoute(dst, &c)
		}
		return appendRoute(append(dst, tagRoute), &c)
	case TransferIn:
		return appendTransferIn(dst, &c)
	case TransferDone:
		if len(c.Withdrawn) > 0 {
			return appendOutcome(dst, withdrawDone, c.Target, c.UpTo, c.Withdrawn)
		}
		dst = appendUint(append(dst, tagTransferDone), c.Target)
		return appendUint(dst, c.UpTo)
	case TargetGone:
		if len(c.Withdrawn) > 0 {
			return appendOutcome(dst, withdrawGone, c.Target, c.Watermark, c.Withdrawn)
		}
		dst = appendUint(append(dst, tagTargetGone), c.Target)
		return appendUint(dst, c.Watermark)
	case TargetMoved:
		return appendTargetMoved(dst, &c)
	case Withdraw:
		return appendUint(appendUint(append(dst, tagWithdraw, withdrawAsk), c.Target), c.UpTo)
	case Release:
		return append(dst, tagRelease, byte(c.Kind))
	case ForgetSources:
		dst = appendUint(append(dst, tagForgetSources), uint64(len(c.Sources)))
		for _, s := range c.Sources {
			dst = appendSource(dst, s)
		}
		return dst
	case SetSettings:
		dst = appendUint(append(dst, tagSetSettings), c.Revision)
		dst = appendString(appendString(dst, c.Name), c.VHost)
		return appendSettings(dst, &c.Settings)
	case Close:
		return append(dst, tagClose)
	case Consumed:
		return append(dst, tagConsumed)
	case Tenure:
		return appendTenure(append(dst, tagTenure), c)
	case Plan:
		return appendPlan(dst, &c)
	case Bury:
		return appendUint(append(dst, tagBury), uint64(c.UpTo))
	case StartRedrive, StopRedrive, TakeRedrive:
		return appendRedriveCommand(dst, c)
	}
	panic(fmt.Sprintf("fsm: encode entry: command of type %T", c))
}

func appendStream(dst []byte, s *Stream) []byte {
	dst = appendUint(append(dst, tagStream), uint64(s.Origin.Node))
	dst = appendUint(dst, s.Origin.Incarnation)
	dst = appendUint(dst, s.First)
	dst = appendUint(dst, s.AnsweredUpTo)
	dst = appendUint(dst, uint64(len(s.Ops)))
	for _, op := range s.Ops {
		dst = appendOp(dst, op)
	}
	return dst
}

func appendOp(dst []byte, op Op) []byte {
	switch op := op.(type) {
	case Publish:
		return appendPublish(dst, &op)
	case Settle:
		if op.Detail != "" {
			return appendRuns(appendString(append(dst, tagReject), op.Detail), op.Runs)
		}
		dst = append(dst, tagSettle, byte(op.Kind))
		return appendRuns(dst, op.Runs)
	case Purge:
		dst = appendUint(append(dst, tagPurge), uint64(op.UpTo))
		return appendRanges(dst, op.Except)
	case Tx:
		return appendTx(dst, &op)
	case Cancel:
		return appendUint(append(dst, tagCancel), uint64(op.ID))
	}
	panic(fmt.Sprintf("fsm: encode entry: operation of type %T", op))
}

// appendPublish writes the message last: apply finds its place from the end.
func appendPublish(dst []byte, p *Publish) []byte {
	flags := byte(p.Verdict) & flagVerdict
	if p.TTLMillis >= 0 {
		flags |= flagTTL
	}
	if p.HasPriority {
		flags |= flagPriority
	}
	if p.Immediate {
		flags |= flagImmediate
	}
	if p.Tell {
		flags |= flagTell
	}
	if p.Dedup != (queue.DedupID{}) {
		flags |= flagDedup
	}
	dst = append(dst, tagPublish, flags)
	if p.TTLMillis >= 0 {
		dst = appendUint(dst, uint64(p.TTLMillis))
	}
	if p.HasPriority {
		dst = append(dst, p.Priority)
	}
	if flags&flagDedup != 0 {
		dst = append(dst, p.Dedup[:]...)
	}
	dst = appendUint(dst, uint64(p.BodyBytes))
	return appendBytes(dst, p.Message)
}

func appendTransferIn(dst []byte, t *TransferIn) []byte {
	dst = appendSource(append(dst, tagTransferIn), t.Source)
	dst = appendUint(dst, t.First)
	dst = appendUint(dst, t.AnsweredUpTo)
	dst = appendUint(dst, uint64(len(t.Items)))
	for i := range t.Items {
		x := &t.Items[i]
		if x.Withdrawn {
			dst = append(dst, flagWithdrawn)
			continue
		}
		if x.Part != nil {
			dst = appendBytes(append(dst, flagPart), x.Part)
			continue
		}
		dst = appendTransferHead(dst, x)
		dst = appendUint(dst, uint64(x.BodyBytes))
		dst = appendBytes(dst, x.Message)
	}
	return dst
}

func appendTransferHead(dst []byte, x *Transfer) []byte {
	var flags byte
	if x.HasTTL {
		flags |= flagTTL
	}
	if x.HasPriority {
		flags |= flagPriority
	}
	if x.DelayMillis > 0 {
		flags |= flagDelay
	}
	if x.Dedup != (queue.DedupID{}) {
		flags |= flagDedup
	}
	if x.Dead {
		flags |= flagDead
	}
	dst = append(dst, flags)
	if x.HasTTL {
		dst = appendUint(dst, uint64(x.TTLMillis))
	}
	if x.HasPriority {
		dst = append(dst, x.Priority)
	}
	if x.DelayMillis > 0 {
		dst = appendUint(dst, uint64(x.DelayMillis))
	}
	if flags&flagDedup != 0 {
		dst = append(dst, x.Dedup[:]...)
	}
	return dst
}

func appendRoute(dst []byte, c *Route) []byte {
	dst = appendUint(dst, uint64(len(c.Items)))
	for i := range c.Items {
		it := &c.Items[i]
		dst = appendUint(dst, uint64(it.Item))
		dst = append(dst, byte(it.NoRoute))
		dst = appendUint(dst, uint64(len(it.Targets)))
		for _, t := range it.Targets {
			dst = appendUint(dst, t)
		}
	}
	return dst
}

// Kinds of the commands under tagWithdraw.
const (
	withdrawAsk   = iota // Withdraw
	withdrawDone         // TransferDone with withdrawn sequences
	withdrawGone         // TargetGone with withdrawn sequences
	withdrawRoute        // Route under settings
)

// appendOutcome writes each withdrawn sequence as the distance from the one before.
func appendOutcome(dst []byte, kind byte, target, upTo uint64, withdrawn []uint64) []byte {
	dst = appendUint(appendUint(append(dst, tagWithdraw, kind), target), upTo)
	return appendAscending(dst, withdrawn)
}

func appendAscending(dst []byte, list []uint64) []byte {
	dst = appendUint(dst, uint64(len(list)))
	last := uint64(0)
	for _, v := range list {
		dst = appendUint(dst, v-last)
		last = v
	}
	return dst
}

func (r *reader) ascending() (list []uint64) {
	last := uint64(0)
	for range r.count(1) {
		v := last + r.uvarint()
		if len(list) > 0 && v <= last {
			r.fail(ErrMalformed, "sequences that do not ascend")
			return nil
		}
		list = append(list, v)
		last = v
	}
	return list
}

// withdraw reads a command under tagWithdraw.
func (r *reader) withdraw() Command {
	switch kind := r.enum(withdrawRoute, "kind of withdrawal"); kind {
	case withdrawDone, withdrawGone:
		target, upTo, list := r.uvarint(), r.uvarint(), r.ascending()
		if r.err == nil && (len(list) == 0 || list[len(list)-1] > upTo) {
			r.fail(ErrMalformed, "withdrawn sequences")
		}
		if kind == withdrawGone {
			return TargetGone{target, upTo, list}
		}
		return TransferDone{target, upTo, list}
	case withdrawRoute:
		settings := r.uvarint()
		if settings == 0 {
			r.fail(ErrMalformed, "revision of settings")
		}
		c := r.route()
		c.Settings = settings
		return c
	}
	return Withdraw{r.uvarint(), r.uvarint()}
}

func appendTenure(dst []byte, t Tenure) []byte {
	dst = appendUint(dst, uint64(t.Origin.Node))
	return appendUint(appendUint(dst, t.Origin.Incarnation), t.Consumer)
}

func appendSource(dst []byte, s Source) []byte {
	return appendUint(appendUint(dst, s.Queue), uint64(s.Epoch))
}

// appendRuns writes each first id as the distance from the end of the run before.
func appendRuns(dst []byte, runs []Run) []byte {
	dst = appendUint(dst, uint64(len(runs)))
	var next queue.MessageID
	for _, r := range runs {
		dst = appendInt(dst, int64(r.First-next))
		dst = appendUint(dst, uint64(r.Count))
		dst = appendUint(dst, uint64(r.Attempt))
		next = r.First + queue.MessageID(r.Count)
	}
	return dst
}

// appendRanges writes each first id as the distance from the last id before.
func appendRanges(dst []byte, ranges []queue.IDRange) []byte {
	dst = appendUint(dst, uint64(len(ranges)))
	var last queue.MessageID
	for _, r := range ranges {
		dst = appendInt(dst, int64(r.First-last))
		dst = appendInt(dst, int64(r.Last-r.First))
		last = r.Last
	}
	return dst
}

// Bits of the flag byte of settings.
const (
	settingDeadLetter = 1 << iota
	settingKeySet
	settingAtLeastOnce
	settingRetry
	settingDelayed
	settingOnRemoval
	settingDeathTotal
	settingContinueHistory
)

// Bits of the second one.
const (
	settingDedup = 1 << iota
	settingStopTTL
	settingMaxHops
	settingDeadLettersKeep
	settingPaused
)

func appendSettings(dst []byte, s *queue.Settings) []byte {
	var flags byte
	if s.DeadLetter {
		flags |= settingDeadLetter
	}
	if s.DeadLetterKeySet {
		flags |= settingKeySet
	}
	if s.AtLeastOnce {
		flags |= settingAtLeastOnce
	}
	if s.Retry != (queue.RetryDelay{}) {
		flags |= settingRetry
	}
	if s.Delayed {
		flags |= settingDelayed
	}
	if s.DeadLetterOnRemoval {
		flags |= settingOnRemoval
	}
	if s.DeathTotal {
		flags |= settingDeathTotal
	}
	if s.ContinueHistory {
		flags |= settingContinueHistory
	}
	var more byte
	if s.Dedup.WindowMillis > 0 {
		more |= settingDedup
	}
	if s.StopTTL {
		more |= settingStopTTL
	}
	if s.MaxHops > 0 {
		more |= settingMaxHops
	}
	if s.DeadLettersKeep {
		more |= settingDeadLettersKeep
	}
	if s.Paused {
		more |= settingPaused
	}
	dst = append(dst, flags, more, byte(s.Overflow), s.MaxPriority, s.DefaultPriority)
	for _, v := range [...]int64{s.MessageTTLMillis, s.MaxLength, s.MaxLengthBytes, s.DeliveryLimit, s.OutboxMax, s.OutboxMaxBytes} {
		dst = appendInt(dst, v)
	}
	dst = appendString(appendString(dst, s.DeadLetterExchange), s.DeadLetterRoutingKey)
	if r := &s.Retry; flags&settingRetry != 0 {
		dst = append(dst, byte(r.On), r.JitterPercent)
		dst = appendInt(appendInt(dst, r.MinMillis), r.MaxMillis)
		dst = appendUint(dst, uint64(r.Factor))
	}
	if more&settingDedup != 0 {
		dst = appendDedup(dst, s.Dedup)
	}
	if s.MaxHops > 0 {
		dst = appendUint(dst, uint64(s.MaxHops))
	}
	return dst
}

func (r *reader) retryDelay() (d queue.RetryDelay) {
	d.On = queue.RetryOn(r.enum(byte(queue.RetryReturned), "retry type"))
	d.JitterPercent = r.enum(100, "retry jitter")
	d.MinMillis, d.MaxMillis = r.varint(), r.varint()
	factor := r.uvarint()
	if d.MinMillis < 0 || d.MaxMillis < 0 || max(d.MinMillis, d.MaxMillis) > queue.RetryMillisMax || factor > queue.RetryFactorMax {
		r.fail(ErrMalformed, "retry delay")
	}
	d.Factor = uint32(factor)
	return d
}

func (r *reader) settings() (s queue.Settings) {
	flags := r.enum(settingDeadLetter|settingKeySet|settingAtLeastOnce|settingRetry|settingDelayed|settingOnRemoval|settingDeathTotal|settingContinueHistory, "settings flags")
	more := r.enum(settingDedup|settingStopTTL|settingMaxHops|settingDeadLettersKeep|settingPaused, "more settings flags")
	s.StopTTL, s.DeadLettersKeep, s.Paused = more&settingStopTTL != 0, more&settingDeadLettersKeep != 0, more&settingPaused != 0
	s.DeadLetter = flags&settingDeadLetter != 0
	s.DeadLetterKeySet = flags&settingKeySet != 0
	s.AtLeastOnce = flags&settingAtLeastOnce != 0
	s.Delayed = flags&settingDelayed != 0
	s.DeadLetterOnRemoval = flags&settingOnRemoval != 0
	s.DeathTotal = flags&settingDeathTotal != 0
	s.ContinueHistory = flags&settingContinueHistory != 0
	s.Overflow = queue.Overflow(r.enum(byte(queue.RejectPublishDLX), "overflow"))
	s.MaxPriority, s.DefaultPriority = r.byte(), r.byte()
	for _, v := range [...]*int64{&s.MessageTTLMillis, &s.MaxLength, &s.MaxLengthBytes, &s.DeliveryLimit, &s.OutboxMax, &s.OutboxMaxBytes} {
		*v = r.varint()
	}
	s.DeadLetterExchange, s.DeadLetterRoutingKey = r.string(), r.string()
	if flags&settingRetry != 0 {
		s.Retry = r.retryDelay()
	}
	if more&settingDedup != 0 {
		s.Dedup = r.dedup()
	}
	if more&settingMaxHops != 0 {
		hops := r.uvarint()
		if hops == 0 || hops > math.MaxInt64 {
			r.fail(ErrMalformed, "most hops")
		}
		s.MaxHops = int64(hops)
	}
	return s
}
