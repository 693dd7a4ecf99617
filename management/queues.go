package management

import (
	"net/http"
	"slices"

	"github.com/warrenmq/warren/broker"
)

// Queue is the JSON form of a queue.
type Queue struct {
	Name       string         `json:"name"`
	VHost      string         `json:"vhost"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Exclusive  bool           `json:"exclusive"`
	Arguments  map[string]any `json:"arguments"`
	Node       string         `json:"node"` // the one that leads

	// Policy and OperatorPolicy name what applies, null if nothing does;
	// EffectivePolicyDefinition is what they say together, without the arguments.
	Policy                    *string        `json:"policy"`
	OperatorPolicy            *string        `json:"operator_policy"`
	EffectivePolicyDefinition map[string]any `json:"effective_policy_definition"`

	// State is "running"; "minority" when too few members are online, "down" when none is or its leader did not answer: the counts are 0
	// then.
	State   string   `json:"state"`
	Leader  string   `json:"leader"`
	Members []string `json:"members"`
	Online  []string `json:"online"`

	Consumers uint64 `json:"consumers"`
	// Messages are all that wait in the queue or are with consumers; those on their way to a
	// dead-letter exchange are MessagesDLX, not in it.
	Messages        uint64 `json:"messages"`
	MessagesReady   uint64 `json:"messages_ready"`
	MessagesUnacked uint64 `json:"messages_unacknowledged"`
	MessagesDelayed uint64 `json:"messages_delayed"`
	MessagesDLX     uint64 `json:"messages_dlx"`
	MessageBytesDLX uint64 `json:"message_bytes_dlx"` // of the bodies
	// MessagesParked are those of MessagesDLX without a target; MessagesTransferred are all
	// that other queues have ever sent here.
	MessagesParked      uint64 `json:"messages_parked"`
	MessagesTransferred uint64 `json:"messages_transferred"`
	// MessagesDeduplicated were published again within the window of deduplication, and not
	// stored. DedupIDs are remembered now; DedupIDsForgotten left before their time, because
	// there were too many.
	MessagesDeduplicated uint64 `json:"messages_deduplicated"`
	DedupIDs             uint64 `json:"deduplication_ids"`
	DedupIDsForgotten    uint64 `json:"deduplication_ids_forgotten"`
}

func (a *API) routeQueues() {
	a.handle("GET /api/queues", a.listAllQueues)
	a.handle("GET /api/queues/{$}", a.listAllQueues)
	a.handle("GET /api/queues/{vhost}", a.listQueues)
	a.handle("GET /api/queues/{vhost}/{name}", a.getQueue)
}

func (a *API) listAllQueues(r *http.Request, u User) (any, error) {
	all := a.cfg.Broker.ListQueues(r.Context(), "")
	return paged(r, queuesJSON(slices.DeleteFunc(all, func(q broker.QueueInfo) bool {
		return !u.monitors() && !a.cfg.Broker.MayEnter(u.Name, q.VHost)
	})))
}

func (a *API) listQueues(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	return paged(r, queuesJSON(a.cfg.Broker.ListQueues(r.Context(), vhost)))
}

func (a *API) getQueue(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	q, err := a.cfg.Broker.FindQueue(r.Context(), vhost, r.PathValue("name"))
	if err != nil {
		return nil, ofBroker(err)
	}
	return queueJSON(&q), nil
}

func queuesJSON(list []broker.QueueInfo) []Queue {
	out := make([]Queue, len(list))
	for i := range list {
		out[i] = queueJSON(&list[i])
	}
	return out
}

func queueJSON(q *broker.QueueInfo) Queue {
	j := Queue{
		Name: q.Name, VHost: q.VHost, Type: q.Type, Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive,
		Arguments: q.Arguments.JSON(), Node: q.Leader, State: q.State, Leader: q.Leader, Members: q.Members, Online: q.Online,
		Policy: nameOrNil(q.Policy), OperatorPolicy: nameOrNil(q.OperatorPolicy), EffectivePolicyDefinition: q.EffectivePolicy.JSON(),
		Consumers: q.Consumers, Messages: q.Ready + q.Unacked + q.Delayed, MessagesReady: q.Ready, MessagesUnacked: q.Unacked,
		MessagesDelayed: q.Delayed, MessagesDLX: q.Outbox, MessageBytesDLX: q.OutboxBytes, MessagesParked: q.Parked, MessagesTransferred: q.Transferred,
		MessagesDeduplicated: q.Duplicates, DedupIDs: q.DedupIDs, DedupIDsForgotten: q.DedupForgotten,
	}
	if q.Error != "" && j.State == "running" {
		j.State = "down"
	}
	return j
}
