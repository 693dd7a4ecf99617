package broker

import (
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/leader"
)

// A queue outlives its vhost for as long as dead letters are on their way out of it. Another vhost may have the name by then: it gets
// nothing of what the former one has left, whatever the names in it.

// vhostLives tells whether the vhost of that name is the one in which the queue was declared.
func (h *hosted) vhostLives(vhost string) bool {
	v := h.qs.b.cat.View().Vhost(vhost)
	return v != nil && v.Created <= h.id
}

// routeDead is that of the broker for a dead letter of this queue.
func (h *hosted) routeDead(vhost, name string, l *mover.Letter) (targets []mover.Target, found bool) {
	if !h.vhostLives(vhost) {
		return nil, false
	}
	return h.qs.b.routeDead(vhost, name, l)
}

// wayOfDead is that of the broker for dead letters of this queue.
func (h *hosted) wayOfDead(vhost, name string, set *queue.Settings) (w leader.Way) {
	if !h.vhostLives(vhost) {
		return w
	}
	return h.qs.b.wayOfDead(vhost, name, set)
}
