package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// probers is how many connections to each server that stays probe the queues.
const probers = 2

// failover kills, freezes or cuts off the leader of the first queue in the middle of the load.
func failover(r *run) (err error) {
	l := r.load
	if err := r.declareForFailover(); err != nil {
		return err
	}
	hit, err := r.servers.victim(r.ctx, l.driver, l.queue(0))
	if err != nil {
		return err
	}
	if err := l.consume("", l.cfg.Prefetch, l.arriveAndAck); err != nil {
		return err
	}
	if err := l.publish(r.ctx, 0); err != nil {
		return err
	}
	if err := l.rest(r.ctx, l.cfg.Warmup); err != nil {
		return err
	}
	p, err := r.openProbe(hit.queues)
	if err != nil {
		return err
	}
	calm, err := p.all()
	if err != nil {
		return err
	}
	l.confirmGap.reset()
	l.arrivalGap.reset()
	if err := l.rest(r.ctx, time.Second); err != nil {
		return err
	}
	l.confirmLatency.reset()
	l.arrivalLatency.reset()
	defer func() { err = errors.Join(err, hit.undo()) }()
	if l.cfg.keep { // to find one's way in the logs that stay
		fmt.Fprintln(os.Stderr, "warren-perf: hit at", time.Now().UTC().Format("15:04:05.000"))
	}
	cpu := usageOf(hit.others).cpu
	var outages *histogram
	err = r.profiled("failover", func() error {
		if err := hit.do(); err != nil {
			return fmt.Errorf("kill, stop or cut off the leader: %w", err)
		}
		outages, err = p.all()
		r.result.FailoverCPUMS = millis(usageOf(hit.others).cpu - cpu)
		return err
	})
	if err != nil {
		return err
	}
	if err := l.rest(r.ctx, l.cfg.Duration); err != nil {
		return err
	}
	if err := r.outlast(); err != nil {
		return err
	}
	r.result.ConfirmGapMS = millis(l.confirmGap.value())
	r.result.ArrivalGapMS = millis(l.arrivalGap.value())
	r.result.Orphans = len(hit.queues)
	r.result.QueueGapP50MS, r.result.QueueGapP99MS, r.result.QueueGapMaxMS = outages.summary()
	_, r.result.CalmP99MS, _ = calm.summary()
	err = r.drain()
	r.result.latencies(l) // since the leader's end, of the latest too
	return err
}

// declareForFailover declares the queues, if they are to have one leader over the first server.
func (r *run) declareForFailover() error {
	l := r.load
	urls := l.cfg.URLs
	if l.cfg.OneLeader {
		urls = urls[:1]
	}
	conns := make([]Conn, max(l.cfg.Parallel, min(l.cfg.Queues, len(urls))))
	for i := range conns {
		var err error
		if conns[i], err = l.driver.Dial(urls[i%len(urls)]); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	return l.share(conns, func(c Conn, queue string) error { return declareAnew(c, queue, l.cfg.queueArgs()) })
}

// outageMax is how long the end of an outage is waited for.
const outageMax = 2 * time.Minute

// outlast waits for a confirm and a delivery: a gap counts when it has ended.
func (r *run) outlast() error {
	before, began := r.load.totals(), time.Now()
	err := r.load.until(r.ctx, func(t totals) bool {
		return t.confirmed > before.confirmed && t.received > before.received || time.Since(began) > outageMax
	})
	if after := r.load.totals(); err == nil && (after.confirmed == before.confirmed || after.received == before.received) {
		return errors.New("the outage did not end")
	}
	return err
}

// probe publishes one message to each of some queues and waits for each confirm by itself: how
// long a queue is away shows even if it has one message in a second, and whatever the others do.
type probe struct {
	r      *run
	queues []string
	conns  []Conn
	books  *books
	index  int // of the books, in the stamps
}

// openProbe connects to the servers that stay. Nothing is probed over a protocol that hands
// confirms over in order only.
func (r *run) openProbe(queues []string) (*probe, error) {
	index := len(r.load.books) - 1
	p := &probe{r: r, queues: queues, books: r.load.books[index], index: index}
	for i := range probers * len(r.load.cfg.URLs) {
		c, err := r.load.connect(i)
		if err != nil {
			return nil, err
		}
		if _, ok := c.(Prober); !ok {
			p.queues = nil
			return p, nil
		}
		if err := c.Confirms(len(queues)+1, func(int, bool) {}, r.load.fail); err != nil {
			return nil, err
		}
		p.conns = append(p.conns, c)
	}
	return p, nil
}

// all probes every queue once.
func (p *probe) all() (*histogram, error) {
	took := &histogram{}
	if len(p.queues) == 0 {
		return took, nil
	}
	ctx, cancel := context.WithTimeout(p.r.ctx, outageMax)
	defer cancel()
	began := time.Now()
	var senders, waiters sync.WaitGroup
	failed := make(chan error, len(p.conns)+len(p.queues))
	for i, c := range p.conns {
		senders.Go(func() {
			for q := i; q < len(p.queues); q += len(p.conns) {
				number, at := p.books.send(), p.r.load.now()
				body := make([]byte, p.r.load.cfg.Size)
				stamp(body, p.index, number, at)
				confirmed, err := c.(Prober).Probe(ctx, p.queues[q], body)
				if err != nil {
					failed <- fmt.Errorf("probe: %w", err)
					return
				}
				waiters.Go(func() {
					taken, err := confirmed(ctx)
					if err != nil {
						failed <- fmt.Errorf("probe of %s: %w", p.queues[q], err)
						return
					}
					took.add(time.Since(began))
					p.books.confirm(number, taken)
				})
			}
		})
	}
	senders.Wait()
	waiters.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return took, nil
	}
}

// summary returns median, 99th percentile and maximum in ms.
func (h *histogram) summary() (p50, p99, most float64) {
	return millis(h.quantile(0.5)), millis(h.quantile(0.99)), millis(h.quantile(1))
}
