package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/queue"
)

// QueueInfo describes a queue for tools.
type QueueInfo struct {
	ID      uint64   `json:"id"`
	VHost   string   `json:"vhost"`
	Name    string   `json:"name"`
	Leader  string   `json:"leader"` // node id without the storage uuid, "" unknown
	Members []string `json:"members"`
	// Online are the members whose nodes can be reached.
	Online []string `json:"online"`
	// State is running, closing or, in RabbitMQ's words, minority: too few members are online, or down: none is. Nobody is asked for the counts
	// then, which are 0.
	State string `json:"state"`
	// Paused: nothing is handed out. See Shown.
	Paused  bool   `json:"paused,omitempty"`
	Ready   uint64 `json:"ready"`
	Unacked uint64 `json:"unacked"`
	// Consumers, Outbox and Parked count consumers and dead letters on their way
	// or without one.
	Consumers uint64 `json:"consumers"`
	Outbox    uint64 `json:"outbox"`
	Parked    uint64 `json:"parked"`
	// Delayed counts returned messages that wait out their retry delay.
	Delayed uint64 `json:"delayed"`
	// Transferred counts the dead letters ever taken from other queues, in the
	// queue's replicated state.
	Transferred uint64 `json:"transferred"`
	// Duplicates counts the messages that were not stored because they had been before, by
	// their deduplication id. DedupIDs is how many ids are remembered, DedupForgotten how many
	// were forgotten before their time because there were too many.
	Duplicates     uint64 `json:"duplicates"`
	DedupIDs       uint64 `json:"deduplication_ids"`
	DedupForgotten uint64 `json:"deduplication_ids_forgotten"`
	// OutboxBytes are those of the bodies of the letters on their way.
	OutboxBytes uint64 `json:"outbox_bytes"`
	// DelayOf is the delayed exchange whose messages wait here; such a queue has no name.
	DelayOf string `json:"delay_of,omitempty"`
	Error   string `json:"error,omitempty"`

	// What was declared.
	Type       string     `json:"-"` // "classic" or "quorum"
	Transient  bool       `json:"-"` // its messages are in the memory of its only member
	Durable    bool       `json:"-"`
	AutoDelete bool       `json:"-"`
	Exclusive  bool       `json:"-"`
	Arguments  amqp.Table `json:"-"`
	// Policy and OperatorPolicy name those that apply, "" if none does, and EffectivePolicy
	// is what they say together.
	Policy          string     `json:"-"`
	OperatorPolicy  string     `json:"-"`
	EffectivePolicy amqp.Table `json:"-"`
	// DeliveryLimit is how many failed returns a message survives, by arguments and policies together; -1: any number. Counted
	// tells that deliveries count at all: those of quorum queues, and of others for which a limit was asked. DelayedRetry is what delays
	// returned messages, in RabbitMQ's words; empty where neither deliveries count nor a delay was asked for.
	DeliveryLimit int64  `json:"-"`
	Counted       bool   `json:"-"`
	DelayedRetry  string `json:"-"`
}

// Shown is the state for people: a queue that runs and hands out nothing is paused.
func (q *QueueInfo) Shown() string {
	if q.State == "running" && q.Paused {
		return "paused"
	}
	return q.State
}

// infoTimeout bounds the question to one queue's leader.
const infoTimeout = 2 * time.Second

// Queues describes every queue, asking each leader for its counts.
func (b *Broker) Queues(ctx context.Context) []QueueInfo {
	list := []QueueInfo{}
	for q := range b.cat.View().AllQueues() {
		info, _ := b.describe(ctx, q)
		list = append(list, info)
	}
	return list
}

// describe tells what is known of a queue, its leader's counts too; there is false if it was deleted meanwhile.
func (b *Broker) describe(ctx context.Context, q *catalog.Queue) (info QueueInfo, there bool) {
	info = b.outline(q)
	if info.State != "running" {
		return info, true
	}
	err := b.ask(ctx, q, &info)
	return info, err == nil || !errors.Is(err, errQueueGone) && !leaves(b.cat.View().QueueByID(q.ID))
}

// outline describes a queue as far as this node knows without asking its leader. What stays to be asked is running.
func (b *Broker) outline(q *catalog.Queue) QueueInfo {
	info := outlineOf(q, b.online)
	b.addPolicies(&info, q)
	return info
}

// outlineOf is outline without what policies say.
func outlineOf(q *catalog.Queue, online func(node string) bool) QueueInfo {
	info := QueueInfo{ID: q.ID, VHost: q.Vhost, Name: q.Name, DelayOf: q.DelayOf, State: "running", Members: make([]string, len(q.Members))}
	if q.DelayOf != "" {
		info.Name = ""
	}
	info.Online = make([]string, 0, len(q.Members))
	for i, m := range q.Members {
		info.Members[i] = shortName(string(m))
		if online(string(m)) {
			info.Online = append(info.Online, info.Members[i])
		}
	}
	info.Type, info.Durable, info.AutoDelete, info.Exclusive = queueType(q.Arguments), q.Durable, q.AutoDelete, q.Exclusive
	info.Paused = q.Paused
	info.Arguments, info.Transient = q.Arguments, q.Kind == catalog.Transient
	if q.State == catalog.Closing {
		info.State = "closing"
		return info
	}
	if info.State = stateOf(q, len(info.Online)); info.State != "running" {
		info.Error = "too few members are online"
	}
	return info
}

func (b *Broker) addPolicies(info *QueueInfo, q *catalog.Queue) {
	e := b.inEffect(q)
	info.EffectivePolicy = e.merged
	info.DeliveryLimit, info.Counted = deliveryLimit(e.arguments), showsCounts(e.arguments)
	if retry := retryDelay(e.arguments); info.Counted || retry.On != queue.RetryDisabled {
		info.DelayedRetry = retryText(retry)
	}
	if e.policy != nil {
		info.Policy = e.policy.Name
	}
	if e.operator != nil {
		info.OperatorPolicy = e.operator.Name
	}
}

func retryText(r queue.RetryDelay) string {
	if r.On == queue.RetryDisabled {
		return "disabled"
	}
	on := map[queue.RetryOn]string{queue.RetryAll: "all", queue.RetryFailed: "failed", queue.RetryReturned: "returned"}[r.On]
	return fmt.Sprintf("%s (min: %dms, max: %dms)", on, r.MinMillis, r.MaxMillis)
}

// ask adds what the queue's leader knows.
func (b *Broker) ask(ctx context.Context, q *catalog.Queue, info *QueueInfo) error {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	st, err := b.status(ctx, q, false)
	if err != nil {
		info.Error = err.Error()
		return err
	}
	info.Ready, info.Unacked, info.Consumers = st.Ready, st.Unacked, st.Consumers
	info.OutboxBytes = st.OutboxBytes
	info.Outbox, info.Parked, info.Transferred, info.Delayed = st.Outbox, st.Parked, st.Transferred, st.Delayed
	info.Duplicates, info.DedupIDs, info.DedupForgotten = st.Duplicates, st.DedupIDs, st.DedupForgotten
	s := b.stream(q)
	s.mu.Lock()
	info.Leader = shortName(s.leader)
	s.mu.Unlock()
	return nil
}

// QueueName names a queue.
type QueueName struct {
	ID          uint64
	VHost, Name string
}

// names are all named queues of a view.
type names struct {
	revision uint64 // of the view
	all      []QueueName
	vhost    map[string][2]int // from where to where those of a vhost are in it
}

// QueueNames lists the queues of a virtual host, or of all with "", in the order of vhost and name. The queues of delayed exchanges
// are not among them. The list is read only: it is kept as long as the catalog does not change.
func (b *Broker) QueueNames(vhost string) []QueueName {
	view := b.cat.View()
	n := b.names.Load()
	if n == nil || n.revision != view.Revision() {
		n = &names{revision: view.Revision(), all: make([]QueueName, 0, view.QueueCount()), vhost: map[string][2]int{}}
		for h := range view.Vhosts() {
			from := len(n.all)
			for q := range view.Queues(h.Name) {
				n.all = append(n.all, QueueName{q.ID, q.Vhost, q.Name})
			}
			n.vhost[h.Name] = [2]int{from, len(n.all)}
		}
		b.names.Store(n)
	}
	if vhost == "" {
		return slices.Clip(n.all)
	}
	at := n.vhost[vhost]
	return slices.Clip(n.all[at[0]:at[1]])
}

// QueuesDeclaredBy lists the queues that clients declared as a user, in the order of vhost and name; those that were there below level 2 of the
// cluster, or that definitions brought, are nobody's.
func (b *Broker) QueuesDeclaredBy(user string) (list []QueueName) {
	view := b.cat.View()
	for h := range view.Vhosts() {
		for q := range view.Queues(h.Name) {
			if q.DeclaredBy == user {
				list = append(list, QueueName{q.ID, q.Vhost, q.Name})
			}
		}
	}
	return list
}

// OutlineQueue describes a queue but for what its leader knows, and AskQueue with that; ok is false if there is none of that id.
func (b *Broker) OutlineQueue(id uint64) (info QueueInfo, ok bool) {
	q := b.cat.View().QueueByID(id)
	if q == nil {
		return info, false
	}
	return b.outline(q), true
}

// OutlineQueues is OutlineQueue for many: each node is looked at once for all of them, and policies are matched only if they are wanted. It
// calls yield for each queue of the list in its order; the pointer is for the time of the call. In place of one that was deleted meanwhile, or goes on in another
// life, it describes the one that has its name now, and it calls with nil if there is none.
func (b *Broker) OutlineQueues(list []QueueName, policies bool, yield func(i int, info *QueueInfo)) {
	view := b.cat.View()
	known := map[string]bool{}
	online := func(node string) bool {
		is, ok := known[node]
		if !ok {
			is = b.online(node)
			known[node] = is
		}
		return is
	}
	var info QueueInfo
	for i := range list {
		q := view.QueueByID(list[i].ID)
		if leaves(q) {
			q = view.Queue(list[i].VHost, list[i].Name)
		}
		if q == nil {
			yield(i, nil)
			continue
		}
		info = outlineOf(q, online)
		if policies {
			b.addPolicies(&info, q)
		}
		yield(i, &info)
	}
}

// AskQueue is documented with OutlineQueue.
func (b *Broker) AskQueue(ctx context.Context, id uint64) (info QueueInfo, ok bool) {
	q := b.cat.View().QueueByID(id)
	if q == nil {
		return info, false
	}
	return b.describe(ctx, q)
}

// CountExchanges counts the exchanges of a virtual host, or of all with "".
func (b *Broker) CountExchanges(vhost string) (n int) {
	view := b.cat.View()
	for h := range view.Vhosts() {
		if vhost == "" || h.Name == vhost {
			for range view.Exchanges(h.Name) {
				n++
			}
		}
	}
	return n
}

func (b *Broker) online(node string) bool {
	if b.cfg.Online != nil {
		return b.cfg.Online(node)
	}
	return b.cfg.Alive(node)
}

// WithoutMajority counts the durable queues, those of delayed exchanges among them, of which too few members are online for a quorum, as
// far as this node sees: of a queue that it cannot reach, and others can, too.
func (b *Broker) WithoutMajority() (n int) {
	for range b.withoutMajority {
		n++
	}
	return n
}

// withoutMajority goes through the queues that WithoutMajority counts.
func (b *Broker) withoutMajority(yield func(*catalog.Queue) bool) {
	known := map[catalog.NodeID]bool{}
	for q := range b.cat.View().AllQueues() {
		if q.Kind == catalog.Transient || q.State == catalog.Closing {
			continue
		}
		online := 0
		for _, m := range q.Members {
			is, ok := known[m]
			if !ok {
				is = b.online(string(m))
				known[m] = is
			}
			if is {
				online++
			}
		}
		if stateOf(q, online) != "running" && !yield(q) {
			return
		}
	}
}

// stateOf tells whether enough members of a queue are online for a quorum. While they are being changed, members are counted that do
// not vote yet, or not any more: only the leader knows.
func stateOf(q *catalog.Queue, online int) string {
	switch {
	case online == 0:
		return "down"
	case online <= len(q.Members)/2 && q.Wanted == nil:
		return "minority"
	}
	return "running"
}

// shortName is a node's id without its storage uuid.
func shortName(node string) string {
	for i := range len(node) {
		if node[i] == '/' {
			return node[:i]
		}
	}
	return node
}
