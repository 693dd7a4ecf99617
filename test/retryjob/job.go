package retryjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"
)

// Names of the topology.
const (
	ExchangePrimary = "primary-exchange"
	ExchangeWait    = "wait-exchange"
	ExchangeParking = "parking-exchange"
	QueuePrimary    = "primary"
	QueueWait       = "wait"
	QueueParking    = "parking"

	routingKey = "job"
)

// Config describes one run.
type Config struct {
	// URLs are the AMQP addresses of the nodes. Clients are spread over them
	// and go to the next one when theirs is gone.
	URLs []string
	// Jobs is the number of messages to work on.
	Jobs int
	// Rate is the number of jobs published per second, over all publishers.
	Rate int
	// Failures is how often a job may fail before it is parked.
	Failures int
	// Delay is the first expiration; each further one is three times as long.
	Delay time.Duration
	// BodyBytes is the size of a message.
	BodyBytes int
	// Publishers and Consumers are the numbers of connections.
	Publishers, Consumers int
	// Patience is how long a client waits for a confirm before it gives its
	// node up, and how long the run waits without any progress before it counts
	// the rest as lost.
	Patience time.Duration
	// QueueArgs are added to the declarations of all queues.
	QueueArgs amqp.Table

	// Calm is called once, when every job is done or rejected: it must end the
	// faults and return when all nodes are up. Nil: nothing to end.
	Calm func(ctx context.Context) error
	// Progress, when not nil, is called about every second.
	Progress func(confirmed, closed int)
	// Transferred, when not nil, returns how many dead letters primary has ever
	// taken, by its own replicated counter; known is false when the nodes do not
	// tell.
	Transferred func(ctx context.Context) (n int, known bool, err error)
}

// Default returns the run of the demonstration, without URLs.
func Default() Config {
	return Config{
		Jobs: 10000, Rate: 400, Failures: 4, Delay: 100 * time.Millisecond, BodyBytes: 256,
		Publishers: 3, Consumers: 3, Patience: 30 * time.Second,
	}
}

const (
	intervalProgress = time.Second
	// calmEmpty is how long the queues must be empty before nothing more is
	// expected from them.
	calmEmpty = time.Second
)

// Run declares the topology, works on all jobs and reports. The error tells
// that the run itself could not be completed; what the broker did wrong is in
// the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if len(cfg.URLs) == 0 || cfg.Jobs < 1 || cfg.Rate < 1 || cfg.Publishers < 1 || cfg.Consumers < 1 || cfg.Failures < 1 {
		return Report{}, errors.New("a run needs addresses, jobs, a rate, publishers, consumers and failures")
	}
	start := time.Now()
	ledger := newLedger(cfg.Jobs)
	l, err := connect(ctx, cfg.URLs, 0, func(l *link) error { return declare(l.ch, cfg.QueueArgs) })
	if err != nil {
		return Report{}, fmt.Errorf("declare the topology: %w", err)
	}
	l.close()

	working, stop := context.WithCancel(ctx)
	defer stop()
	consumers, working2 := errgroup.WithContext(working)
	for i := range cfg.Consumers {
		c := &consumer{cfg: &cfg, ledger: ledger, index: i}
		consumers.Go(func() error { return c.run(working2) })
	}
	publishing, stopPublishing := context.WithCancel(working2)
	defer stopPublishing()
	publishers, publishing := errgroup.WithContext(publishing)
	for i := range cfg.Publishers {
		p := &publisher{cfg: &cfg, ledger: ledger, index: i}
		publishers.Go(func() error { return p.run(publishing) })
	}
	err = untilClosed(working2, &cfg, ledger)
	stopPublishing()
	err = errors.Join(err, ignoreCanceled(publishers.Wait()))
	if err == nil && cfg.Calm != nil {
		err = cfg.Calm(ctx)
	}
	if err == nil {
		// Consumers go on: what comes out of the queues now is counted, too.
		err = untilEmpty(working2, &cfg)
	}
	stop()
	if err := errors.Join(err, consumers.Wait()); err != nil {
		return Report{}, err
	}
	if err := readParking(ctx, &cfg, ledger); err != nil {
		return Report{}, fmt.Errorf("read the parking queue: %w", err)
	}
	r := ledger.report()
	if cfg.Transferred != nil {
		n, known, err := cfg.Transferred(ctx)
		if err != nil {
			return Report{}, fmt.Errorf("the counter of primary: %w", err)
		}
		if r.Counted = known; known {
			r.Duplicated = max(r.Duplicated, n-ledger.movedToPrimary())
		}
	}
	r.Elapsed = time.Since(start)
	return r, nil
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Remove deletes the topology.
func Remove(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, name := range []string{QueuePrimary, QueueWait, QueueParking} {
		if _, err := ch.QueueDelete(name, false, false, false); err != nil {
			return err
		}
	}
	for _, name := range []string{ExchangePrimary, ExchangeWait, ExchangeParking} {
		if err := ch.ExchangeDelete(name, false, false); err != nil {
			return err
		}
	}
	return ch.Close()
}

func declare(ch *amqp.Channel, extra amqp.Table) error {
	for name, kind := range map[string]string{ExchangePrimary: "direct", ExchangeWait: "direct", ExchangeParking: "fanout"} {
		if err := ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
			return err
		}
	}
	for _, q := range []struct{ name, exchange, dlx string }{
		{QueuePrimary, ExchangePrimary, ExchangeParking},
		{QueueWait, ExchangeWait, ExchangePrimary},
		{QueueParking, ExchangeParking, ""},
	} {
		args := amqp.Table{}
		maps.Copy(args, extra)
		if q.dlx != "" {
			args["x-dead-letter-exchange"] = q.dlx
		}
		if _, err := ch.QueueDeclare(q.name, true, false, false, false, args); err != nil {
			return err
		}
		if err := ch.QueueBind(q.name, routingKey, q.exchange, false, nil); err != nil {
			return err
		}
	}
	return nil
}

// untilClosed waits until every job is confirmed and closed, or nothing has
// happened for longer than cfg.Patience plus the longest delay.
func untilClosed(ctx context.Context, cfg *Config, ledger *Ledger) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	shown := time.Now()
	for {
		confirmed, closed, progress := ledger.state()
		if cfg.Progress != nil && time.Since(shown) >= intervalProgress {
			shown = time.Now()
			cfg.Progress(confirmed, closed)
		}
		if confirmed == cfg.Jobs && closed == cfg.Jobs {
			return nil
		}
		if time.Since(progress) > cfg.Patience+cfg.delay(cfg.Failures) {
			return nil // the report tells what is missing
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d jobs confirmed and %d closed: %w", confirmed, closed, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// untilEmpty waits until primary and wait have been empty for calmEmpty.
func untilEmpty(ctx context.Context, cfg *Config) error {
	l, err := connect(ctx, cfg.URLs, 0, nil)
	if err != nil {
		return err
	}
	defer l.close()
	limit := time.After(cfg.Patience + cfg.delay(cfg.Failures))
	empty := time.Now()
	for {
		for _, name := range []string{QueuePrimary, QueueWait} {
			q, err := l.ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return fmt.Errorf("look at %s: %w", name, err)
			}
			if q.Messages > 0 {
				empty = time.Now()
			}
		}
		if time.Since(empty) >= calmEmpty {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit:
			return nil // what stays behind is reported as lost
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// readParking takes everything out of the parking queue. Each message taken is
// one copy: nothing is redelivered to a client that settles by taking.
func readParking(ctx context.Context, cfg *Config, ledger *Ledger) error {
	l, err := connect(ctx, cfg.URLs, 0, nil)
	if err != nil {
		return err
	}
	defer l.close()
	for {
		d, ok, err := l.ch.Get(QueueParking, true)
		if err != nil || !ok {
			return err
		}
		id, _, err := hopOf(d)
		if err != nil {
			return err
		}
		ledger.park(id)
	}
}
