package management

import (
	"net/http"

	"github.com/warrenmq/warren/broker"
)

// deadLettersJSON is what a queue has of dead letters, in groups.
type deadLettersJSON struct {
	broker.DeadLetters

	// AgeBounds are where the counts of a group's ages divide, in ms.
	AgeBounds []int64 `json:"age_bounds_ms"`
}

func (a *API) routeDeadLetters() {
	a.handle("GET /api/warren/queues/{vhost}/{name}/dead-letters", a.groupDeadLetters)
}

// groupDeadLetters counts the messages of a queue by their newest death: where, why, how long ago.
func (a *API) groupDeadLetters(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	d, err := a.cfg.Broker.DeadLetters(r.Context(), atBroker(u), vhost, r.PathValue("name"))
	if err != nil {
		return nil, ofBroker(err)
	}
	j := deadLettersJSON{DeadLetters: d}
	if j.Groups == nil {
		j.Groups = []broker.DeadGroup{}
	}
	for _, bound := range broker.AgeBounds {
		j.AgeBounds = append(j.AgeBounds, bound.Milliseconds())
	}
	return j, nil
}
