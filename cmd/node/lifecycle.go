package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	gateway "github.com/warrenmq/warren/gateway/amqp"
)

// phase is what a node is doing as a whole.
type phase int32

const (
	starting phase = iota
	serving
	stopping
)

func (p phase) String() string { return [...]string{"starting", "serving", "stopping"}[p] }

// Bounds of the steps by which a node leaves; see docs/adr/0026-order-of-stopping.md. The steps together and the
// end of the process share Config.StopTimeout.
const (
	timeoutYield   = 2 * time.Second // for another node to lead the catalog
	timeoutQuiet   = 2 * time.Second // for the answers to what was read of publishers
	timeoutClients = 5 * time.Second // for clients to answer connection.close, beside the waves
	timeoutRest    = time.Second     // for queues to take what the ends of connections gave back
	shutdownWaves  = 20
	shutdownEvery  = 100 * time.Millisecond
	// closeShare is the part of StopTimeout that is kept for the end of the process.
	closeShare = 3
)

// live serves until ctx ends or a part fails, and then leaves in the order that harms clients least.
func (n *running) live(ctx context.Context) error {
	n.phase.Store(int32(serving))
	catching, stop := context.WithCancel(ctx)
	caught := make(chan struct{})
	go func() { // ends with the node's time of serving at the latest
		defer close(caught)
		n.awaitLogs(catching)
	}()
	var err error
	select {
	case <-ctx.Done():
	case err = <-n.failed:
	}
	n.phase.Store(int32(stopping))
	stop()
	<-caught
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	limit := n.cfg.StopTimeout - n.cfg.StopTimeout/closeShare
	steps, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	left := make(chan struct{})
	go func() { // ends with leave
		defer close(left)
		n.leave(steps)
	}()
	select {
	case <-left:
	case <-again:
		n.log.Warn("asked again to stop: not waiting for clients and other nodes any more")
		cancel()
		<-left
	}
	return err
}

// leave takes a node out of its cluster and away from its clients, step by step. Each step has its own bound, and what
// it did not do by then is left to what happens when a node dies. ctx bounds all of them.
func (n *running) leave(ctx context.Context) {
	n.log.Info("stopping")
	begun := time.Now()
	n.step(ctx, "listeners", n.cfg.StopTimeout, func(context.Context) { n.amqp.CloseListeners() })
	// Leaders first: a client that is sent away would meet the searching of its queues' leaders elsewhere.
	var moved, stayed int
	n.step(ctx, "leaders", n.cfg.StopTimeout/2, func(ctx context.Context) {
		d := n.host.Drain(ctx, nil)
		moved, stayed = d.Moved, d.Stayed
	})
	n.step(ctx, "catalog", timeoutYield, func(ctx context.Context) {
		if err := n.catalog.Load().Yield(ctx, nil); err != nil && len(n.livePeers()) > 0 {
			n.log.Warn("the catalog's leadership stays", "err", err)
		}
	})
	unanswered := 0
	n.step(ctx, "publishers", timeoutQuiet, func(ctx context.Context) { unanswered = n.amqp.Quiesce(ctx) })
	clients := n.amqp.Stats().Connections
	n.step(ctx, "clients", timeoutClients+shutdownWaves*shutdownEvery, func(ctx context.Context) {
		if err := n.amqp.Shutdown(ctx, gateway.ShutdownOptions{Waves: shutdownWaves, Every: shutdownEvery}); err != nil {
			n.log.Warn("clients did not end their connections in time and were cut off", "err", err)
		}
	})
	n.step(ctx, "settlements", timeoutRest, func(ctx context.Context) {
		if queues := n.broker.AwaitRest(ctx); queues > 0 {
			n.log.Warn("settlements of clients may be lost", "queues", queues)
		}
	})
	n.log.Info("clients and queues are handed over", "queues_moved", moved, "queues_stayed", stayed,
		"clients", clients, "without_answers", unanswered, "after", time.Since(begun))
}

// step runs one step of leave.
func (n *running) step(ctx context.Context, name string, limit time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := time.Now()
	do(ctx)
	n.log.Debug("step of stopping", "step", name, "took", time.Since(begun), "in_time", ctx.Err() == nil)
}

// close takes the node down in reverse of how it was built. A part that hangs is an error: the process ends
// without it.
func (n *running) close() error {
	n.ready.Store(false)
	var part atomic.Pointer[string]
	ended := make(chan struct{})
	go func() { // ends with the last part, or with the process
		defer close(ended)
		for _, c := range slices.Backward(n.closers) {
			part.Store(&c.name)
			begun := time.Now()
			if err := c.end(); err != nil {
				n.log.Warn("not closed cleanly", "part", c.name, "err", err)
			}
			n.log.Debug("closed", "part", c.name, "after", time.Since(begun))
		}
	}()
	limit := max(timeoutClose, n.cfg.StopTimeout/closeShare)
	select {
	case <-ended:
		n.log.Info("stopped")
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s did not end within %v", *part.Load(), limit)
	}
}

// timeoutClose is the shortest bound for the end of the process.
const timeoutClose = 10 * time.Second
