package broker

import (
	"cmp"
	"context"
	"slices"

	"github.com/warrenmq/warren/catalog"
)

// ClosingQueue is a queue that was deleted and has not ended yet: its name is free, and its dead letters are on their way to other queues, or no
// member that can be reached leads it.
type ClosingQueue struct {
	ID    uint64 `json:"id"`
	VHost string `json:"vhost"` // which may be deleted, too
	Queue string `json:"queue"`
	// DelayOf is the delayed exchange, deleted too, whose messages waited here; such a queue has no name.
	DelayOf string   `json:"delay_of,omitempty"`
	Members []string `json:"members"` // node ids without their storage uuids
	// State is running, minority or down, by the members that are online.
	State string `json:"state"`
	// Leader is "" if no leader has told of dead letters; what follows is 0 then.
	Leader       string `json:"leader"`
	Messages     int    `json:"messages_dlx"`
	MessageBytes int64  `json:"message_bytes_dlx"`
	OldestAge    int64  `json:"oldest_age_ms"`
	// Why tells what keeps it, in words.
	Why string `json:"why"`
}

// Closings describes the deleted queues of the cluster that have not ended yet, by id, as far as the nodes that answer know; an error tells of
// the others.
func (b *Broker) Closings(ctx context.Context) ([]ClosingQueue, error) {
	list := []ClosingQueue{}
	for q := range b.cat.View().AllQueues() {
		if q.State == catalog.Closing {
			list = append(list, b.closingQueue(q))
		}
	}
	if len(list) == 0 {
		return list, nil
	}
	slices.SortFunc(list, func(x, y ClosingQueue) int { return cmp.Compare(x.ID, y.ID) })
	told, err := b.outboxes(ctx, outboxesQuery{})
	for i := range told {
		if at, ok := slices.BinarySearchFunc(list, told[i].ID, func(x ClosingQueue, id uint64) int { return cmp.Compare(x.ID, id) }); ok {
			list[at].tell(&told[i])
		}
	}
	return list, err
}

func (b *Broker) closingQueue(q *catalog.Queue) ClosingQueue {
	x := ClosingQueue{ID: q.ID, VHost: q.Vhost, Queue: q.Name, DelayOf: q.DelayOf, Members: make([]string, len(q.Members))}
	if q.DelayOf != "" {
		x.Queue = ""
	}
	online := 0
	for i, m := range q.Members {
		x.Members[i] = shortName(string(m))
		if b.online(string(m)) {
			online++
		}
	}
	switch x.State = stateOf(q, online); x.State {
	case "running":
		x.Why = "no leader tells of dead letters: it is just ending, or its replicas cannot lead"
	default:
		x.Why = "too few of its replicas run"
	}
	return x
}

// tell takes what the queue's leader knows.
func (x *ClosingQueue) tell(s *OutboxStatus) {
	x.Leader, x.Messages, x.MessageBytes, x.OldestAge, x.Why = s.Leader, s.Messages, s.MessageBytes, s.OldestAge, s.Stuck()
}

// Closing counts the queues that Closings lists.
func (b *Broker) Closing() (n int) {
	for q := range b.cat.View().AllQueues() {
		if q.State == catalog.Closing {
			n++
		}
	}
	return n
}
