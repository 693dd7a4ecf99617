package broker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
)

// ReplicaState tells how far a replica on this node is and what it holds.
type ReplicaState struct {
	Queue uint64 `json:"queue"`
	VHost string `json:"vhost"`
	Name  string `json:"name"`
	// Applied is the index of the newest entry applied.
	Applied uint64 `json:"applied"`
	// State digests the whole replicated state, in hexadecimal: replicas that have applied
	// the same entries have the same.
	State string `json:"state"`
}

// ReplicaStates lists the replicated queues on this node by their ids. Each is encoded for
// it, so that it costs what a snapshot of all of them does: tests ask for it.
func (b *Broker) ReplicaStates() []ReplicaState {
	list := []ReplicaState{}
	for _, h := range b.queues.all() {
		h.mu.Lock()
		q := h.q
		h.mu.Unlock()
		if q.Kind == catalog.Transient {
			continue
		}
		s := ReplicaState{Queue: h.id, VHost: q.Vhost, Name: q.Name}
		h.replica.View(func(m *fsm.Machine) { s.Applied, s.State = m.Index(), fmt.Sprintf("%016x", m.Hash()) })
		list = append(list, s)
	}
	slices.SortFunc(list, func(x, y ReplicaState) int { return cmp.Compare(x.Queue, y.Queue) })
	return list
}
