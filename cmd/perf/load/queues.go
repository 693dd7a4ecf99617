package load

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// queues declares many queues, watches the servers while nobody uses them, and publishes to all
// in turn. Nothing is read back.
func queues(r *run) error {
	l := r.load
	r.unread = true
	conns, err := l.connectMany(l.cfg.Parallel)
	if err != nil {
		return err
	}
	before, began := r.servers.usage(), time.Now()
	var declared usage
	var seconds float64
	err = r.profiled("declare", func() error {
		err := l.share(conns, func(c Conn, queue string) error { return c.Declare(queue, l.cfg.queueArgs()) })
		declared, seconds = r.servers.usage(), time.Since(began).Seconds()
		return err
	})
	if err != nil {
		return err
	}
	r.result.DeclarePerSecond = float64(l.cfg.Queues) / seconds
	r.result.DeclareCPUMS = millis(declared.cpu-before.cpu) / float64(l.cfg.Queues)

	if err := l.rest(r.ctx, l.cfg.Warmup); err != nil {
		return err
	}
	idle, began := r.servers.usage(), time.Now()
	if err := r.profiled("idle", func() error { return l.rest(r.ctx, l.cfg.Duration) }); err != nil {
		return err
	}
	after := r.servers.usage()
	r.result.IdleCores = (after.cpu - idle.cpu).Seconds() / time.Since(began).Seconds()
	r.result.MemoryGrowthMiB = float64(after.rss-before.rss) / (1 << 20)

	if l.cfg.scrapes > 0 {
		if err := r.scrape(l.cfg.scrapes); err != nil {
			return err
		}
	}
	if l.cfg.Restart {
		if conns, err = r.restart(); err != nil {
			return err
		}
	}
	if err := l.publish(r.ctx, 0); err != nil {
		return err
	}
	if err := r.measure(); err != nil {
		return err
	}
	if err := r.drain(); err != nil {
		return err
	}
	began = time.Now()
	if err := l.share(conns, Conn.Delete); err != nil {
		return err
	}
	r.result.DeletePerSecond = float64(l.cfg.Queues) / time.Since(began).Seconds()
	return nil
}

func (l *load) connectMany(n int) (conns []Conn, err error) {
	for i := range n {
		c, err := l.connect(i)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// restartMax bounds the restart of a node.
const restartMax = 5 * time.Minute

// restart kills the last node, starts it again, and waits until it is ready and until every queue has
// answered through it. It returns new connections, because some of the former led there.
func (r *run) restart() ([]Conn, error) {
	l, nodes := r.load, r.servers.cluster.Nodes()
	node := nodes[len(nodes)-1]
	ctx, cancel := context.WithTimeout(r.ctx, restartMax)
	defer cancel()
	if err := node.Kill(); err != nil {
		return nil, err
	}
	if err := l.rest(r.ctx, l.cfg.Warmup); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := node.Launch(); err != nil {
		return nil, err
	}
	if err := node.WaitReady(ctx); err != nil {
		return nil, err
	}
	r.result.RestartReadyMS = millis(time.Since(began))
	for i := 0; i < l.cfg.Queues; {
		through, err := l.driver.Dial(node.URL())
		for ; err == nil && i < l.cfg.Queues; i++ {
			if err = through.Declare(l.queue(i), l.cfg.queueArgs()); err != nil {
				break
			}
		}
		if through != nil {
			through.Close()
		}
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
	}
	r.result.RestartQueuesMS = millis(time.Since(began))
	r.servers.note()
	return l.connectMany(l.cfg.Parallel)
}

// share does something with all queues, over these connections side by side.
func (l *load) share(conns []Conn, do func(c Conn, queue string) error) error {
	var g errgroup.Group
	for w, c := range conns {
		g.Go(func() error {
			for i := w; i < l.cfg.Queues; i += len(conns) {
				if err := do(c, l.queue(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// dialEvery is how often a server that starts is tried.
const dialEvery = time.Millisecond

// start starts empty nodes and waits until the first accepts a client that logs in.
func start(r *run) error {
	r.unread = true
	began := time.Now()
	for _, n := range r.servers.cluster.Nodes() {
		if err := n.Launch(); err != nil {
			return err
		}
	}
	for last := errors.New("not tried"); ; {
		c, err := r.load.driver.Dial(r.load.cfg.URLs[0])
		if err == nil {
			r.result.StartMS = millis(time.Since(began))
			c.Close()
			break
		}
		last = cmp.Or(err, last)
		if time.Since(began) > time.Minute {
			return last
		}
		if err := r.load.rest(r.ctx, dialEvery); err != nil {
			return err
		}
	}
	r.servers.note()
	return r.load.rest(r.ctx, r.load.cfg.Warmup)
}
