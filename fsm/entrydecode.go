package fsm

import (
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// header reads everything before an entry's commands and returns their number.
func (r *reader) header(e *Entry) int {
	if v := r.byte(); r.err == nil && v != entryVersion {
		r.fail(ErrVersion, fmt.Sprintf("entry version %d", v))
	}
	e.MarkSelf = r.bool()
	e.Session = r.uvarint()
	e.Ordinal = r.uvarint()
	e.TimeMillis = r.varint()
	e.CatalogRev = r.uvarint()
	e.Mark = queue.MessageID(r.uvarint())
	return r.count(1)
}

// DecodeEntry decodes what EncodeEntry wrote. The result shares data's bytes.
func DecodeEntry(data []byte) (Entry, error) {
	r := reader{b: data}
	var e Entry
	n := r.header(&e)
	for range n {
		c := r.command(r.byte())
		if r.err != nil {
			break
		}
		e.Commands = append(e.Commands, c)
	}
	if err := r.end(); err != nil {
		return Entry{}, fmt.Errorf("decode entry: %w", err)
	}
	return e, nil
}

// opsAtOnce bounds the room that is taken for operations before any of them was read.
const opsAtOnce = 1024

// command decodes the command with the given tag.
func (r *reader) command(tag byte) Command {
	switch tag {
	case tagStream:
		s, n := r.streamHeader()
		if n > 0 {
			s.Ops = make([]Op, 0, min(n, opsAtOnce))
		}
		for range n {
			op := r.op()
			if r.err != nil {
				return nil
			}
			s.Ops = append(s.Ops, op)
		}
		return s
	case tagReturn:
		return Return{r.settleKind(), r.runs()}
	case tagExpire:
		return Expire{r.ranges()}
	case tagDropHeads:
		return DropHeads{r.ranges()}
	case tagRoute:
		return r.route()
	case tagTransferIn:
		t, n := r.transferHeader()
		for range n {
			x := r.transfer()
			if r.err != nil {
				return nil
			}
			t.Items = append(t.Items, x)
		}
		return t
	case tagTransferDone:
		return TransferDone{Target: r.uvarint(), UpTo: r.uvarint()}
	case tagTargetGone:
		return TargetGone{Target: r.uvarint(), Watermark: r.uvarint()}
	case tagTargetMoved:
		return r.targetMoved()
	case tagWithdraw:
		return r.withdraw()
	case tagRelease:
		return Release{NoRoute(r.enum(byte(ParkCycle), "release"))}
	case tagForgetSources:
		n := r.count(2)
		var c ForgetSources
		for range n {
			c.Sources = append(c.Sources, r.source())
		}
		return c
	case tagSetSettings:
		return SetSettings{Revision: r.uvarint(), Name: r.string(), VHost: r.string(), Settings: r.settings()}
	case tagClose:
		return Close{}
	case tagConsumed:
		return Consumed{}
	case tagTenure:
		return r.tenure()
	case tagPlan:
		return r.plan()
	case tagBury:
		return Bury{queue.MessageID(r.uvarint())}
	case tagRedrive:
		return r.redriveCommand()
	}
	if r.err == nil {
		r.fail(ErrCommand, fmt.Sprintf("tag %d", tag))
	}
	return nil
}

func (r *reader) tenure() Tenure {
	return Tenure{Origin: Origin{r.uint32(), r.uvarint()}, Consumer: r.uvarint()}
}

// detail reads what a client said of why it rejected a message.
func (r *reader) detail() string {
	s := r.string()
	if r.err == nil && (s == "" || len(s) > dlx.DetailMax || !utf8.ValidString(s)) {
		r.fail(ErrMalformed, "text of a rejection")
	}
	return s
}

func (r *reader) streamHeader() (s Stream, ops int) {
	s.Origin = Origin{r.uint32(), r.uvarint()}
	s.First = r.uvarint()
	s.AnsweredUpTo = r.uvarint()
	return s, r.count(2)
}

func (r *reader) op() Op {
	switch tag := r.byte(); tag {
	case tagPublish:
		return r.publish()
	case tagSettle:
		return Settle{Kind: r.settleKind(), Runs: r.runs()}
	case tagReject:
		detail := r.detail()
		return Settle{Discard, r.runs(), detail}
	case tagPurge:
		return Purge{queue.MessageID(r.uvarint()), r.ranges()}
	case tagTx:
		return r.tx()
	case tagCancel:
		return Cancel{queue.MessageID(r.uvarint())}
	default:
		r.fail(ErrCommand, fmt.Sprintf("operation tag %d", tag))
		return nil
	}
}

func (r *reader) publish() Publish {
	p := Publish{TTLMillis: -1}
	flags := r.byte()
	p.Verdict, p.Immediate, p.Tell = Verdict(flags&flagVerdict), flags&flagImmediate != 0, flags&flagTell != 0
	if p.Verdict > RefuseConsumers || flags&^(flagVerdict|flagTTL|flagPriority|flagImmediate|flagTell|flagDedup) != 0 {
		r.fail(ErrMalformed, "publish flags")
	}
	if flags&flagTTL != 0 {
		ttl := r.uvarint()
		if ttl > math.MaxInt64 {
			r.fail(ErrMalformed, "time to live")
		}
		p.TTLMillis = int64(ttl)
	}
	if flags&flagPriority != 0 {
		p.Priority, p.HasPriority = r.byte(), true
	}
	if flags&flagDedup != 0 {
		p.Dedup = r.dedupID()
	}
	p.BodyBytes = r.uint32()
	p.Message = r.bytes()
	return p
}

func (r *reader) transferHeader() (t TransferIn, items int) {
	t.Source = r.source()
	t.First = r.uvarint()
	t.AnsweredUpTo = r.uvarint()
	return t, r.count(1)
}

func (r *reader) transfer() (t Transfer) {
	flags := r.byte()
	switch {
	case flags == flagWithdrawn:
		t.Withdrawn = true
		return t
	case flags == flagPart:
		t.Part = r.part()
		return t
	case flags&^(flagTTL|flagPriority|flagDelay|flagDead|flagDedup) != 0:
		r.fail(ErrMalformed, "transfer flags")
	}
	if flags&flagTTL != 0 {
		t.TTLMillis, t.HasTTL = r.millis("time to live"), true
	}
	if flags&flagPriority != 0 {
		t.Priority, t.HasPriority = r.byte(), true
	}
	if flags&flagDelay != 0 {
		if t.DelayMillis = r.millis("delay"); t.DelayMillis == 0 {
			r.fail(ErrMalformed, "delay of 0")
		}
	}
	if flags&flagDedup != 0 {
		t.Dedup = r.dedupID()
	}
	t.Dead = flags&flagDead != 0
	t.BodyBytes = r.uint32()
	t.Message = r.bytes()
	return t
}

// millis reads a duration in milliseconds.
func (r *reader) millis(what string) int64 {
	n := r.uvarint()
	if n > math.MaxInt64 {
		r.fail(ErrMalformed, what)
		return 0
	}
	return int64(n)
}

func (r *reader) source() Source { return Source{r.uvarint(), r.uint32()} }

func (r *reader) settleKind() SettleKind {
	return SettleKind(r.enum(byte(Recount), "kind of settlement"))
}

func (r *reader) runs() []Run {
	n := r.count(3)
	if n == 0 {
		return nil
	}
	runs := make([]Run, n)
	var next queue.MessageID
	for i := range runs {
		first := next + queue.MessageID(r.varint())
		runs[i] = Run{first, r.uint32(), r.uint32()}
		next = first + queue.MessageID(runs[i].Count)
	}
	return runs
}

func (r *reader) ranges() []queue.IDRange {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	ranges := make([]queue.IDRange, n)
	var last queue.MessageID
	for i := range ranges {
		first := last + queue.MessageID(r.varint())
		last = first + queue.MessageID(r.varint())
		ranges[i] = queue.IDRange{First: first, Last: last}
	}
	return ranges
}

func (r *reader) route() Route {
	var c Route
	for range r.count(3) {
		it := Routed{Item: OutboxID(r.uvarint()), NoRoute: NoRoute(r.enum(byte(Stay), "no-route"))}
		for range r.count(1) {
			it.Targets = append(it.Targets, r.uvarint())
		}
		c.Items = append(c.Items, it)
	}
	return c
}
