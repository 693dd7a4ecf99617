package broker

import (
	"context"
	"encoding/json"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

const opSettled = "settled"

// settledWait bounds the wait for a queue's leader to have taken over what was changed.
const settledWait = 5 * time.Second

// PauseQueue has a queue hand out nothing, or hand out again, for a user who may configure it. It answers when the queue's leader has that in
// the queue's log, so that every later leader has it; without a leader that answers it counts for the next one. The error is an
// *Error: NotFound if there is no such queue, ResourceLocked of an exclusive one.
func (b *Broker) PauseQueue(ctx context.Context, u User, vhost, name string, paused bool) error {
	return b.withConn(ctx, u, vhost, func(c *Conn) error { return c.pauseQueue(ctx, name, paused) })
}

func (c *Conn) pauseQueue(ctx context.Context, name string, paused bool) error {
	q, err := c.queue(ctx, name, auth.Configure)
	if err != nil {
		return err
	}
	var res catalog.Result
	for try := 1; ; try++ {
		if res, err = c.changeSeen(ctx, &catalog.PauseQueue{ID: q.ID, Paused: paused}); err == nil {
			break
		}
		if !isNotFound(err) || try == livesTried {
			return err
		}
		// This copy may have had a former queue of the name.
		view, stale := c.b.fresh(ctx)
		if stale != nil {
			return stale
		}
		ended := q.ID
		if q, err = c.findIn(view, name); err != nil {
			return err
		}
		if q.ID == ended {
			return Errorf(NotFound, "no queue '%s' in vhost '%s'", name, c.vhost)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, settledWait)
	defer cancel()
	var ok bool
	if err := c.b.inquire(ctx, q, opSettled, settledQuestion{Revision: res.Index}, &ok); err != nil {
		c.b.cfg.Logger.Info("a queue's leader has not taken over yet that it is paused or resumed", "queue", q.ID, "vhost", q.Vhost, "name", q.Name, "paused", paused, "err", err)
	}
	return nil
}

// settledQuestion asks whether a queue's log has what it is by this revision of the catalog, or by a newer one.
type settledQuestion struct {
	Revision uint64 `json:"revision"`
}

func answerSettled(_ context.Context, b *Broker, h *hosted, body []byte) (any, error) {
	var q settledQuestion
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, Errorf(PreconditionFailed, "settled: %v", err)
	}
	view := b.cat.View()
	now := view.QueueByID(h.id)
	h.mu.Lock()
	l, known := h.leads, h.q.PausedAt
	h.mu.Unlock()
	if l == nil || now == nil || view.Revision() < q.Revision || known < now.PausedAt || l.SettingsPending() {
		return nil, errNotHere
	}
	l.Describe() // the leader has seen what is applied
	return true, nil
}
