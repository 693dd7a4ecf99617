package mover

import (
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// A target that is full, or that nobody leads, may take nothing for hours, and hundreds of sources may wait for it. If each went on trying by
// sending a batch, every second or two, nodes would read, build, send and drop the same letters all the time: of letters of many MiB each, gigabytes.
// So a target that does not take what it is sent is asked how it stands, by a transfer without items, and is sent letters when it says that it
// would take some.

// doubtFrom is the pause from which on a target that refuses is asked. One that is full now and then loses no time by that.
const doubtFrom = 8 * backoffMin

// answered notes an answer of the target. refused tells that it takes nothing now, progress that it has taken something.
func (f *flight) answered(refused, progress bool) {
	if f.asked {
		f.asked, f.heard, f.repeats = false, time.Now(), 0
	}
	if !refused {
		f.lapsed = 0 // it would take what it has not taken
	}
	f.doubt = refused && !progress && (f.doubt || f.backoff >= doubtFrom)
}

// awaits tells whether an answer is waited for.
func (f *flight) awaits() bool { return f.sent > f.acked || f.asked }

// ask asks a target how it stands if that has to be known before more is sent, and reports whether it has to. Withdrawals have no content, and
// parts of transactions do not wait for room: neither needs to be asked for.
func (m *Mover) ask(t dlx.Target, f *flight) bool {
	if !f.doubt || f.full && t.Parts > 0 || m.withdrawsNext(t.Queue, f.sent, f.full) {
		return false
	}
	if !f.asked {
		in := fsm.TransferIn{Source: fsm.Source{Queue: m.cfg.Queue}, First: f.acked + 1, AnsweredUpTo: t.Next - uint64(t.Pending) - 1}
		if !m.cfg.Gate.Pass(func() { m.cfg.Send(&wire.Transfer{Target: t.Queue, In: in}) }) {
			m.Wake() // for a look at when it opens
			return true
		}
		now := time.Now()
		d, _ := f.patience(now)
		f.asked, f.deadline = true, now.Add(d)
	}
	m.again(f.deadline)
	return true
}
