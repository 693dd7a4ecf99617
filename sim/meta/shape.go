package meta

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// Bounds of how many nodes there are.
const (
	nodesMin = 3
	nodesMax = 7
)

// reshape takes a node's disk away for good, adds a node or removes one, unless such a change is under way: so a majority of those who vote has its disks.
func (w *world) reshape(r *rand.Rand) {
	if w.shaping != nil {
		return
	}
	w.shaping = make(chan struct{})
	ids := w.present()
	id := ids[r.IntN(len(ids))]
	n := w.node(id)
	switch k := r.IntN(3); {
	case k == 0 && len(ids) < nodesMax:
		w.names++
		w.oracle.counted(func(c *counters) { c.added++ })
		w.join("n" + string(rune('0'+w.names%10)) + string(rune('a'+w.names/10)))
	case k == 1 && len(ids) > nodesMin:
		w.oracle.counted(func(c *counters) { c.removed++ })
		w.oracle.Note("%s goes for good", id)
		n.crash(r.IntN(2) == 0)
		w.gone(id)
		w.forget(id)
	default:
		w.oracle.counted(func(c *counters) { c.replaced++ })
		w.oracle.Note("%s loses its disk", id)
		n.crash(true)
		w.gone(id)
		name, _, _ := strings.Cut(string(id), "/")
		w.join(name)
	}
}

// gone takes a node out of those that there are.
func (w *world) gone(id transport.NodeID) {
	w.mu.Lock()
	w.ids = slices.DeleteFunc(slices.Clone(w.ids), func(o transport.NodeID) bool { return o == id })
	w.mu.Unlock()
	w.introduce()
}

// join makes a node with an empty disk, which is started with the others that are down.
func (w *world) join(name string) {
	n := w.add(name)
	w.oracle.Note("%s is new", n.id)
	close(w.shaping)
}

// forget has a node taken out of the cluster.
func (w *world) forget(id transport.NodeID) {
	shaping := w.shaping
	w.wg.Go(func() {
		defer close(shaping)
		for time.Sleep(time.Second); ; time.Sleep(time.Second) {
			for _, o := range w.present() {
				l := w.node(o).running()
				if l == nil {
					continue
				}
				ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
				l.forgetQueues(ctx, id)
				_, err := l.cat.Propose(ctx, &catalog.ForgetNode{ID: id})
				cancel()
				if err == nil || !w.oracle.OK() {
					return
				}
				w.oracle.Note("%s is not forgotten yet: %v", id, err)
			}
		}
	})
}

// forgetQueues ends the queues that have a node as a member.
func (l *life) forgetQueues(ctx context.Context, id transport.NodeID) {
	for q := range l.cat.View().AllQueues() {
		if slices.Contains(q.Members, id) {
			_, _ = l.cat.Propose(ctx, &catalog.DeleteQueue{Vhost: "/", Name: q.Name, ID: q.ID})
			_, _ = l.cat.Propose(ctx, &catalog.QueueGone{ID: q.ID})
		}
	}
}
