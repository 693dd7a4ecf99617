package process

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestPublishedCountsOnce: what a node says that its queues have taken only grows, by what came: neither a queue that is deleted nor one that other
// nodes lead makes it fall or jump, which Prometheus would take for a restart, and for as many messages once more.
func TestPublishedCountsOnce(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := newSession(t, target{name: "three", url: c.Node(0).URL(), warren: true})
	kept, deleted := s.queue("kept", amqp.Table{"x-queue-type": "quorum"}), s.queue("deleted", nil)
	for range 5 {
		s.publish("", kept, message("m"))
	}
	for range 3 {
		s.publish("", deleted, message("m"))
	}
	const series = "rabbitmq_queue_messages_published_total"
	awaitMetrics(t, c.Nodes(), map[string]float64{series: 8, "rabbitmq_queue_messages": 8})
	_, err := s.ch.QueueDelete(deleted, false, false, false)
	s.noError("delete", err)
	awaitMetrics(t, c.Nodes(), map[string]float64{series: 8, "rabbitmq_queue_messages": 5})

	leader, err := c.Leader(t.Context(), kept)
	s.noError("leader", err)
	for _, n := range c.Nodes() {
		if n == leader {
			continue
		}
		before := map[string]float64{}
		for _, m := range c.Nodes() {
			before[m.Name] = scrape(t, "/metrics", m)[series]
		}
		mustCtl(t, n, "transfer_leadership", "-q", kept, n.Name)
		awaitMetrics(t, c.Nodes(), map[string]float64{"rabbitmq_queues": 1, "rabbitmq_queue_messages": 5})
		for _, m := range c.Nodes() {
			if got := scrape(t, "/metrics", m)[series]; got != before[m.Name] {
				t.Errorf("with %s as leader %s has counted %v publishes, %v before", n.Name, m.Name, got, before[m.Name])
			}
		}
	}
}
