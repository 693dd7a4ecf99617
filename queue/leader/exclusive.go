package leader

import (
	"slices"

	"github.com/warrenmq/warren/queue/wire"
)

// parkedAttach is a consumer that waits to be let in.
type parkedAttach struct {
	from   string
	attach *wire.Attach
}

// attachWaits tells whether a consumer that is not attached has to wait for what nodes have to say. One of them may have the queue for itself: before
// the roll call is over nobody is let in. Who wants the queue for itself waits also for nodes that did not answer in time, until they do or are gone.
func (l *Leader) attachWaits(c *wire.Consumer) bool {
	return l.phase == phaseRoll || c.Exclusive && len(l.missing) > 0
}

// letIn lets in those that waited long enough, in the order of coming.
func (l *Leader) letIn() {
	waited := l.attaches
	l.attaches = nil
	for _, a := range waited {
		l.onAttach(a.from, a.attach)
	}
}

// dropAttach forgets a consumer that waits: nobody waits for it any more.
func (l *Leader) dropAttach(node uint32, no wire.ConsumerNo) {
	l.attaches = slices.DeleteFunc(l.attaches, func(a parkedAttach) bool {
		return a.attach.Origin.Node == node && a.attach.Consumer.No == no
	})
}
