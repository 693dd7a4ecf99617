package fsm

import (
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// tagBury is Bury's tag.
const tagBury = 16

// Bury lets the live messages of a closed queue up to UpTo die, held ones too, because the
// queue is removed. A closed queue has live messages only if its settings ask for dead-lettering on
// removal.
type Bury struct{ UpTo queue.MessageID }

func (Bury) command() {}

func (a *apply) bury(upTo queue.MessageID) {
	if !a.closed || upTo == 0 {
		return
	}
	a.eachLive([]queue.IDRange{{First: 1, Last: upTo}}, func(m queue.Message) { a.die(a.take(m.ID), dlx.QueueRemoved) })
}

// buries tells whether the messages of a queue that is closed are dead-lettered.
func buries(s *queue.Settings) bool { return s.DeadLetter && s.DeadLetterOnRemoval && !s.Delayed }
