package jepsen

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/history"
	"github.com/warrenmq/warren/jepsen/workload"
)

// Times between two connections of a process.
const (
	redialMin, redialMax = 50 * time.Millisecond, 300 * time.Millisecond
)

// lives are the processes of a workload, and the connections of the process Final.
type lives struct {
	work  sync.WaitGroup
	final atomic.Int64
}

func (l *lives) wait() { l.work.Wait() }

// client connects to a node by the protocol of this connection.
func (r *run) client(ctx context.Context, node string, process, life int) (*client.Client, error) {
	if r.cfg.rpc(process, life) {
		return client.OpenRPC(ctx, r.clients, node, r.db.AMQP(node), r.db.GRPC(node), process, life)
	}
	return client.Open(ctx, r.clients, node, r.db.AMQP(node), process, life)
}

// live starts process number i, which ends with ctx. It begins at node i and goes to the
// next one with each connection.
func (r *run) live(ctx context.Context, i int, p workload.Process) {
	nodes := r.db.Nodes()
	r.lives.work.Go(func() {
		life := 1
		for n := i; ctx.Err() == nil; n++ {
			node := nodes[n%len(nodes)]
			c, err := r.client(ctx, node, i, life)
			if err == nil {
				life++
				err = p.Live(ctx, c)
				c.Close()
				if err != nil && ctx.Err() == nil {
					op := c.Op(history.Info, history.Connect)
					op.Error, op.Extra = err.Error(), map[string]string{"role": p.Role}
					c.Record(op)
				}
			}
			pause(ctx, redialMin+rand.N(redialMax-redialMin))
		}
	})
}

// final connects a client of the process Final to any node that takes it.
func (r *run) final(ctx context.Context) (*client.Client, error) {
	nodes := r.db.Nodes()
	life := int(r.lives.final.Add(1))
	for n := life; ; n++ {
		node := nodes[n%len(nodes)]
		c, err := r.client(ctx, node, history.Final, life)
		if err == nil {
			return c, nil
		}
		pause(ctx, redialMax)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("no node takes the connection: %w (%w)", ctx.Err(), err)
		}
	}
}
