package management

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// fakeBroker is the part of a broker that a test needs: each topic's file has its own
// methods, and the others panic.
type fakeBroker struct {
	Broker
	vhosts map[string][]string // users with permissions, by vhost
	queues []broker.QueueInfo
	// What the node leads, what its clients have used, their consumers, and how often a queue was asked for.
	rows      []broker.QueueRow
	used      map[uint64]stats.Set
	consumers []broker.ConsumerInfo
	// What clients have done, by vhost and by exchange.
	vhostUsed     map[string]*stats.Set
	exchangesUsed map[string]stats.Set
	asked         *atomic.Int64
	details       map[uint64]broker.QueueDetail
	incoming      map[uint64][]broker.Incoming
	detailed      int // how many details were asked for
	// catchUp brings the copy of the catalog up to date; nil: it is.
	catchUp func() error
}

func (f *fakeBroker) HasVhost(_ context.Context, name string) (bool, error) {
	_, ok := f.vhosts[name]
	return ok, nil
}

func (f *fakeBroker) UpToDate(context.Context) error {
	if f.catchUp != nil {
		return f.catchUp()
	}
	return nil
}

func (f *fakeBroker) MayEnter(u broker.User, vhost string) bool {
	return slices.Contains(f.vhosts[vhost], u.Name)
}

func (f *fakeBroker) VhostInfos() (list []broker.VhostInfo) {
	for _, name := range slices.Sorted(maps.Keys(f.vhosts)) {
		list = append(list, broker.VhostInfo{Name: name})
	}
	return list
}

// QueuesDeclaredBy takes queues for a user's whose names begin with the user's.
func (f *fakeBroker) QueuesDeclaredBy(user string) []broker.QueueName {
	return only(f.QueueNames(""), func(q broker.QueueName) bool { return strings.HasPrefix(q.Name, user+".") })
}

func (f *fakeBroker) QueueNames(vhost string) (list []broker.QueueName) {
	for i, q := range f.queues {
		if vhost == "" || vhost == q.VHost {
			list = append(list, broker.QueueName{ID: uint64(i + 1), VHost: q.VHost, Name: q.Name})
		}
	}
	return list
}

// OutlineQueue knows nothing that only a leader knows.
func (f *fakeBroker) OutlineQueue(id uint64) (broker.QueueInfo, bool) {
	if id == 0 || id > uint64(len(f.queues)) {
		return broker.QueueInfo{}, false
	}
	q := f.queues[id-1]
	q.Ready, q.Unacked, q.Delayed, q.Outbox, q.OutboxBytes, q.Consumers, q.Leader, q.Error = 0, 0, 0, 0, 0, 0, "", ""
	return q, true
}

func (f *fakeBroker) OutlineQueues(list []broker.QueueName, _ bool, yield func(int, *broker.QueueInfo)) {
	for i, n := range list {
		if info, ok := f.OutlineQueue(n.ID); ok {
			info.ID = n.ID
			yield(i, &info)
		} else {
			yield(i, nil)
		}
	}
}

func (f *fakeBroker) AskQueue(_ context.Context, id uint64) (broker.QueueInfo, bool) {
	if f.asked != nil {
		f.asked.Add(1)
	}
	return f.queues[id-1], true
}

func (f *fakeBroker) Rows(yield func(*broker.QueueRow) bool) {
	for i := range f.rows {
		if !yield(&f.rows[i]) {
			return
		}
	}
}

func (f *fakeBroker) QueueDetails(ids []uint64) (list []broker.QueueDetail) {
	f.detailed += len(ids)
	for _, id := range ids {
		if d, ok := f.details[id]; ok {
			d.ID = id
			list = append(list, d)
		}
	}
	return list
}

func (f *fakeBroker) Incoming(queue uint64) []broker.Incoming { return f.incoming[queue] }

func (f *fakeBroker) UsedQueues(yield func(uint64, *stats.Set)) {
	for id, s := range f.used {
		yield(id, &s)
	}
}

func (f *fakeBroker) Consumers() []broker.ConsumerInfo { return f.consumers }

func (f *fakeBroker) FindQueue(_ context.Context, vhost, name string) (broker.QueueInfo, error) {
	for i, q := range f.queues {
		if q.VHost == vhost && q.Name == name {
			q.ID = uint64(i + 1)
			return q, nil
		}
	}
	return broker.QueueInfo{}, broker.Errorf(broker.NotFound, "no queue '%s' in vhost '%s'", name, vhost)
}

func TestQueues(t *testing.T) {
	f := newFakeCluster("a")
	f.apis["a"].cfg.Cluster = fakeNodes{local: "a"}
	f.apis["a"].cfg.Broker = &fakeBroker{
		vhosts: map[string][]string{"/": {"manager"}, "v": {}},
		queues: []broker.QueueInfo{
			{
				VHost: "/", Name: "q/1", Type: "quorum", Durable: true, State: "running", Leader: "n1", Members: []string{"n1", "n2"}, Online: []string{"n1"},
				Ready: 3, Unacked: 2, Delayed: 1, Outbox: 4, OutboxBytes: 40, Consumers: 5, Arguments: amqp.Table{{Name: "x-queue-type", Value: "quorum"}},
				Counted: true, DeliveryLimit: 20, DelayedRetry: "failed (min: 1000ms, max: 4000ms)",
			},
			{VHost: "/", Name: "unlimited", State: "running", Counted: true, DeliveryLimit: -1, DelayedRetry: "disabled"},
			{VHost: "v", Name: "lost", Type: "classic", State: "running", Error: "no leader"},
		},
	}
	f.lists(t, "a", []listCase{
		{"admin", "/api/queues", 200, "q/1, unlimited, lost"},
		{"monitor", "/api/queues/", 200, "q/1, unlimited, lost"},
		{"manager", "/api/queues", 200, "q/1, unlimited"},
		{"other", "/api/queues", 200, ""},
		{"admin", "/api/queues/v", 200, "lost"},
		{"manager", "/api/queues/%2F", 200, "q/1, unlimited"},
		{"admin", "/api/queues/%2f", 200, "q/1, unlimited"},
		{"manager", "/api/queues/v", 401, ""},
		{"admin", "/api/queues/w", 404, ""},
		{"admin", "/api/queues/%2F/none", 404, ""},
		{"manager", "/api/queues/v/lost", 401, ""},
	})
	_, body, _ := f.do(t, "a", "manager", "GET", "/api/queues/%2F/q%2F1")
	for _, want := range []string{
		`"name":"q/1"`, `"vhost":"/"`, `"type":"quorum"`, `"messages":6`, `"messages_ready":3`, `"messages_unacknowledged":2`, `"messages_delayed":1`,
		`"messages_dlx":4`, `"message_bytes_dlx":40`, `"consumers":5`, `"state":"running"`, `"node":"n1"`, `"members":["n1","n2"]`, `"online":["n1"]`, `"arguments":{"x-queue-type":"quorum"}`,
		`"delivery_limit":20`, `"delayed_retry":"failed (min: 1000ms, max: 4000ms)"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
	if _, body, _ := f.do(t, "a", "admin", "GET", "/api/queues/%2F/unlimited"); !strings.Contains(body, `"delivery_limit":"unlimited","delayed_retry":"disabled"`) {
		t.Errorf("a queue without a limit: %s", body)
	}
	if _, body, _ := f.do(t, "a", "admin", "GET", "/api/queues/v/lost"); !strings.Contains(body, `"state":"down"`) || strings.Contains(body, "delivery_limit") {
		t.Errorf("a queue without a leader: %s", body)
	}
}
