package management

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warrenmq/warren/broker"
)

// outboxes is what the API needs of the node's [broker.Broker] to show dead letters on
// their way out.
type outboxes interface {
	// Outbox describes one queue's; the error is a *broker.Error with NotFound if there
	// is no such queue.
	Outbox(ctx context.Context, vhost, name string) (broker.OutboxStatus, error)
	// Outboxes describes all that are not empty and whose oldest item has waited for at
	// least so long. What some nodes know is returned with the errors of the others.
	Outboxes(ctx context.Context, older time.Duration) ([]broker.OutboxStatus, error)
	// UnknownOutboxes are those that nobody can tell of.
	UnknownOutboxes() []broker.OutboxStatus
}

func (a *API) routeOutboxes() {
	a.handle("GET /api/warren/outboxes", a.listOutboxes)
	a.handle("GET /api/warren/outboxes/{vhost}", a.listOutboxes)
	a.handle("GET /api/warren/queues/{vhost}/{name}/outbox", a.getOutbox)
	a.serve("GET /api/health/checks/warren/dead-letters", a.checkDeadLetters)
}

// listOutboxes shows the outboxes that are not empty, of one vhost or of all. A node that
// does not answer is left out, which the log tells.
func (a *API) listOutboxes(r *http.Request, u User) (any, error) {
	vhost := ""
	if r.PathValue("vhost") != "" {
		var err error
		if vhost, err = a.vhost(r, u); err != nil {
			return nil, err
		}
	}
	all, err := a.cfg.Broker.Outboxes(r.Context(), 0)
	if err != nil {
		a.cfg.Logger.Warn("outboxes of some nodes are missing", "err", err)
	}
	all = slices.DeleteFunc(all, func(s broker.OutboxStatus) bool {
		return vhost != "" && s.VHost != vhost || !u.monitors() && !a.cfg.Broker.MayEnter(atBroker(u), s.VHost)
	})
	slices.SortFunc(all, func(x, y broker.OutboxStatus) int {
		return cmp.Or(strings.Compare(x.VHost, y.VHost), strings.Compare(x.Queue, y.Queue), cmp.Compare(x.ID, y.ID))
	})
	return paged(r, all)
}

func (a *API) getOutbox(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	s, err := a.cfg.Broker.Outbox(r.Context(), vhost, r.PathValue("name"))
	if err != nil {
		return nil, ofBroker(err)
	}
	return s, nil
}

// stuckDefault is how old the oldest item of an outbox may be.
const stuckDefault = 60 * time.Second

// deadLettersHealth is the answer of the health check.
type deadLettersHealth struct {
	Status string       `json:"status"` // ok or failed
	Reason string       `json:"reason,omitempty"`
	Queues []stuckQueue `json:"queues,omitempty"`
}

// stuckQueue names a queue whose dead letters do not get on.
type stuckQueue struct {
	broker.OutboxStatus
	Why string `json:"why"`
}

// checkDeadLetters answers 200 while no dead letter of the cluster has waited in an outbox
// for longer than older_than seconds, 60 by default. It fails also if that is not known: a node that is not
// known to be dead does not answer, or a queue that dead-letters has too few replicas that run.
func (a *API) checkDeadLetters(w http.ResponseWriter, r *http.Request) {
	u, err := a.authenticate(r)
	if err == nil && !u.monitors() {
		err = errNotAuthorised
	}
	older := stuckDefault
	if err == nil {
		older, err = seconds(r, "older_than", stuckDefault)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	list, err := a.cfg.Broker.Outboxes(r.Context(), older)
	unknown := a.cfg.Broker.UnknownOutboxes()
	if err == nil && len(list) == 0 && len(unknown) == 0 {
		a.write(w, http.StatusOK, deadLettersHealth{Status: "ok"})
		return
	}
	h := deadLettersHealth{Status: "failed"}
	for _, s := range list {
		h.Queues = append(h.Queues, stuckQueue{s, s.Stuck()})
	}
	for _, s := range unknown {
		h.Queues = append(h.Queues, stuckQueue{s, "not known: too few of the queue's replicas run"})
	}
	switch {
	case len(list) > 0:
		h.Reason = fmt.Sprintf("dead letters of %d queue(s) have waited for %v or longer", len(list), older)
	case err != nil:
		h.Reason = "not every node answered: " + err.Error()
	default:
		h.Reason = fmt.Sprintf("whether dead letters of %d queue(s) wait is not known: too few replicas run", len(unknown))
	}
	a.write(w, http.StatusServiceUnavailable, h)
}

// secondsMax bounds a parameter in seconds.
const secondsMax = 365 * 24 * 60 * 60

// seconds reads a parameter in seconds, fractions allowed.
func seconds(r *http.Request, name string, otherwise time.Duration) (time.Duration, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= secondsMax) { // not a number is neither
		return 0, badRequest(fmt.Sprintf("%s is not a number of seconds between 0 and %d: %q", name, secondsMax, text))
	}
	return time.Duration(n * float64(time.Second)), nil
}
