package remote

import (
	"errors"
	"time"

	"github.com/warrenmq/warren/auth"
)

// Rights are what the server says that a login may do. They implement [auth.Patient]: each method may wait for the server, up to the timeout.
type Rights struct {
	s      *Server
	l      *login
	ip     string // of the client
	before func()
}

// Source implements [auth.Rights].
func (r Rights) Source() string { return "what a server of logins permits" }

// Lasting implements [auth.Rights]: the server is asked again when an answer has become old.
func (r Rights) Lasting() bool { return false }

// Waiting implements [auth.Patient].
func (r Rights) Waiting(before func()) auth.Rights {
	r.before = before
	return r
}

// Enters implements [auth.Rights]. It takes an answer that counts now: who opens a virtual host comes in anew.
func (r Rights) Enters(vhost string) bool {
	return r.ask(question{path: Vhost, vhost: vhost, ip: r.ip})
}

// Allows implements [auth.Rights].
func (r Rights) Allows(vhost string, a auth.Action, k auth.Kind, name string) bool {
	return r.ask(question{path: Resource, vhost: vhost, kind: k, name: auth.CheckedName(k, name), action: a})
}

// Keys implements [auth.Rights].
func (r Rights) Keys(vhost, exchange string) auth.Keys { return keys{r, vhost, exchange} }

// keys are those for one topic exchange.
type keys struct {
	r               Rights
	vhost, exchange string
}

// Allows implements [auth.Keys].
func (k keys) Allows(a auth.Action, key string) bool {
	return k.r.ask(question{path: Topic, vhost: k.vhost, name: k.exchange, action: a, key: key})
}

// ask tells whether the answer is yes: the one that is remembered, that of now, or that of before while the server does not answer.
func (r Rights) ask(q question) bool {
	known := r.l.answers
	if a, _, ok := known.fresh(q, time.Now()); ok {
		r.s.counts.remember(q.path)
		return a.allowed
	}
	old := q.path != Vhost // may count on
	if old && known.stale(q) && r.s.isAway(r.l, q) {
		r.s.counts.useOld(q.path)
		return true
	}
	if r.before != nil {
		r.before()
	}
	a, err := r.s.about(r.l, q)
	switch {
	case err == nil:
		return a.allowed
	case errors.Is(err, auth.ErrAway) && old && known.stale(q):
		r.s.counts.useOld(q.path)
		return true
	}
	r.s.cfg.Log.Warn("refused, since the server of logins gives no answer", "question", q.path.String(), "user", r.l.user, "vhost", q.vhost, "name", q.name, "err", err)
	return false
}
