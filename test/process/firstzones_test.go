package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// zoned are nodes in these zones, the second one with a slow disk, that are started with these arguments, without waiting for any.
func zoned(t *testing.T, zones map[string]string, args ...string) *cluster.Cluster {
	t.Helper()
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, len(zones), func(cfg *cluster.Config) {
		cfg.Binary, cfg.Args = binary, args
		cfg.Places = func(node string) (cluster.Place, error) {
			return cluster.Place{Args: func(cluster.Addrs) ([]string, error) { return []string{"--zone", zones[node]}, nil }}, nil
		}
	})
	c.Node(1).SetEnv(cluster.SyncDelayEnv + "=100ms")
	for _, n := range c.Nodes() {
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestFirstQueuesAreInAllZones has a new cluster's definitions and its first client declare queues as early as can be: their replicas are in different zones,
// which nothing would make up for later.
func TestFirstQueuesAreInAllZones(t *testing.T) {
	t.Parallel()
	needWarren(t)
	var names, queues []string
	for i := range 6 {
		name := fmt.Sprintf("defined%d", i)
		names = append(names, name)
		queues = append(queues, fmt.Sprintf(`{"name": %q, "vhost": "/", "durable": true, "auto_delete": false, "arguments": {"x-queue-type": "quorum"}}`, name))
	}
	file := filepath.Join(t.TempDir(), "definitions.json")
	if err := os.WriteFile(file, []byte(`{"queues": [`+strings.Join(queues, ",")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	zones := map[string]string{"node1": "east", "node2": "east", "node3": "west", "node4": "south"}
	for what, args := range map[string][]string{"defined": {"--load-definitions", file}, "declared": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := zoned(t, zones, args...)
			ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
			defer cancel()
			var conn *amqp.Connection
			if err := cluster.Poll(ctx, func() (_ bool, err error) {
				conn, err = amqp.Dial(c.Node(0).URL())
				return err == nil, nil
			}); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ch, err := conn.Channel()
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range names {
				q, err := c.Queue(ctx, name)
				if err != nil {
					t.Fatal(err)
				}
				in := map[string]bool{}
				for _, m := range q.Members {
					node, _, _ := strings.Cut(m, "/")
					in[zones[node]] = true
				}
				if len(in) != 3 {
					t.Errorf("%s is on %v, in the zones %v", name, q.Members, in)
				}
			}
			if err := c.WaitReady(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}
