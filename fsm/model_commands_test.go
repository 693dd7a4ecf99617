package fsm

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/queue"
)

func (d *duel) n(low, high int, what string) int { return rapid.IntRange(low, high).Draw(d.t, what) }

func (d *duel) message() ([]byte, uint32) {
	body := fmt.Sprintf("<body %d>%s", d.n(0, 1000, "body"), "padding"[:d.n(0, 7, "padding")])
	return EncodeMessage(nil, &Message{Exchange: "exchange", RoutingKeys: []string{"k"}, Body: []byte(body)}), uint32(len(body))
}

// command draws what both sides apply next.
func (d *duel) command() Command {
	switch d.n(0, 20, "command") {
	case 20:
		return Withdraw{d.target(), uint64(d.n(0, 8, "withdraw"))}
	case 17, 18, 19:
		return d.redrive()
	case 0, 1, 2, 3, 4:
		return d.stream()
	case 5, 6:
		return d.transferIn()
	case 7:
		return Return{d.kind(), d.runs()}
	case 8, 9:
		return Expire{d.ids()}
	case 10:
		return DropHeads{d.ids()}
	case 11, 12:
		return d.route()
	case 13:
		upTo := uint64(d.n(0, 6, "done"))
		return TransferDone{d.target(), upTo, d.withdrawn(upTo)}
	case 14:
		return d.rare()
	case 15:
		return Release{NoRoute(d.n(0, int(ParkCycle), "release"))}
	default:
		return d.settings()
	}
}

// plan is mostly one for the present settings.
func (d *duel) plan() Plan {
	c := Plan{Settings: max(1, d.o.rev), Automatic: d.n(0, 2, "automatic") > 0}
	if d.n(0, 4, "other settings") == 0 {
		c.Settings = uint64(d.n(1, 8, "settings of the plan"))
	}
	for range d.n(1, 2, "targets of the plan") {
		c.Targets = append(c.Targets, d.target())
	}
	slices.Sort(c.Targets)
	c.Targets = slices.Compact(c.Targets)
	return c
}

// session is that of the leader, of a new one, or of a deposed one.
func (d *duel) session() uint64 {
	switch d.n(0, 15, "session") {
	case 0:
		return d.o.session + uint64(d.n(1, 2, "new session"))
	case 1:
		return d.o.session - min(d.o.session, uint64(d.n(1, 2, "old session")))
	}
	return d.o.session
}

func (d *duel) rare() Command {
	switch d.n(0, 10, "rare") {
	case 0:
		return Close{}
	case 6:
		return Bury{d.id()}
	case 5:
		return Consumed{}
	case 10:
		return Tenure{Origin{uint32(d.n(0, 2, "node")), 1}, uint64(d.n(0, 2, "consumer"))}
	case 1, 2, 3, 4:
		upTo := uint64(d.n(0, 6, "gone"))
		return TargetGone{d.target(), upTo, d.withdrawn(upTo)}
	default:
		return ForgetSources{[]Source{d.source()}}
	}
}

// withdrawn names some sequences up to upTo.
func (d *duel) withdrawn(upTo uint64) (list []uint64) {
	for seq := uint64(1); seq <= upTo; seq++ {
		if d.n(0, 3, "withdrawn") == 0 {
			list = append(list, seq)
		}
	}
	return list
}

func (d *duel) settings() Command {
	return SetSettings{Revision: uint64(d.n(0, 8, "settings")), Name: "q", VHost: "v", Settings: queue.Settings{
		MessageTTLMillis: int64(d.n(-1, 30, "ttl")), MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: int64(d.n(-1, 2, "limit")),
		MaxPriority: uint8(d.n(0, 4, "levels")), DefaultPriority: uint8(d.n(0, 2, "default")),
		DeadLetter: d.n(0, 2, "dead-letter") > 0, DeadLetterExchange: []string{"dlx", "dly"}[d.n(0, 1, "exchange")], OutboxMax: -1, Retry: d.retry(), Delayed: d.n(0, 4, "delayed") == 0, DeadLetterOnRemoval: d.n(0, 1, "on removal") == 0, Dedup: d.dedup(),
		StopTTL: d.n(0, 1, "stop ttl") == 0, MaxHops: int64(d.n(0, 1, "max hops")), DeadLettersKeep: d.n(0, 1, "keep") == 0, Paused: d.n(0, 1, "paused") == 0,
	}}
}

func (d *duel) retry() (r queue.RetryDelay) {
	if d.n(0, 1, "retry") == 0 {
		return r
	}
	r = queue.RetryDelay{On: queue.RetryOn(d.n(1, 3, "retry on")), MinMillis: int64(d.n(0, 20, "retry min")), JitterPercent: uint8(50 * d.n(0, 1, "jitter"))}
	r.MaxMillis = r.MinMillis * int64(d.n(1, 4, "retry max"))
	r.Factor = uint32(1500 * d.n(0, 1, "factor"))
	return r
}

func (d *duel) target() uint64 { return uint64(d.n(20, 23, "target")) }

func (d *duel) source() Source {
	return Source{uint64(d.n(20, 22, "source")), uint32(d.n(1, 2, "epoch"))}
}

func (d *duel) kind() SettleKind {
	return SettleKind(d.n(0, int(Recount), "kind"))
}

// ids names messages at random, most of them live.
func (d *duel) ids() (list []queue.IDRange) {
	if due := d.o.dueOrder(d.now); len(due) > 0 && d.n(0, 1, "due") == 1 {
		for _, id := range due {
			list = queue.AppendID(list, id)
		}
		return list
	}
	for range d.n(0, 3, "ranges") {
		first := d.id()
		list = append(list, queue.IDRange{First: first, Last: first + queue.MessageID(d.n(0, 5, "width")) - 1})
	}
	return list
}

func (d *duel) id() queue.MessageID {
	if n := len(d.o.live); n > 0 && d.n(0, 4, "live") > 0 {
		return d.o.live[d.n(0, n-1, "id")].ID
	}
	return queue.MessageID(d.n(0, int(d.o.tail)+2, "any id"))
}

func (d *duel) runs() (runs []Run) {
	for range d.n(0, 3, "runs") {
		r := Run{First: d.id(), Count: uint32(d.n(0, 4, "count"))}
		if m := d.o.get(r.First); m != nil && d.n(0, 5, "present attempt") > 0 {
			r.Attempt = m.Attempt
		} else {
			r.Attempt = uint32(d.n(0, 2, "attempt"))
		}
		runs = append(runs, r)
	}
	return runs
}

func (d *duel) stream() Command {
	s := Stream{Origin: Origin{uint32(d.n(1, 2, "node")), uint64(d.n(1, 2, "incarnation"))}}
	if x := d.o.streams[s.Origin.Node]; x != nil {
		if d.n(0, 4, "present incarnation") > 0 {
			s.Origin.Incarnation = x.incarnation
		}
		s.First = x.watermark
	}
	s.First = uint64(max(0, int(s.First)+1-d.n(-1, 3, "repeat")))
	s.AnsweredUpTo = uint64(max(0, int(s.First)-d.n(-2, 6, "answered")))
	for range d.n(0, 6, "ops") {
		switch d.n(0, 12, "op") {
		case 11, 12:
			s.Ops = append(s.Ops, d.cancel())
		case 10:
			s.Ops = append(s.Ops, d.tx())
		case 0:
			s.Ops = append(s.Ops, Purge{d.id(), d.ids()})
		case 1, 2, 3:
			settle := Settle{Kind: d.kind(), Runs: d.runs()}
			if settle.Kind == Discard {
				settle.Detail = []string{"", "no such customer"}[d.n(0, 1, "detail")]
			}
			s.Ops = append(s.Ops, settle)
		default:
			p := d.publish()
			if d.n(0, 4, "refuse") == 0 {
				p.Verdict = Verdict(d.n(0, int(RefuseConsumers), "verdict"))
			}
			s.Ops = append(s.Ops, p)
		}
	}
	return s
}

// cancel names a message, often one that was named before.
func (d *duel) cancel() Cancel {
	if n := len(d.o.cancelled); n > 0 && d.n(0, 2, "again") == 0 {
		return Cancel{d.o.cancelled[d.n(0, n-1, "which")]}
	}
	return Cancel{d.id()}
}

func (d *duel) publish() Publish {
	p := Publish{TTLMillis: -1, Tell: d.n(0, 3, "tell") == 0}
	p.Message, p.BodyBytes = d.message()
	if d.n(0, 2, "expiring") == 0 {
		p.TTLMillis = int64(d.n(0, 50, "ttl"))
	}
	if p.HasPriority = d.n(0, 2, "priority") == 0; p.HasPriority {
		p.Priority = uint8(d.n(0, 6, "priority"))
	}
	p.Dedup = d.dedupID()
	return p
}

// dedupID is one of a few ids, or none.
func (d *duel) dedupID() (id queue.DedupID) {
	id[5] = byte(max(0, d.n(-2, 5, "deduplication id")))
	return id
}

func (d *duel) dedup() (s queue.Dedup) {
	if d.n(0, 3, "deduplication") > 0 {
		s = queue.Dedup{WindowMillis: int64(d.n(1, 60, "window")), Size: int64(d.n(1, 6, "ids"))}
	}
	return s
}

// inTx is an operation of a transaction. Settlements differ from each other, so
// that a search finds each part.
func (d *duel) inTx() Op {
	if d.n(0, 1, "publish in tx") == 0 {
		return d.publish()
	}
	d.settles++
	return Settle{Kind: d.kind(), Runs: append(d.runs(), Run{First: queue.MessageID(1<<40 + d.settles), Count: 1, Attempt: 1 << 30})}
}

func (d *duel) tx() Tx {
	var t Tx
	if d.n(0, 5, "refuse tx") == 0 {
		t.Verdict = Verdict(d.n(0, int(RefuseConsumers), "verdict"))
	}
	for range d.n(0, 3, "ops of tx") {
		t.Ops = append(t.Ops, d.inTx())
	}
	for range d.n(0, 3, "parts") {
		p := TxPart{Part: EncodePart(nil, d.inTx())}
		for range d.n(1, 2, "targets") {
			if q := d.target(); !slices.Contains(p.Targets, q) {
				p.Targets = append(p.Targets, q)
			}
		}
		slices.Sort(p.Targets)
		t.Parts = append(t.Parts, p)
	}
	return t
}

func (d *duel) transferIn() Command {
	c := TransferIn{Source: d.source()}
	if x := d.o.sources[c.Source]; x != nil {
		c.First = x.watermark
	}
	c.First = uint64(max(0, int(c.First)+1-d.n(-1, 3, "repeat")))
	c.AnsweredUpTo = uint64(max(0, int(c.First)-d.n(-2, 6, "answered")))
	for range d.n(0, 4, "transfers") {
		x := Transfer{Withdrawn: d.n(0, 4, "withdrawn") == 0}
		if !x.Withdrawn && d.n(0, 3, "part") == 0 {
			x.Part = EncodePart(nil, d.inTx())
		} else if !x.Withdrawn {
			x.Message, x.BodyBytes = d.message()
			x.DelayMillis = int64(d.n(-20, 20, "delay"))
			x.DelayMillis = max(0, x.DelayMillis)
			x.Dead = d.n(0, 1, "dead") == 1
			if x.HasTTL = d.n(0, 2, "own ttl") == 0; x.HasTTL {
				x.TTLMillis = int64(d.n(0, 20, "ttl"))
			}
			x.Dedup = d.dedupID()
		}
		c.Items = append(c.Items, x)
	}
	return c
}

func (d *duel) route() Command {
	var c Route
	if d.n(0, 1, "under settings") == 1 {
		c.Settings = uint64(max(0, int(d.o.rev)-d.n(0, 1, "older")))
	}
	for _, it := range d.o.out {
		if d.n(0, 2, "route") == 0 {
			continue
		}
		r := Routed{Item: it.ID, NoRoute: NoRoute(d.n(0, int(Stay), "no-route"))}
		for range d.n(0, 3, "targets") {
			r.Targets = append(r.Targets, d.target())
		}
		c.Items = append(c.Items, r)
	}
	return c
}
