package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// wild makes random entries in which targets end and go on as other queues, sensible or not.
type wild struct {
	r   *rand.Rand
	m   *Machine
	rev uint64
	seq uint64
	set uint64
}

func (w *wild) n(most int) int { return w.r.IntN(most + 1) }

func (w *wild) target() uint64 { return 20 + uint64(w.n(6)) }

func (w *wild) targets() (list []uint64) {
	for range 1 + w.n(2) {
		list = append(list, w.target())
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// some names pending sequences of a target, or others, and some of them as withdrawn.
func (w *wild) some(target uint64) (upTo uint64, withdrawn []uint64) {
	done, _ := w.m.Outbox().Progress(target)
	upTo = done + uint64(w.n(4))
	for seq := max(1, done); seq <= upTo; seq++ {
		if w.n(3) == 0 {
			withdrawn = append(withdrawn, seq)
		}
	}
	return upTo, withdrawn
}

func (w *wild) live() (ids []queue.Message) {
	for x, ok := w.m.Queue().NextLive(0); ok; x, ok = w.m.Queue().NextLive(x.ID) {
		ids = append(ids, x)
	}
	return ids
}

func (w *wild) publishes() Stream {
	s := Stream{Origin: Origin{1, 1}, First: w.seq + 1}
	for range 1 + w.n(3) {
		w.seq++
		body := fmt.Sprint("body ", w.seq)
		p := Publish{TTLMillis: int64(w.n(4)) - 1, BodyBytes: uint32(len(body)), Message: EncodeMessage(nil, &Message{RoutingKeys: []string{"k"}, Body: []byte(body)})}
		if w.n(3) > 0 {
			s.Ops = append(s.Ops, p)
			continue
		}
		s.Ops = append(s.Ops, Tx{Parts: []TxPart{{Targets: w.targets(), Part: EncodePart(nil, p)}}})
	}
	return s
}

func (w *wild) command() Command {
	switch t := w.target(); w.n(15) {
	case 0, 1, 2:
		return w.publishes()
	case 3, 4:
		if live := w.live(); len(live) > 0 {
			x := live[w.n(len(live)-1)]
			return Return{SettleKind(w.n(int(Recount))), []Run{{x.ID, 1 + uint32(w.n(2)), x.Attempt}}}
		}
	case 5:
		return Expire{[]queue.IDRange{{First: 1, Last: w.m.Queue().Tail()}}}
	case 6, 7:
		var c Route
		for _, it := range w.m.Outbox().Unrouted(1 + w.n(4)) {
			d := Routed{Item: it.ID, Targets: w.targets()}
			if w.n(5) == 0 {
				d.Targets, d.NoRoute = nil, NoRoute(w.n(int(Stay)))
			}
			c.Items = append(c.Items, d)
		}
		return c
	case 8:
		upTo, withdrawn := w.some(t)
		return TransferDone{t, upTo, withdrawn}
	case 9:
		upTo, withdrawn := w.some(t)
		if w.n(2) > 0 {
			return Withdraw{t, upTo}
		}
		return TargetGone{t, upTo, withdrawn}
	case 10:
		upTo, withdrawn := w.some(t)
		return TargetMoved{t, upTo, withdrawn, t + 1 + uint64(w.n(3))}
	case 11:
		return ForgetSources{[]Source{{Queue: t}}}
	case 12:
		w.set++
		return SetSettings{Revision: w.set, Name: "q", VHost: "v", Settings: queue.Settings{
			MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: int64(w.n(2)), OutboxMax: -1, OutboxMaxBytes: -1,
			DeadLetter: w.n(4) > 0, DeadLetterExchange: fmt.Sprint("x", w.n(1)), StopTTL: w.n(1) == 0, DeadLetterOnRemoval: w.n(1) == 0,
		}}
	case 13:
		return w.redrive()
	case 14:
		if w.n(30) == 0 {
			return Close{}
		}
		return Plan{Settings: max(1, w.set), Automatic: w.n(1) == 0, Targets: w.targets()}
	}
	return Release{NoRoute(w.n(int(ParkCycle)))}
}

func (w *wild) redrive() Command {
	job := w.m.Redriving()
	switch {
	case !job.Searching() && w.n(1) == 0:
		return StartRedrive{dlx.RedriveSpec{To: dlx.ToNamedQueue, Queue: "other"}}
	case w.n(4) == 0:
		return StopRedrive{job.Number}
	}
	c := TakeRedrive{Number: job.Number, After: job.Cursor, Through: job.Cursor}
	for _, x := range w.live() {
		if x.ID > job.Cursor && len(c.Items) < 3 {
			c.Items, c.Through = append(c.Items, RedriveItem{x.ID, x.Attempt, w.targets()}), x.ID
		}
	}
	return c
}

// TestTargetsEndAnyhow has targets end, go on as other queues and be forgotten in any order, whatever is under way to them, and the queue itself go on: all
// numbers stay right, and a replica that is restored at any time stays the same.
func TestTargetsEndAnyhow(t *testing.T) {
	for seed := range uint64(300) {
		w := &wild{r: rand.New(rand.NewPCG(seed, 5)), m: New(), rev: 5}
		replica, life := New(), uint32(0)
		for index := uint64(1); index <= 60; index++ {
			if w.n(40) == 0 { // it loses most of its replicas itself
				life++
				w.m.Succeed(life)
				replica.Succeed(life)
				w.m.check()
				w.seq = 0
			}
			w.rev = max(1, w.rev+uint64(w.n(2))-1)
			e := Entry{Session: 1, Ordinal: index, TimeMillis: int64(index), CatalogRev: w.rev}
			for range 1 + w.n(3) {
				e.Commands = append(e.Commands, w.command())
			}
			data := EncodeEntry(nil, &e)
			w.m.Apply(index, data)
			replica.Apply(index, data)
			w.m.check()
			snapshot := w.m.Snapshot()
			if !bytes.Equal(snapshot, replica.Snapshot()) {
				t.Fatalf("seed %d, entry %d: a restored replica differs", seed, index)
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
