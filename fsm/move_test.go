package fsm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// TestMoveNeitherLosesNorDuplicates runs the dead-letter move between a source and
// its targets over a network that loses, repeats, delays and reorders everything,
// with restarts from manifests, targets that are closed on the way, withdrawals, and
// settings that change. In the end every dead message has been taken by some target, by
// none twice, and each copy carries the dead-letter exchange that it was routed through.
func TestMoveNeitherLosesNorDuplicates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, taken: map[uint64]map[string]int{}, machines: map[uint64]*member{}, through: map[dlx.Leg]string{}}
		for id := uint64(1); id <= 4; id++ {
			w.machines[id] = &member{m: New(), log: map[uint64][]byte{}}
			w.taken[id] = map[string]int{}
		}
		w.settings("dlx")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step()
		}
		w.drain()
		w.verify()
	})
}

const sourceID = 1

// member is one queue with its log.
type member struct {
	m     *Machine
	index uint64
	log   map[uint64][]byte
}

// packet is something under way: a run of transfers to a target, or an answer.
type packet struct {
	target   uint64
	transfer *TransferIn
	answer   TransferResult
}

type world struct {
	t         *rapid.T
	machines  map[uint64]*member
	net       []packet
	published int
	died      []string
	// taken counts by target and body what the target enqueued from transfers.
	taken map[uint64]map[string]int
	// through is the exchange that was in force when a leg was given.
	through  map[dlx.Leg]string
	revision uint64
}

// settings sets the dead-letter exchange, none for "".
func (w *world) settings(exchange string) {
	w.revision++
	w.apply(sourceID, SetSettings{Revision: w.revision, Name: "source", Settings: queue.Settings{
		MessageTTLMillis: -1, DeliveryLimit: -1, DeadLetter: exchange != "", DeadLetterExchange: exchange,
	}})
}

// note records what the legs that are new were given under.
func (w *world) note() {
	m := w.machines[sourceID].m
	for it := range m.Outbox().View().All {
		for _, l := range it.Legs {
			if _, known := w.through[l]; !known {
				w.through[l] = m.OutboxSettings().DeadLetterExchange
			}
		}
	}
}

func (w *world) n(low, high int, what string) int { return rapid.IntRange(low, high).Draw(w.t, what) }

func (w *world) apply(id uint64, cmds ...Command) Result {
	x := w.machines[id]
	x.index++
	data := EncodeEntry(nil, &Entry{TimeMillis: int64(x.index), CatalogRev: 1, Commands: cmds})
	x.log[x.index] = data
	res := x.m.Apply(x.index, data)
	x.m.check()
	if id == sourceID {
		w.note()
	}
	return res
}

func (w *world) message(id uint64, ref queue.Ref) Message {
	m, err := DecodeMessage(w.machines[id].log[ref.Index][ref.Offset : ref.Offset+ref.Length])
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) step() {
	switch w.n(0, 13, "step") {
	case 12:
		w.apply(sourceID, Withdraw{uint64(w.n(1, 4, "target")), uint64(w.n(1, 9, "withdraw"))})
	case 13:
		w.settings([]string{"dlx", "dly", ""}[w.n(0, 2, "exchange")])
	case 0, 1:
		w.publishAndReject()
	case 2, 3:
		w.route()
	case 4, 5:
		w.send(uint64(w.n(1, 4, "target")))
	case 6, 7, 8:
		if len(w.net) > 0 {
			i := w.n(0, len(w.net)-1, "packet")
			w.deliver(w.net[i])
			if w.n(0, 2, "once") > 0 { // else it will come again
				w.net = slices.Delete(w.net, i, i+1)
			}
		}
	case 9:
		w.restart(uint64(w.n(1, 4, "restart")))
	case 10:
		if w.n(0, 2, "close") == 0 {
			w.apply(uint64(w.n(2, 4, "closed")), Close{})
		}
	case 11:
		if len(w.net) > 0 && w.n(0, 1, "lose") == 0 {
			w.net = w.net[:len(w.net)/2]
		}
	}
}

func (w *world) publishAndReject() {
	s := Stream{Origin: Origin{1, 1}}
	_, watermark, _ := w.machines[sourceID].m.Watermark(1)
	s.First = watermark + 1
	for range w.n(1, 4, "messages") {
		w.published++
		body := fmt.Sprintf("message %d", w.published)
		p := pub(body)
		s.Ops = append(s.Ops, p)
		w.died = append(w.died, body)
	}
	res := w.apply(sourceID, s)
	if !w.machines[sourceID].m.Settings().DeadLetter {
		w.settings("dlx")
	}
	cmds := []Command{Return{Discard, []Run{{res.Enqueued.First, uint32(len(s.Ops)), 0}}}}
	if w.n(0, 1, "plan") == 0 {
		p := Plan{Settings: max(1, w.revision-uint64(w.n(0, 1, "older"))), Targets: []uint64{uint64(w.n(1, 2, "target"))}}
		if w.n(0, 1, "two") == 0 {
			p.Targets = append(p.Targets, uint64(w.n(3, 4, "target")))
		}
		cmds = append([]Command{p}, cmds...)
	}
	w.apply(sourceID, cmds...)
}

// route gives unrouted items random targets, the source itself among them.
func (w *world) route() {
	var c Route
	for _, it := range w.machines[sourceID].m.Outbox().Unrouted(w.n(1, 5, "batch")) {
		r := Routed{Item: it.ID, NoRoute: ParkUnrouted}
		for range w.n(0, 3, "targets") {
			r.Targets = append(r.Targets, uint64(w.n(1, 4, "target")))
		}
		c.Items = append(c.Items, r)
	}
	w.apply(sourceID, c, Release{ParkUnrouted})
}

// send puts a run of pending transfers to a target on the network, from a random
// place: also such as have been taken long ago by a leader that does not know.
func (w *world) send(target uint64) {
	out := w.machines[sourceID].m.Outbox()
	pending := out.Pending(target, uint64(w.n(0, 5, "after")), w.n(1, 6, "window"))
	if len(pending) == 0 {
		return
	}
	w.transfer(target, pending, w.n(0, 4, "withdraw by another") == 0)
}

// transfer sends what is pending as a leader of this moment does, or asks all of it back.
func (w *world) transfer(target uint64, pending []dlx.Pending, back bool) {
	out := w.machines[sourceID].m.Outbox()
	run := &TransferIn{Source: Source{sourceID, 0}, First: pending[0].Seq}
	var mark uint64
	for _, x := range out.Targets() {
		if x.Queue == target {
			run.AnsweredUpTo, mark = x.Next-uint64(x.Pending)-1, x.Withdraw
		}
	}
	settings := w.machines[sourceID].m.OutboxSettings()
	for _, p := range pending {
		if back || p.Seq <= mark {
			run.Items = append(run.Items, Transfer{Withdrawn: true})
			continue
		}
		m := w.message(sourceID, p.Ref)
		dead, err := m.Dead(dlx.Dying{Queue: "source", Reason: p.Reason, TimeMillis: p.TimeMillis}, &settings)
		if err != nil {
			w.t.Fatal(err)
		}
		run.Items = append(run.Items, Transfer{Message: EncodeMessage(nil, &dead), BodyBytes: uint32(len(dead.Body))})
	}
	w.net = append(w.net, packet{target: target, transfer: run})
}

func (w *world) deliver(p packet) {
	if p.transfer == nil {
		switch {
		case p.answer.Gone:
			w.apply(sourceID, TargetGone{p.target, p.answer.UpTo, p.answer.Withdrawn})
		default:
			w.apply(sourceID, TransferDone{p.target, p.answer.UpTo, p.answer.Withdrawn})
		}
		return
	}
	res := w.apply(p.target, *p.transfer)
	for id := res.Enqueued.First; id <= res.Enqueued.Last; id++ {
		m, _ := w.machines[p.target].m.Queue().Get(id)
		w.taken[p.target][string(w.message(p.target, m.Ref).Body)]++
	}
	w.checkExchanges(p, res)
	if res.Transfers[0].Unknown {
		w.t.Fatalf("unknown source")
	}
	w.net = append(w.net, packet{target: p.target, answer: res.Transfers[0]})
}

// checkExchanges compares what came in with what was in force when it was routed.
func (w *world) checkExchanges(p packet, res Result) {
	byBody := map[string]dlx.Leg{}
	for i, it := range p.transfer.Items {
		if m, err := DecodeMessage(it.Message); err == nil {
			byBody[string(m.Body)] = dlx.Leg{Target: p.target, Seq: p.transfer.First + uint64(i)}
		}
	}
	for id := res.Enqueued.First; id <= res.Enqueued.Last; id++ {
		x, _ := w.machines[p.target].m.Queue().Get(id)
		m := w.message(p.target, x.Ref)
		if want := w.through[byBody[string(m.Body)]]; m.Exchange != want {
			w.t.Fatalf("%q came through %q, was routed through %q", m.Body, m.Exchange, want)
		}
	}
}

// restart replaces a machine by what its manifest gives.
func (w *world) restart(id uint64) {
	m, err := Restore(w.machines[id].m.Snapshot())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, pin := range m.Pins() {
		for index := pin.First; index <= pin.Last; index++ {
			if w.machines[id].log[index] == nil {
				w.t.Fatalf("entry %d is pinned and gone", index)
			}
		}
	}
	keep := map[uint64][]byte{}
	for _, pin := range m.Pins() {
		for index := pin.First; index <= pin.Last; index++ {
			keep[index] = w.machines[id].log[index]
		}
	}
	w.machines[id].m, w.machines[id].log = m, keep
}

// drain lets the network heal: everything still under way arrives in any order,
// then each leader sends what is pending until nothing is.
func (w *world) drain() {
	for len(w.net) > 0 {
		p := w.net[0]
		w.net = w.net[1:]
		w.deliver(p)
	}
	out := func() *dlx.Outbox { return w.machines[sourceID].m.Outbox() }
	for range 20 {
		w.apply(sourceID, Release{ParkUnrouted})
		var c Route
		for _, it := range out().Unrouted(1000) {
			c.Items = append(c.Items, Routed{Item: it.ID, Targets: []uint64{sourceID}})
		}
		w.apply(sourceID, c)
		for target := uint64(1); target <= 4; target++ {
			first := out().NextSeq(target)
			for _, x := range out().Targets() {
				if x.Queue == target {
					first -= uint64(x.Pending)
				}
			}
			pending := out().Pending(target, first-1, 1000)
			if len(pending) == 0 {
				continue
			}
			w.transfer(target, pending, false)
			for len(w.net) > 0 {
				p := w.net[0]
				w.net = w.net[1:]
				w.deliver(p)
			}
		}
	}
	if n := out().Len(); n > 0 {
		w.t.Fatalf("%d items never leave the outbox", n)
	}
}

func (w *world) verify() {
	where := map[string][]uint64{}
	for _, target := range slices.Sorted(maps.Keys(w.taken)) {
		for body, n := range w.taken[target] {
			if n > 1 {
				w.t.Fatalf("%q came to target %d %d times", body, target, n)
			}
			where[body] = append(where[body], target)
		}
	}
	for _, body := range w.died {
		if len(where[body]) == 0 {
			w.t.Fatalf("%q is lost", body)
		}
	}
	c := w.machines[sourceID].m.Counters()
	if c.Moved != uint64(len(w.died)) || c.DroppedTotal() != 0 {
		w.t.Fatalf("%d died, %d moved, %d dropped", len(w.died), c.Moved, c.DroppedTotal())
	}
	for _, x := range w.machines {
		if r, err := Restore(x.m.Snapshot()); err != nil || !bytes.Equal(r.Snapshot(), x.m.Snapshot()) {
			w.t.Fatalf("restore: %v", err)
		}
	}
}
