package management

import (
	"context"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// What the API knows and the gRPC API tells as well.

// Nodes describes all nodes by name, with what those that run say of themselves if they are asked.
func (a *API) Nodes(ctx context.Context, ask bool) []Node {
	if ask {
		return a.nodes(ctx)
	}
	list := a.cfg.Cluster.Nodes()
	sortByName(list)
	return list
}

// QueueLeaders tells which node leads the queue of an id, by what nodes said a moment ago; "" if none has told that it does.
func (a *API) QueueLeaders(ctx context.Context) func(id uint64) string {
	t := a.queueTableOf(ctx, lookAge)
	return func(id uint64) string { return t.of(id).leader }
}

// QueueFigures describes queues in the order of names. It calls yield for each, once: what it gets is its own for the time of the call, and
// bytes are those of the bodies of all messages. A queue that is gone has no id; one whose leader did not answer is "down".
func (a *API) QueueFigures(ctx context.Context, names []broker.QueueName, yield func(i int, info *broker.QueueInfo, bytes uint64, rates *stats.Rates)) {
	t := a.queueTable(ctx)
	list := make([]broker.QueueInfo, len(names))
	ids := make([]uint64, len(names))
	var missing []int
	a.cfg.Broker.OutlineQueues(names, true, func(i int, info *broker.QueueInfo) {
		if info == nil {
			return
		}
		f := t.of(info.ID)
		f.fill(info)
		if list[i], ids[i] = *info, info.ID; f.leader == "" && info.State == "running" {
			missing = append(missing, i)
		}
	})
	a.askQueues(ctx, ids, missing, func(i int, info *broker.QueueInfo) {
		if info == nil {
			info = new(broker.QueueInfo)
		}
		list[i] = *info
	})
	for i := range list {
		info, f := &list[i], t.of(ids[i])
		if info.Error != "" && info.State == "running" {
			info.State = "down"
		}
		bytes := uint64(0)
		if info.State == "running" && f.leader != "" {
			bytes = f.row.Bytes
		}
		yield(i, info, bytes, &f.counted().Rates)
	}
}
