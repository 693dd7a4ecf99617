package steward

import (
	"context"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// Queues in the memory of a dead node.
const (
	lostAfter   = 3 * time.Second  // default of Config.LostAfter
	silentAfter = 10 * time.Second // default of Config.SilentAfter
	lostAtOnce  = 32               // proposals under way
	lostPerLook = 2048             // queues in one look, so that repairs do not wait for them
)

// silence is a node that this process has found dead at every look since it leads the catalog.
type silence struct {
	counted  time.Duration
	revision uint64 // of the catalog at the first of these looks: what was declared later tells that the node is back
}

// mourn deletes the queues that lived in the memory of nodes that are dead. Nobody could reach or declare them, publishers to
// exchanges that they are bound to would wait, and auto-delete exchanges would stay, until the node is started again, if ever. A node that was
// only cut off, for longer than SilentAfter, finds them deleted, and its clients' consumers are cancelled.
func (s *Steward) mourn(ctx context.Context, view *catalog.View, now time.Time) {
	passed := min(now.Sub(s.mourned), 2*s.cfg.Every)
	if s.mourned.IsZero() {
		passed = 0
	}
	s.mourned = now
	silent := make(map[catalog.NodeID]silence)
	for n := range view.Nodes() {
		if n.Superseded || s.cfg.Alive(n.ID) {
			continue
		}
		was, known := s.silent[n.ID]
		if !known {
			was = silence{revision: view.Revision()}
		} else {
			was.counted += passed
		}
		silent[n.ID] = was
		limit := s.cfg.SilentAfter
		if s.cfg.Ended(n.ID) {
			limit = s.cfg.LostAfter
		}
		if was.counted >= limit {
			s.lose(ctx, view, n.ID, was.revision)
		}
	}
	s.silent = silent
}

// lose deletes the queues that were declared in the memory of a node up to a revision.
func (s *Steward) lose(ctx context.Context, view *catalog.View, id catalog.NodeID, revision uint64) {
	var list []*catalog.Queue
	for q := range view.InMemoryOf(id) {
		if q.ID <= revision && len(list) < lostPerLook {
			list = append(list, q)
		}
	}
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	var working sync.WaitGroup
	room := make(chan struct{}, lostAtOnce)
	for _, q := range list {
		room <- struct{}{}
		working.Go(func() {
			defer func() { <-room }()
			s.bereave(ctx, q)
		})
	}
	working.Wait()
	s.cfg.Logger.Info("queues in the memory of a dead node are deleted", "node", string(id), "queues", len(list), "err", ctx.Err())
}

// bereave deletes one queue. What fails is found again at the next look.
func (s *Steward) bereave(ctx context.Context, q *catalog.Queue) {
	if q.State == catalog.Running {
		if _, err := s.cfg.Catalog.Propose(ctx, &catalog.DeleteQueue{Vhost: q.Vhost, Name: q.Name, ID: q.ID}); err != nil {
			return
		}
	}
	// Its own leader would say so, and is gone.
	_, _ = s.cfg.Catalog.Propose(ctx, &catalog.QueueGone{ID: q.ID})
}
