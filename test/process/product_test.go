package process

import (
	"testing"

	"github.com/warrenmq/warren/test/cluster"
)

// TestPresentsAnotherProduct shows that clients which act by RabbitMQ's name find it where
// the node was told to say so.
func TestPresentsAnotherProduct(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Args = append(cfg.Args, "--amqp-product", "RabbitMQ/4.1.0") })
	startAll(t, c)
	s := at(t, c.Node(0))
	if p, v := s.conn.Properties["product"], s.conn.Properties["version"]; p != "RabbitMQ" || v != "4.1.0" {
		t.Errorf("product %v, version %v", p, v)
	}
	plain := newSession(t, target{name: "single", url: sharedCluster(t, 1).Node(0).URL(), warren: true})
	if p := plain.conn.Properties["product"]; p != "Warren" {
		t.Errorf("product %v without the setting", p)
	}
}
