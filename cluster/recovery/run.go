package recovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
)

const (
	atOnce    = 16 // queues that are recovered at a time
	beginWait = 30 * time.Second
	lookEvery = 20 * time.Millisecond
)

// Run does what Plan says that can be done, if the request says so.
func Run(ctx context.Context, c Cluster, r *Request) (*Report, error) {
	report, err := Plan(ctx, c, r)
	if err != nil || !r.Yes {
		return report, err
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range report.Queues {
		q := &report.Queues[i]
		if q.State != Possible {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			q.recover(ctx, c)
		})
	}
	wg.Wait()
	return report, nil
}

// recover has the catalog decide on a queue and waits for its new leader. If somebody else has had the queue go on since it was planned, it waits for that one.
func (q *Queue) recover(ctx context.Context, c Cluster) {
	res, err := c.Propose(ctx, &catalog.RecoverQueue{ID: q.ID, Survivors: q.ranked, Lost: q.lost, IfSettings: q.settings})
	refused, refusal := errors.AsType[*amqp.Error](err)
	switch {
	case refusal && refused.Code == amqp.NotFound: // somebody was faster
		now, _ := c.View().Successor(q.ID)
		if now == nil {
			q.State = Deleted
			return
		}
		res.ID = now.ID
	case err != nil:
		q.State, q.Why = Refused, err.Error()
		if !refusal && !errors.Is(err, catalog.ErrLevel) {
			q.Why = "whether the catalog has decided is not known: " + q.Why
		}
		return
	}
	q.State, q.NewID = Pending, res.ID
	q.await(ctx, c, res.Index)
}

// await waits for the first leader of a queue that the catalog, at index, lets go on.
func (q *Queue) await(ctx context.Context, c Cluster, index uint64) {
	ctx, cancel := context.WithTimeout(ctx, beginWait)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if v := c.View(); v.Revision() >= index {
			now := v.QueueByID(q.NewID)
			if now == nil {
				q.State = Deleted
				return
			}
			if now.Survivors == nil {
				q.State, q.Messages, q.Again = Recovered, now.Kept.Messages, now.Kept.Again
				return
			}
		}
		select {
		case <-ctx.Done():
			q.Why = "its new leader has not begun yet: look at the log of node '" + q.Keep + "'"
			return
		case <-tick.C:
		}
	}
}
