package management

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// figures is the part of the broker that tells what is in queues, and what is counted; its methods are documented there.
type figures interface {
	QueueNames(vhost string) []broker.QueueName
	QueuesDeclaredBy(user string) []broker.QueueName
	OutlineQueue(id uint64) (broker.QueueInfo, bool)
	OutlineQueues(list []broker.QueueName, policies bool, yield func(i int, info *broker.QueueInfo))
	AskQueue(ctx context.Context, id uint64) (broker.QueueInfo, bool)
	Rows(yield func(r *broker.QueueRow) bool)
	QueueDetails(ids []uint64) []broker.QueueDetail
	Incoming(queue uint64) []broker.Incoming
	UsedQueues(yield func(id uint64, s *stats.Set))
	Consumers() []broker.ConsumerInfo
	CountExchanges(vhost string) int
	NodeCounters() stats.Set
	VhostCounters() map[string]*stats.Set
	ExchangeCounters(yield func(stats.Key, *stats.Set))
	QueueChurn() broker.QueueChurn
	Clients() broker.Clients
}

// asking bounds how many queues are asked for at once that no node told of, and for how long: most of them have just no leader.
const (
	asking     = 64
	askingTime = 500 * time.Millisecond
)

// columnsBasic are shown with disable_stats, and columnsTotals beside them with enable_queue_totals.
var (
	columnsBasic = wantedColumns("name,vhost,type,durable,auto_delete,exclusive,arguments,policy,operator_policy," +
		"effective_policy_definition,members,online,state")
	columnsTotals = wantedColumns("messages,messages_ready,messages_unacknowledged,leader,node")
)

// queueList shows queues, which come in the order of vhost and name, and are read only. Of those that are not on the page no more is made
// than what they are sorted by.
func (a *API) queueList(r *http.Request, names []broker.QueueName) (any, error) {
	q, err := readListQuery(r)
	if err != nil {
		return nil, err
	}
	table := &queueTable{}
	cheap := asked(r, "disable_stats")
	totals := asked(r, "enable_queue_totals")
	if !cheap || totals {
		table = a.queueTable(r.Context())
	}
	if cheap && q.columns == nil {
		q.columns = maps.Clone(columnsBasic)
		if totals {
			maps.Copy(q.columns, columnsTotals)
		}
	}
	total := len(names)
	if q.match != nil {
		names = only(names, func(n broker.QueueName) bool { return q.match(n.Name) })
	}
	ask := !cheap || totals
	var details map[uint64]*QueueDetails
	if namesDetail(q.sort) {
		details = a.listDetails(r.Context(), names)
	}
	from, to, err := q.cut(len(names))
	if err != nil {
		return nil, err
	}
	shown := names[from:to]
	q.order(len(names), a.queueKeys(names, table, details, q.sort), func(by []int) {
		shown = make([]broker.QueueName, to-from)
		for i := range shown {
			shown[i] = names[by[from+i]]
		}
	})
	if details == nil && ask && q.showsDetails(len(shown)) {
		details = a.listDetails(r.Context(), shown)
	}
	list := a.describeQueues(r.Context(), shown, table, details, ask)
	items, err := pick(list, q.columns)
	if err != nil {
		return nil, err
	}
	return q.answer(items, total, len(names), len(list)), nil
}

// only returns the wanted names, and the list itself if all are.
func only(names []broker.QueueName, want func(n broker.QueueName) bool) []broker.QueueName {
	for i := range names {
		if !want(names[i]) {
			kept := slices.Clone(names[:i])
			for _, n := range names[i+1:] {
				if want(n) {
					kept = append(kept, n)
				}
			}
			return kept
		}
	}
	return names
}

// queueKeys returns what queues are sorted by: straight from their figures or outlines if it is there.
func (a *API) queueKeys(names []broker.QueueName, t *queueTable, details map[uint64]*QueueDetails, path []string) func(i int) key {
	if of := figureKey(path); of != nil {
		return func(i int) key { return key{n: of(t.of(names[i].ID))} }
	}
	switch strings.Join(path, ".") {
	case "": // they stay as they are
		return nil
	case "name":
		return func(i int) key { return key{kind: keyText, text: names[i].Name} }
	case "vhost":
		return func(i int) key { return key{kind: keyText, text: names[i].VHost} }
	case "node", "leader":
		return func(i int) key { return key{kind: keyText, text: t.of(names[i].ID).leader} }
	}
	if details != nil {
		return func(i int) key { return keyOf(&Queue{QueueDetails: details[names[i].ID]}, path) }
	}
	of, policies := outlineKey(path)
	if of == nil {
		policies = true
		of = func(info *broker.QueueInfo) key {
			j := tableJSON(info, t.of(info.ID))
			return keyOf(&j, path)
		}
	}
	keys := make([]key, len(names))
	a.cfg.Broker.OutlineQueues(names, policies, func(i int, info *broker.QueueInfo) {
		if info != nil {
			keys[i] = of(info)
		}
	})
	return func(i int) key { return keys[i] }
}

// outlineKey returns how the value at a path is read from a queue's outline, nil if it is not in it, and whether policies have to be.
func outlineKey(path []string) (of func(q *broker.QueueInfo) key, policies bool) {
	text := func(of func(q *broker.QueueInfo) string) func(q *broker.QueueInfo) key {
		return func(q *broker.QueueInfo) key { return key{kind: keyText, text: of(q)} }
	}
	name := func(of func(q *broker.QueueInfo) string) func(q *broker.QueueInfo) key {
		return func(q *broker.QueueInfo) key {
			if of(q) == "" {
				return key{} // null
			}
			return key{kind: keyText, text: of(q)}
		}
	}
	flag := func(of func(q *broker.QueueInfo) bool) func(q *broker.QueueInfo) key {
		return func(q *broker.QueueInfo) key {
			if of(q) {
				return key{kind: keyBool, n: 1}
			}
			return key{kind: keyBool}
		}
	}
	switch strings.Join(path, ".") {
	case "type":
		return text(func(q *broker.QueueInfo) string { return q.Type }), false
	case "state":
		return text(func(q *broker.QueueInfo) string { return q.Shown() }), false
	case "durable":
		return flag(func(q *broker.QueueInfo) bool { return q.Durable }), false
	case "auto_delete":
		return flag(func(q *broker.QueueInfo) bool { return q.AutoDelete }), false
	case "exclusive":
		return flag(func(q *broker.QueueInfo) bool { return q.Exclusive }), false
	case "policy":
		return name(func(q *broker.QueueInfo) string { return q.Policy }), true
	case "operator_policy":
		return name(func(q *broker.QueueInfo) string { return q.OperatorPolicy }), true
	}
	return nil, false
}

// figureKey returns how the number at a path is read from a queue's figures, nil if it is not in them.
func figureKey(path []string) func(f *queueFigures) float64 {
	if len(path) > 1 && path[0] == "message_stats" {
		name, details := strings.CutSuffix(path[1], "_details")
		if details != (len(path) == 3 && path[2] == "rate") {
			return nil
		}
		if name == "deliver_get" {
			if details {
				return func(f *queueFigures) float64 { return f.counted().Rates.DeliverGet() }
			}
			return func(f *queueFigures) float64 { return float64(f.counted().Set.DeliverGet()) }
		}
		i := slices.IndexFunc(countersOfQueue, func(c stats.Counter) bool { return c.String() == name })
		if i < 0 {
			return nil
		}
		c := countersOfQueue[i]
		if details {
			return func(f *queueFigures) float64 { return f.counted().Rates[c] }
		}
		return func(f *queueFigures) float64 { return float64(f.counted().Set[c]) }
	}
	switch strings.Join(path, ".") {
	case "messages":
		return func(f *queueFigures) float64 { return float64(f.row.Ready + f.row.Unacked + f.row.Delayed) }
	case "messages_ready":
		return func(f *queueFigures) float64 { return float64(f.row.Ready) }
	case "messages_unacknowledged":
		return func(f *queueFigures) float64 { return float64(f.row.Unacked) }
	case "messages_dlx":
		return func(f *queueFigures) float64 { return float64(f.row.Outbox) }
	case "messages_delayed":
		return func(f *queueFigures) float64 { return float64(f.row.Delayed) }
	case "messages_parked":
		return func(f *queueFigures) float64 { return float64(f.row.Parked) }
	case "messages_transferred":
		return func(f *queueFigures) float64 { return float64(f.row.Transferred) }
	case "consumers":
		return func(f *queueFigures) float64 { return float64(f.row.Consumers) }
	case "message_bytes":
		return func(f *queueFigures) float64 { return float64(f.row.Bytes) }
	case "consumer_capacity", "consumer_utilisation":
		return (*queueFigures).capacity
	case "messages_details.rate":
		return func(f *queueFigures) float64 { return f.readyRate + f.unackedRate }
	case "messages_ready_details.rate":
		return func(f *queueFigures) float64 { return f.readyRate }
	case "messages_unacknowledged_details.rate":
		return func(f *queueFigures) float64 { return f.unackedRate }
	}
	return nil
}

// describeQueues makes the JSON of queues, but for those that were deleted meanwhile. With ask, those that no node told of are asked one by one.
func (a *API) describeQueues(ctx context.Context, names []broker.QueueName, t *queueTable, details map[uint64]*QueueDetails, ask bool) []Queue {
	list := make([]Queue, len(names))
	ids := make([]uint64, len(names)) // 0: it is gone
	var missing []int
	a.cfg.Broker.OutlineQueues(names, true, func(i int, info *broker.QueueInfo) {
		if info == nil {
			return
		}
		f := t.of(info.ID)
		list[i], ids[i] = tableJSON(info, f), info.ID
		if ask && f.leader == "" && info.State == "running" {
			missing = append(missing, i)
		}
	})
	a.askQueues(ctx, ids, missing, func(i int, info *broker.QueueInfo) {
		if info == nil {
			ids[i] = 0
			return
		}
		list[i] = withFigures(info, t.of(ids[i]), nil)
	})
	there := list[:0]
	for i, id := range ids {
		if id != 0 {
			list[i].QueueDetails = details[id]
			there = append(there, list[i])
		}
	}
	return there
}

// askQueues asks for those of the queues that are missing, several at a time, for which it calls yield from several goroutines: with nil for one that was deleted
// meanwhile.
func (a *API) askQueues(ctx context.Context, ids []uint64, missing []int, yield func(i int, info *broker.QueueInfo)) {
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(asking, len(missing)) {
		wg.Go(func() {
			for i := range next {
				info, ok := a.cfg.Broker.AskQueue(ctx, ids[i])
				if !ok {
					yield(i, nil)
					continue
				}
				yield(i, &info)
			}
		})
	}
	for _, i := range missing {
		next <- i
	}
	close(next)
	wg.Wait()
}

// tableJSON makes a queue's JSON of its outline and figures.
func tableJSON(info *broker.QueueInfo, f *queueFigures) Queue {
	f.fill(info)
	return withFigures(info, f, nil)
}

// fill adds to a queue's outline what its leader has told.
func (f *queueFigures) fill(info *broker.QueueInfo) {
	if info.State == "running" && f.leader != "" {
		r := f.row
		info.Leader = f.leader
		info.Ready, info.Unacked, info.Delayed, info.Consumers = r.Ready, r.Unacked, r.Delayed, r.Consumers
		info.Outbox, info.OutboxBytes, info.Parked, info.Transferred = r.Outbox, r.OutboxBytes, r.Parked, r.Transferred
		info.Duplicates, info.DedupIDs, info.DedupForgotten = r.Duplicates, r.DedupIDs, r.DedupForgotten
	}
}

// withFigures makes a queue's JSON of what is known of it and of its figures.
func withFigures(info *broker.QueueInfo, f *queueFigures, lengths *past) Queue {
	j := queueJSON(info)
	if f.leader != "" && j.State == "running" {
		bytes, unacked := f.row.Bytes, min(f.row.UnackedBytes, f.row.Bytes)
		ready := bytes - unacked
		j.MessageBytes, j.MessageBytesReady, j.MessageBytesUnacked = &bytes, &ready, &unacked
	}
	j.ConsumerCapacity = f.capacity()
	j.ConsumerUtilisation = j.ConsumerCapacity
	j.inMemory(info.Transient)
	if j.State == "running" {
		j.State = info.Shown()
	}
	j.MessagesDetails = lengths.details(f.readyRate+f.unackedRate, func(s *stats.Set) uint64 { return s[stats.Ready] + s[stats.Unacked] })
	j.MessagesReadyDetails = lengths.details(f.readyRate, func(s *stats.Set) uint64 { return s[stats.Ready] })
	j.MessagesUnackedDetails = lengths.details(f.unackedRate, func(s *stats.Set) uint64 { return s[stats.Unacked] })
	j.MessageStats = messageStats(countersOfQueue, f.counted(), nil)
	return j
}

// getQueue tells everything of one queue: what its leader says now, and what all nodes have counted.
func (a *API) getQueue(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	lengths, err := spanOf(r, "lengths")
	if err != nil {
		return nil, err
	}
	rates, err := spanOf(r, "msg_rates")
	if err != nil {
		return nil, err
	}
	info, err := a.cfg.Broker.FindQueue(r.Context(), vhost, r.PathValue("name"))
	if err != nil {
		return nil, ofBroker(err)
	}
	ctx := r.Context()
	f := a.queueTable(ctx).of(info.ID)
	j := withFigures(&info, f, a.past(ctx, stats.Key{Kind: stats.Led, ID: info.ID}, lengths))
	j.MessageStats = messageStats(countersOfQueue, f.counted(), a.past(ctx, stats.Key{Kind: stats.Queue, ID: info.ID}, rates))
	j.QueueDetails = a.queueDetails(ctx, []uint64{info.ID})[info.ID]
	j.Incoming = a.incoming(ctx, &info)
	a.addConsumers(ctx, &j, info.ID)
	return j, nil
}
