package leader

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// expiring publishes a message with a time to live, and one with none.
func (w *world) expiring(n *modelNode) {
	short, none := pub("a while"), pub("at once")
	short.TTLMillis, none.TTLMillis = 20, 0
	w.send(n, short, none)
}

// purge empties the queue of what nobody holds.
func (w *world) purge(n *modelNode) { w.send(n, fsm.Purge{}) }

// get asks for one message. What is asked may be lost: the client's node would ask again.
func (w *world) get(n *modelNode) {
	w.receive(n, &wire.Get{Queue: 7, Origin: n.Origin, Req: 1, After: n.answered})
}

func (w *world) got(n *modelNode, m *wire.Got) {
	switch {
	case !m.Found:
	case w.valid(n, m.Session, m.Resync):
		w.delivered(n, []wire.Item{m.Item})
	default:
		w.calm = false
		w.resync(n, 0)
	}
}

// redrive begins one that drops messages or sends them to a queue, or decides on the next ones.
func (w *world) redrive(*modelNode) {
	spec := dlx.RedriveSpec{To: dlx.ToNamedQueue, Queue: "target"}
	if rapid.Bool().Draw(w.t, "drops") {
		spec = dlx.RedriveSpec{Discard: true}
	}
	var c fsm.Command = fsm.StartRedrive{Spec: spec}
	w.l.replica.View(func(m *fsm.Machine) {
		job := m.Redriving()
		if !job.Searching() {
			return
		}
		take := fsm.TakeRedrive{Number: job.Number, After: job.Cursor, Through: job.Tail}
		for x, ok := m.Queue().NextLive(job.Cursor); ok && x.ID <= job.Tail && len(take.Items) < 2; x, ok = m.Queue().NextLive(x.ID) {
			it := fsm.RedriveItem{ID: x.ID, Attempt: x.Attempt}
			if !job.Spec.Discard {
				it.Targets = []uint64{targetOf(m)}
			}
			take.Items = append(take.Items, it)
			take.Through = x.ID
		}
		c = take
	})
	w.l.Propose(c, false, nil)
}

// target is another queue: a new one behind each that has gone.
func (w *world) target() []uint64 {
	var found uint64
	w.l.replica.View(func(m *fsm.Machine) { found = targetOf(m) })
	return []uint64{found}
}

func targetOf(m *fsm.Machine) (id uint64) {
	for id = 9; ; id++ {
		if _, gone := m.Outbox().Known(id); !gone {
			return id
		}
	}
}

// taken has the target take what was sent to it.
func (w *world) taken() {
	w.l.Propose(fsm.TransferDone{Target: w.target()[0], UpTo: 1 << 40}, false, nil)
}

// targetGone ends the target, which has taken nothing lately.
func (w *world) targetGone(*modelNode) {
	id := w.target()[0]
	var done uint64
	w.l.replica.View(func(m *fsm.Machine) { done, _ = m.Outbox().Progress(id) })
	w.l.Propose(fsm.TargetGone{Target: id, Watermark: done}, false, nil)
}

// decide says of dead letters where they go, or of expired ones that they stay.
func (w *world) decide() {
	var r fsm.Route
	w.l.replica.View(func(m *fsm.Machine) {
		for _, it := range m.Outbox().Unrouted(10) {
			d := fsm.Routed{Item: it.ID, NoRoute: fsm.Stay}
			if it.Reason != dlx.Expired || it.ID%2 == 0 {
				d = fsm.Routed{Item: it.ID, Targets: []uint64{targetOf(m)}}
			}
			r.Items = append(r.Items, d)
		}
	})
	if len(r.Items) > 0 {
		w.l.Propose(r, false, nil)
	}
}

// valid tells whether what a leader hands out is the node's: it has said everything to that leader, and to none behind it.
func (w *world) valid(n *modelNode, session, resync uint64) bool {
	if session < n.session || resync != n.resyncs {
		return false
	}
	n.session = session
	return true
}

// urgent publishes a message of a higher priority, which may be one that was sent before.
func (w *world) urgent(n *modelNode) {
	p := pub("urgent")
	p.Priority, p.HasPriority = 200, true
	p.Immediate = rapid.Bool().Draw(w.t, "immediate")
	w.send(n, p)
}

// again publishes what may have been sent before.
func (w *world) again(n *modelNode) {
	p := pub("again")
	p.Dedup = queue.DedupID{rapid.ByteRange(1, 3).Draw(w.t, "id")}
	w.send(n, p)
}

// change gives the queue other settings.
func (w *world) change(set queue.Settings, paused bool) {
	w.set, w.rev = set, w.rev+1
	w.set.Paused = paused
	w.l.CatalogChanged()
}

// crowd takes the room from the link to a node, or gives it back.
func (w *world) crowd(n *modelNode) {
	if w.crowded == n.ID {
		w.crowded = ""
		return
	}
	w.crowded = n.ID
}

// lead begins another session, as if this one's leader had been deposed: of what that proposed some is in the log, and the rest is lost.
func (w *world) lead() {
	w.calm = false
	w.kept = w.kept[:rapid.IntRange(0, len(w.kept)).Draw(w.t, "in the log")]
	cfg := w.l.cfg
	cfg.Session++
	w.l = newLeader(w.l.replica, cfg)
	w.l.begin()
}

// checkLength checks that a queue which drops from its head has no more than it may have, but for what waits out a delay: nobody gets that,
// not even the limit.
func (w *world) checkLength() {
	l := w.l
	n, bytes := l.readyNow()
	if ready, _ := l.readyCount(); l.phase == phaseActive && l.limits.set.Overflow == queue.DropHead && l.limits.over(n, bytes) && ready > 0 {
		w.Fatalf("%d messages are ready, with %d bytes in all; %s", ready, bytes, l.describe())
	}
}

// checkEmpty checks that an empty queue counts nothing.
func (w *world) checkEmpty() {
	l := w.l
	m, r, s := &l.limits, &l.recounting, &l.supply
	w.l.replica.View(func(f *fsm.Machine) {
		q := f.Queue()
		if q.Bytes() != 0 || q.Stored() != 0 || f.Delays().Len() != 0 || f.LeavingLen()+f.UndecidedLen() != 0 {
			w.Fatalf("the machine counts %d bytes, %d stored, %d delays, %d leaving, %d undecided", q.Bytes(), q.Stored(), f.Delays().Len(), f.LeavingLen(), f.UndecidedLen())
		}
	})
	back := 0
	for _, h := range l.ready.back {
		back += h.Len()
	}
	for what, n := range map[string]int64{
		"named": int64(l.named), "namedSize": l.namedSize, "heldBytes": m.heldBytes, "condemnedBytes": m.condemnedBytes,
		"expected": m.expected, "expectedBytes": m.expectedBytes, "expectedLength": m.expectedLength, "names": int64(l.pending.names),
		"delays": int64(l.delays.Len()), "returning": int64(l.single.returning), "flying": int64(len(r.flying)), "done": int64(r.done.Len()),
		"more": int64(r.more.Len()), "unseen": int64(len(l.ready.unseen)), "back": int64(back), "late": int64(m.late.Len()),
		"supply": int64(s.bytes) + s.letters + s.bodyBytes, "bytes in flight": int64(l.flying),
	} {
		if n != 0 {
			w.Fatalf("%s is %d in an empty queue; %s", what, n, l.describe())
		}
	}
}

func unsettled(n *modelNode) (ids []queue.MessageID) {
	for id, h := range n.held {
		if h.settled == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
