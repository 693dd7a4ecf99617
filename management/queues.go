package management

import (
	"net/http"

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

	// State is "running"; "paused": it hands out nothing; "minority" when too few members are online, "down" when none is or its leader did not answer: the counts are 0
	// then.
	State   string   `json:"state"`
	Leader  string   `json:"leader"`
	Members []string `json:"members"`
	Online  []string `json:"online"`

	Consumers uint64 `json:"consumers"`
	// ConsumerCapacity is the share of the last five seconds, 0 to 1, in which a consumer could have taken a message at once: less than 1 if all
	// of them held as many as they may, or had not read what was sent. 0 without consumers. ConsumerUtilisation is its older name.
	ConsumerCapacity    float64 `json:"consumer_capacity"`
	ConsumerUtilisation float64 `json:"consumer_utilisation"`
	// ExclusiveConsumerTag, SingleActiveConsumerTag, ConsumerDetails, Deliveries and Incoming are told of one queue, not in lists.
	ExclusiveConsumerTag    *string        `json:"exclusive_consumer_tag,omitempty"`
	SingleActiveConsumerTag *string        `json:"single_active_consumer_tag,omitempty"`
	ConsumerDetails         []Consumer     `json:"consumer_details,omitzero"`
	Deliveries              []DeliveriesTo `json:"deliveries,omitzero"`
	Incoming                []IncomingFrom `json:"incoming,omitzero"`

	// Messages are all that wait in the queue or are with consumers; those on their way to a
	// dead-letter exchange are MessagesDLX, not in it.
	Messages        uint64 `json:"messages"`
	MessagesReady   uint64 `json:"messages_ready"`
	MessagesUnacked uint64 `json:"messages_unacknowledged"`
	// The rates at which they grow.
	MessagesDetails        Details `json:"messages_details"`
	MessagesReadyDetails   Details `json:"messages_ready_details"`
	MessagesUnackedDetails Details `json:"messages_unacknowledged_details"`
	// MessageBytes are those of the bodies; null if the node that leads is of an older version, or did not tell.
	MessageBytes        *uint64 `json:"message_bytes"`
	MessageBytesReady   *uint64 `json:"message_bytes_ready"`
	MessageBytesUnacked *uint64 `json:"message_bytes_unacknowledged"`
	// Messages of a queue that is not durable, or exclusive, are in memory; those of others are on the disks of its members, whatever delivery mode
	// they were published with, and what nodes remember of their disks is counted nowhere.
	MessagesRAM            uint64  `json:"messages_ram"`
	MessagesReadyRAM       uint64  `json:"messages_ready_ram"`
	MessagesUnackedRAM     uint64  `json:"messages_unacknowledged_ram"`
	MessagesPersistent     uint64  `json:"messages_persistent"`
	MessageBytesRAM        *uint64 `json:"message_bytes_ram"`
	MessageBytesPersistent *uint64 `json:"message_bytes_persistent"`
	// QueueDetails are there if a node leads the queue and told them; not in a list of more than 500 that does not ask for them.
	*QueueDetails
	// MessageStats are what clients did since the nodes they are at have begun; absent if nothing.
	MessageStats MessageStats `json:"message_stats,omitempty"`

	// DeliveryLimit is a number, or "unlimited", and DelayedRetry what delays returned messages, in RabbitMQ's words. They are of quorum
	// queues, as there, and of others for which they were asked.
	DeliveryLimit any    `json:"delivery_limit,omitempty"`
	DelayedRetry  string `json:"delayed_retry,omitempty"`

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
	a.handle("GET /api/queues/{vhost}", a.listQueues)
	a.handle("GET /api/queues/{vhost}/{name}", a.getQueue)
}

func (a *API) listAllQueues(r *http.Request, u User) (any, error) {
	seen := map[string]bool{}
	for _, v := range a.cfg.Broker.VhostInfos() {
		seen[v.Name] = a.sees(u, v.Name)
	}
	return a.queueList(r, only(a.cfg.Broker.QueueNames(""), func(q broker.QueueName) bool { return seen[q.VHost] }))
}

func (a *API) listQueues(r *http.Request, u User) (any, error) {
	// RabbitMQ's other form of the list of all, with everything about each.
	if r.PathValue("vhost") == "detailed" {
		if ok, err := a.cfg.Broker.HasVhost(r.Context(), "detailed"); err == nil && !ok {
			return a.listAllQueues(r, u)
		}
	}
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	return a.queueList(r, a.cfg.Broker.QueueNames(vhost))
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
	if q.Counted {
		j.DeliveryLimit = q.DeliveryLimit
		if q.DeliveryLimit < 0 {
			j.DeliveryLimit = "unlimited"
		}
	}
	j.DelayedRetry = q.DelayedRetry
	return j
}

// inMemory tells where the messages are.
func (j *Queue) inMemory(transient bool) {
	none := uint64(0)
	if j.MessageBytes != nil {
		j.MessageBytesRAM, j.MessageBytesPersistent = &none, &none
	}
	if !transient {
		j.MessagesPersistent, j.MessageBytesPersistent = j.Messages, j.MessageBytes
		return
	}
	j.MessagesRAM, j.MessagesReadyRAM, j.MessagesUnackedRAM, j.MessageBytesRAM = j.Messages, j.MessagesReady, j.MessagesUnacked, j.MessageBytes
}
