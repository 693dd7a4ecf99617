package management

import (
	"testing"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// TestQueueFiguresAreTheLists: what other APIs tell of queues is what the list of queues tells.
func TestQueueFiguresAreTheLists(t *testing.T) {
	a := figured().apis["c"]
	names := a.cfg.Broker.QueueNames("")
	if len(names) == 0 {
		t.Fatal("no queues")
	}
	list := a.describeQueues(t.Context(), names, a.queueTable(t.Context()), nil, true)
	told := 0
	a.QueueFigures(t.Context(), names, func(i int, info *broker.QueueInfo, bytes uint64, rates *stats.Rates) {
		told++
		want := &list[i]
		if info.Name != want.Name || info.State != want.State || info.Leader != want.Leader || info.Ready != want.MessagesReady || info.Unacked != want.MessagesUnacked ||
			info.Consumers != want.Consumers || want.MessageBytes != nil && bytes != *want.MessageBytes {
			t.Errorf("%+v with %d bytes, want %+v", info, bytes, want)
		}
		if counted := a.queueTable(t.Context()).of(names[i].ID).counted(); *rates != counted.Rates {
			t.Errorf("%v, want %v", rates, counted.Rates)
		}
	})
	if told != len(names) {
		t.Errorf("told of %d queues of %d", told, len(names))
	}
}
