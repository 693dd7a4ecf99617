package load

import (
	"context"
	"fmt"
	"time"
)

// throughput publishes and consumes at once; with a rate it is latency.
func throughput(r *run) error {
	l := r.load
	if err := l.declare("", nil); err != nil {
		return err
	}
	if err := l.consume("", l.cfg.Prefetch, l.arriveAndAck); err != nil {
		return err
	}
	if err := l.publish(r.ctx, 0); err != nil {
		return err
	}
	if err := r.measure(); err != nil {
		return err
	}
	return r.drain()
}

// measure lets the load run for the warm-up and for the measured time.
func (r *run) measure() error {
	l := r.load
	if err := l.rest(r.ctx, l.cfg.Warmup); err != nil {
		return err
	}
	l.confirmLatency.reset()
	l.arrivalLatency.reset()
	l.confirmGap.reset()
	l.arrivalGap.reset()
	waited, err := r.targetsHold()
	if err != nil {
		return err
	}
	before, cpu, began := l.totals(), r.servers.usage(), time.Now()
	if err := r.profiled("load", func() error { return l.rest(r.ctx, l.cfg.Duration) }); err != nil {
		return err
	}
	waiting, err := r.targetsHold()
	if err != nil {
		return err
	}
	after, seconds := l.totals(), time.Since(began).Seconds()
	if len(r.targets) > 0 {
		r.result.MovedPerSecond = float64(after.received-before.received+waiting-waited) / seconds
	}
	r.result.ConfirmedPerSecond = float64(after.confirmed-before.confirmed) / seconds
	r.result.ConsumedPerSecond = float64(after.received-before.received) / seconds
	r.result.ServerCores = (r.servers.usage().cpu - cpu.cpu).Seconds() / seconds
	r.result.latencies(l)
	return nil
}

// drain stops the publishers and waits for what is under way.
func (r *run) drain() error {
	r.load.stopping.Store(true)
	return r.load.until(r.ctx, func(t totals) bool { return t.confirmed+t.refused == t.sent && (t.open == 0 || r.unread) })
}

// deadletter moves messages from source queues into target queues.
func deadletter(r *run) error {
	l := r.load
	if err := l.declare("-target", nil); err != nil {
		return err
	}
	err := l.declare("", func(i int) map[string]any {
		args := map[string]any{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": l.queue(i) + "-target"}
		if l.cfg.Strategy != "" {
			args["x-dead-letter-strategy"], args["x-overflow"] = l.cfg.Strategy, "reject-publish"
		}
		switch l.cfg.Via {
		case "ttl":
			args["x-message-ttl"] = 1
		case viaLimit: // the first failed attempt is the last
			args["x-queue-type"], args["x-delivery-limit"] = "quorum", 0
		}
		return args
	})
	if err != nil {
		return err
	}
	if err := l.consume("-target", l.cfg.Prefetch, l.arriveAndAck); err != nil {
		return err
	}
	if l.cfg.Preload > 0 {
		return preloaded(r)
	}
	if r.counting, err = l.connect(0); err != nil {
		return err
	}
	for i := range l.cfg.Queues {
		r.targets = append(r.targets, l.queue(i)+"-target")
	}
	if err := startRejecting(r); err != nil {
		return err
	}
	if err := l.publish(r.ctx, 0); err != nil {
		return err
	}
	if err := r.measure(); err != nil {
		return err
	}
	r.result.DeadLetteredPerSecond, r.result.ConsumedPerSecond = r.result.ConsumedPerSecond, 0
	return r.drain()
}

// targetsHold counts the ready messages of the target queues.
func (r *run) targetsHold() (n int, err error) {
	for _, name := range r.targets {
		ready, err := r.counting.Ready(name)
		if err != nil {
			return 0, fmt.Errorf("count the messages of a target: %w", err)
		}
		n += ready
	}
	return n, nil
}

func startRejecting(r *run) error {
	switch r.load.cfg.Via {
	case "ttl":
		return nil
	case viaLimit:
		return r.load.consume("", r.load.cfg.Prefetch, func(d Delivery, _, _ int) { d.Fail() })
	}
	return r.load.consume("", r.load.cfg.Prefetch, func(d Delivery, nth, _ int) {
		if nth%r.load.cfg.AckEvery == 0 {
			d.Nack(r.load.cfg.AckEvery > 1)
		}
	})
}

// preloaded fills the source first and measures the move of everything.
func preloaded(r *run) error {
	l := r.load
	each := l.cfg.Preload / l.cfg.Publishers
	total := each * l.cfg.Publishers
	if err := l.publish(r.ctx, each); err != nil {
		return err
	}
	if err := l.until(r.ctx, func(t totals) bool { return t.confirmed == total }); err != nil {
		return err
	}
	if t := l.totals(); t.confirmed != total {
		return fmt.Errorf("%d of %d messages were confirmed", t.confirmed, total)
	}
	cpu, began := r.servers.usage(), time.Now()
	var seconds float64
	err := r.profiled("move", func() error {
		if err := startRejecting(r); err != nil {
			return err
		}
		err := l.until(r.ctx, func(t totals) bool { return t.received == total })
		seconds = time.Since(began).Seconds()
		return err
	})
	if err != nil {
		return err
	}
	r.result.DeadLetteredPerSecond = float64(l.totals().received) / seconds
	r.result.ServerCores = (r.servers.usage().cpu - cpu.cpu).Seconds() / seconds
	return nil
}

// backlog publishes without a consumer, then drains.
func backlog(r *run) error {
	l := r.load
	if err := l.declare("", nil); err != nil {
		return err
	}
	each := l.cfg.Messages / l.cfg.Publishers
	total := each * l.cfg.Publishers
	before, began := r.servers.usage(), time.Now()
	err := r.profiled("publish", func() error {
		if err := l.publish(r.ctx, each); err != nil {
			return err
		}
		err := l.until(r.ctx, func(t totals) bool { return t.confirmed == total })
		r.result.PublishPerSecond = float64(l.totals().confirmed) / time.Since(began).Seconds()
		return err
	})
	if err != nil {
		return err
	}
	growth := func() float64 { return float64(r.servers.usage().rss-before.rss) / (1 << 20) }
	r.result.MemoryGrowthAtOnceMiB = growth()
	if err := l.rest(r.ctx, l.cfg.Settle); err != nil {
		return err
	}
	r.result.MemoryGrowthMiB = growth()
	began = time.Now()
	return r.profiled("drain", func() error {
		if err := l.consume("", l.cfg.Prefetch, l.arriveAndAck); err != nil {
			return err
		}
		err := l.until(r.ctx, func(t totals) bool { return t.received == total })
		r.result.DrainPerSecond = float64(l.totals().received) / time.Since(began).Seconds()
		return err
	})
}

// run is one execution of a mode.
type run struct {
	ctx     context.Context
	load    *load
	servers *servers
	result  result

	unread bool // nothing is consumed

	// targets are the target queues of a move beside publishers, which are counted over a connection of their own.
	targets  []string
	counting Conn
}
