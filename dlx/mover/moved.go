package mover

import (
	"slices"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// succession is a target that goes on as another queue: it had lost most of its replicas.
type succession struct {
	to   uint64
	life uint32 // the number of the life that has ended
}

// follow asks the queue that goes on in place of a target what the target had taken, as far as that is known there. When the answer is
// recorded, the letters that it has not are under way to that queue. It reports false if the target is what it was.
func (m *Mover) follow(t dlx.Target, f *flight) bool {
	to, life, ok := m.cfg.Successor(t.Queue)
	if !ok {
		return false
	}
	if next := (succession{to, life}); f.next != next {
		// The window is for a queue that is no more.
		f.next, f.backoff, f.notBefore = next, 0, time.Time{}
		f.rewind(f.acked)
		f.full, f.doubt, f.asked = false, false, false
	}
	if m.busy() {
		return true
	}
	if now := time.Now(); !now.Before(f.notBefore) {
		m.cfg.Relocate(to)
		m.cfg.Send(&wire.Transfer{Target: to, Urgent: true, In: fsm.TransferIn{Source: fsm.Source{Queue: m.cfg.Queue, Epoch: life}, First: 1}})
		f.pause()
	}
	m.again(f.notBefore)
	return true
}

// lives is the queue that goes on in place of a target, itself if that is what it was.
func (m *Mover) lives(target uint64) uint64 {
	if to, _, ok := m.cfg.Successor(target); ok {
		return to
	}
	return target
}

// newest is the queue that goes on in place of another one, itself if that is what it was. The catalog's copy and the log are asked: either
// may know of a life that the other has not heard of.
func (m *Mover) newest(id uint64) uint64 { return m.recorded(m.lives(m.recorded(id))) }

// recorded is the queue that goes on in place of another one as far as the log knows.
func (m *Mover) recorded(id uint64) (now uint64) {
	m.cfg.View(func(fm *fsm.Machine) { now = fm.Outbox().Present(id) })
	return now
}

// tookBefore tells whether an item was taken by a queue, perhaps in a former life: it is in its place there as far as anybody knows, and would
// be there twice if that queue were named again.
func (m *Mover) tookBefore(it *dlx.Item, target uint64) bool {
	if len(it.Taken) == 0 {
		return false
	}
	target = m.newest(target)
	return slices.ContainsFunc(it.Taken, func(x uint64) bool { return m.newest(x) == target })
}

// takeFormer takes the answer to follow.
func (m *Mover) takeFormer(a *wire.TransferAnswer) {
	for id, f := range m.flights {
		if f.next != (succession{a.Target, a.Epoch}) || m.busy() {
			continue
		}
		var done, next uint64
		m.cfg.View(func(fm *fsm.Machine) {
			done, _ = fm.Outbox().Progress(id)
			next = fm.Outbox().NextSeq(id)
		})
		if lost := int64(done) - int64(a.UpTo); lost > 0 {
			m.cfg.Totals.Lost.Add(uint64(lost))
			m.cfg.Logger.Warn("what another queue had taken from this one was lost with its replicas",
				"queue", m.cfg.Queue, "target", id, "as", a.Target, "messages", lost)
		}
		if a.Gone {
			m.command(fsm.TargetGone{Target: id, Watermark: a.UpTo, Withdrawn: a.Withdrawn}, nil)
			return
		}
		taken := min(a.UpTo, next-1) // no more was given out, whatever it says: a command that names more is none that a log may have
		known, _ := slices.BinarySearch(a.Withdrawn, taken+1)
		m.command(fsm.TargetMoved{Target: id, Watermark: taken, Withdrawn: a.Withdrawn[:known], To: a.Target}, nil)
		return
	}
}
