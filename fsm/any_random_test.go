package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// wilder makes entries of everything that there is, as wild makes some of it; sequences of nodes and sources go on, are repeated or leave a gap.
type wilder struct {
	wild
	nodes   map[Origin]uint64
	sources map[Source]uint64
}

func (w *wilder) id() queue.MessageID {
	if live := w.live(); len(live) > 0 && w.n(5) > 0 {
		return live[w.n(len(live)-1)].ID
	}
	return queue.MessageID(w.n(int(min(w.m.Queue().Tail(), 1<<20)) + 2))
}

func (w *wilder) ranges() (list []queue.IDRange) {
	for range w.n(3) {
		first := w.id()
		list = append(list, queue.IDRange{First: first, Last: first + queue.MessageID(w.n(4))})
	}
	return list
}

func (w *wilder) runs() (list []Run) {
	for range 1 + w.n(1) {
		r := Run{First: w.id(), Count: uint32(w.n(3))}
		if x, ok := w.m.Queue().Get(r.First); ok && w.n(4) > 0 {
			r.Attempt = x.Attempt
		}
		list = append(list, r)
	}
	return list
}

func (w *wilder) dedup() (id queue.DedupID) {
	if w.n(1) == 0 {
		id[0] = byte(1 + w.n(5))
	}
	return id
}

func (w *wilder) publish() Publish {
	w.seq++
	body := fmt.Sprint("body ", w.seq)
	return Publish{
		TTLMillis: int64(w.n(6)) - 1, BodyBytes: uint32(len(body)), Message: EncodeMessage(nil, &Message{RoutingKeys: []string{"k"}, Body: []byte(body)}),
		Dedup: w.dedup(), Tell: w.n(2) == 0, Priority: uint8(w.n(3)), HasPriority: w.n(1) == 0,
	}
}

func (w *wilder) op() Op {
	switch w.n(9) {
	case 0:
		return Purge{w.id(), w.ranges()}
	case 1, 2:
		s := Settle{Kind: SettleKind(w.n(int(Recount))), Runs: w.runs()}
		if s.Kind == Discard && w.n(1) == 0 {
			s.Detail = "why"
		}
		return s
	case 3:
		return Cancel{w.id()}
	case 4:
		t := Tx{Verdict: Verdict(w.n(8)), Ops: []Op{w.publish(), Settle{Kind: SettleKind(w.n(int(Recount))), Runs: w.runs()}}}
		if t.Verdict > RefuseConsumers {
			t.Verdict = Accept
		}
		return Tx{Verdict: t.Verdict, Ops: t.Ops, Parts: []TxPart{{Targets: w.targets(), Part: w.part()}}}
	case 5:
		p := w.publish()
		p.Verdict = Verdict(w.n(int(RefuseConsumers)))
		return p
	}
	return w.publish()
}

func (w *wilder) part() []byte {
	if w.n(1) == 0 {
		return EncodePart(nil, w.publish())
	}
	return EncodePart(nil, Settle{Kind: SettleKind(w.n(int(Recount))), Runs: w.runs()})
}

// next is the first sequence of a run of n, mostly the one that follows.
func (w *wilder) next(last *uint64, n int) uint64 {
	first := *last + 1
	switch w.n(9) {
	case 0:
		return max(1, first-uint64(w.n(2)))
	case 1:
		return first + uint64(w.n(1))
	}
	*last += uint64(n)
	return first
}

func (w *wilder) stream() Stream {
	o := Origin{uint32(1 + w.n(1)), 1}
	if w.n(9) == 0 {
		o.Incarnation++
	}
	s := Stream{Origin: o}
	for range 1 + w.n(3) {
		s.Ops = append(s.Ops, w.op())
	}
	last := w.nodes[o]
	s.First = w.next(&last, len(s.Ops))
	w.nodes[o] = last
	s.AnsweredUpTo = last - min(last, uint64(w.n(4)))
	return s
}

func (w *wilder) transferIn() TransferIn {
	t := TransferIn{Source: Source{w.target(), 0}}
	for range w.n(3) {
		x := Transfer{Dedup: w.dedup(), Dead: w.n(1) == 0, HasTTL: w.n(1) == 0, TTLMillis: int64(w.n(9)), DelayMillis: int64(w.n(9))}
		switch w.n(4) {
		case 0:
			x = Transfer{Withdrawn: true}
		case 1:
			x = Transfer{Part: w.part()}
		default:
			p := w.publish()
			x.Message, x.BodyBytes = p.Message, p.BodyBytes
			if !x.HasTTL {
				x.TTLMillis = 0
			}
		}
		t.Items = append(t.Items, x)
	}
	last := w.sources[t.Source]
	t.First = w.next(&last, len(t.Items))
	w.sources[t.Source] = last
	t.AnsweredUpTo = last - min(last, uint64(w.n(4)))
	return t
}

func (w *wilder) settings() SetSettings {
	w.set++
	s := queue.Settings{
		MessageTTLMillis: int64(w.n(20)) - 1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: int64(w.n(3)) - 1, OutboxMax: -1, OutboxMaxBytes: -1,
		MaxPriority: uint8(w.n(3)), DeadLetter: w.n(4) > 0, DeadLetterExchange: fmt.Sprint("x", w.n(1)), StopTTL: w.n(1) == 0, MaxHops: int64(w.n(1)),
		DeadLetterOnRemoval: w.n(1) == 0, DeadLettersKeep: w.n(1) == 0, Delayed: w.n(3) == 0, Paused: w.n(3) == 0,
	}
	if w.n(1) == 0 {
		s.Dedup = queue.Dedup{WindowMillis: int64(1 + w.n(20)), Size: int64(1 + w.n(3))}
	}
	if w.n(1) == 0 {
		s.Retry = queue.RetryDelay{On: queue.RetryOn(1 + w.n(2)), MinMillis: 3, MaxMillis: 9, Factor: 1500, JitterPercent: 50}
	}
	return SetSettings{Revision: w.set - min(w.set, uint64(w.n(4)/4)), Name: "q", VHost: "v", Settings: s}
}

func (w *wilder) command() Command {
	switch w.n(14) {
	case 0, 1, 2, 3:
		return w.stream()
	case 4, 5:
		return w.transferIn()
	case 6:
		return DropHeads{w.ranges()}
	case 7:
		return w.settings()
	case 8:
		return Bury{w.id()}
	case 9:
		if w.n(20) == 0 {
			return Close{}
		}
		return Tenure{Origin{uint32(w.n(2)), 1}, uint64(w.n(2))}
	case 10:
		return Consumed{}
	}
	if c := w.wild.command(); c != nil {
		if _, ok := c.(Stream); ok {
			return w.stream() // its sequences are those of one node
		}
		if _, ok := c.(SetSettings); ok {
			return w.settings()
		}
		if _, ok := c.(Close); !ok {
			return c
		}
	}
	return Return{SettleKind(w.n(int(Recount))), w.runs()}
}

// TestEverythingAnyhow applies everything that there is in any order, by leaders that are deposed too, while the queue itself goes on in other lives: no
// replica stops, all numbers stay right, and one that is restored at any time stays the same and gives the same results.
func TestEverythingAnyhow(t *testing.T) {
	for seed := range uint64(150) {
		w := &wilder{wild: wild{r: rand.New(rand.NewPCG(seed, 11)), m: New(), rev: 5}, nodes: map[Origin]uint64{}, sources: map[Source]uint64{}}
		replica, life, session, now := New(), uint32(0), uint64(2), int64(0)
		for index := uint64(1); index <= 80; index++ {
			if w.n(60) == 0 {
				life++
				w.m.Succeed(life)
				replica.Succeed(life)
				w.m.check()
				clear(w.nodes)
				clear(w.sources)
			}
			w.rev = max(1, w.rev+uint64(w.n(2))-1)
			now += int64(w.n(4))
			if w.n(19) == 0 {
				session++
			}
			e := Entry{Session: session - uint64(w.n(19)/19), Ordinal: index, TimeMillis: max(0, now-int64(w.n(1))), CatalogRev: w.rev, MarkSelf: w.n(1) == 0, Mark: w.id()}
			for range 1 + w.n(4) {
				e.Commands = append(e.Commands, w.command())
			}
			data := EncodeEntry(nil, &e)
			res := w.m.Apply(index, data)
			if again := replica.Apply(index, data); !reflect.DeepEqual(res, again) {
				t.Fatalf("seed %d, entry %d: a restored replica gives another result:\n%+v\n%+v", seed, index, res, again)
			}
			w.m.check()
			snapshot := w.m.Snapshot()
			if !bytes.Equal(snapshot, replica.Snapshot()) {
				t.Fatalf("seed %d, entry %d: a restored replica differs", seed, index)
			}
			if !slices.Equal(w.m.Pins(), replica.Pins()) {
				t.Fatalf("seed %d, entry %d: a restored replica pins other entries", seed, index)
			}
			if w.n(2) == 0 {
				var err error
				if replica, err = Restore(snapshot); err != nil {
					t.Fatalf("seed %d, entry %d: %v", seed, index, err)
				}
			}
		}
	}
}
