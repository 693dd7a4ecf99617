package catalog

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
)

// VhostLimits bound what a vhost may hold in the whole cluster.
type VhostLimits struct{ Connections, Queues auth.Limit }

// Each passes every limit with its name to f, to be read or changed.
func (l *VhostLimits) Each(f func(name string, l *auth.Limit)) {
	f(auth.LimitConnections, &l.Connections)
	f(auth.LimitQueues, &l.Queues)
}

// PutVhostLimits sets the limits that are set in Limits. The vhost's others stay as they
// are, or with Replace are no more.
type PutVhostLimits struct {
	Vhost   string
	Limits  VhostLimits
	Replace bool
}

// DeleteVhostLimits takes the limit of that name from a vhost, all of them with an empty name.
type DeleteVhostLimits struct{ Vhost, Name string }

// PutUserLimits sets the limits that are set in Limits; the user's others stay as they are.
type PutUserLimits struct {
	User   string
	Limits auth.UserLimits
}

// DeleteUserLimits takes the limit of that name from a user, all of them with an empty name.
type DeleteUserLimits struct{ User, Name string }

func (*PutVhostLimits) kind() commandKind    { return kindPutVhostLimits }
func (*DeleteVhostLimits) kind() commandKind { return kindDeleteVhostLimits }
func (*PutUserLimits) kind() commandKind     { return kindPutUserLimits }
func (*DeleteUserLimits) kind() commandKind  { return kindDeleteUserLimits }

func limitFields(f *fields, l *auth.Limit) {
	f.bool(&l.Set)
	f.i64(&l.Value)
}

func (l *VhostLimits) fields(f *fields) {
	limitFields(f, &l.Connections)
	limitFields(f, &l.Queues)
}

func userLimitFields(f *fields, l *auth.UserLimits) {
	limitFields(f, &l.Connections)
	limitFields(f, &l.Channels)
}

func (c *PutVhostLimits) fields(f *fields) {
	str(f, &c.Vhost)
	c.Limits.fields(f)
	f.bool(&c.Replace)
}

func (c *DeleteVhostLimits) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.Name)
}

func (c *PutUserLimits) fields(f *fields) {
	str(f, &c.User)
	userLimitFields(f, &c.Limits)
}

func (c *DeleteUserLimits) fields(f *fields) {
	str(f, &c.User)
	str(f, &c.Name)
}

func (c *PutVhostLimits) validate() error { return firstError(checkSome("vhost name", c.Vhost)) }
func (c *PutUserLimits) validate() error  { return firstError(checkSome("user name", c.User)) }

func (c *DeleteVhostLimits) validate() error {
	return firstError(checkSome("vhost name", c.Vhost), checkName("limit name", c.Name))
}

func (c *DeleteUserLimits) validate() error {
	return firstError(checkSome("user name", c.User), checkName("limit name", c.Name))
}

func (c *PutVhostLimits) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.Vhost(c.Vhost)
	if old == nil {
		return Result{}, errNoVhost(c.Vhost)
	}
	h := *old
	if c.Replace {
		h.Limits = VhostLimits{}
	}
	given := map[string]auth.Limit{}
	c.Limits.Each(func(name string, l *auth.Limit) { given[name] = *l })
	h.Limits.Each(func(name string, l *auth.Limit) { overlay(l, given[name]) })
	return tx.limitVhost(old, &h), nil
}

// overlay puts given over l if it is set.
func overlay(l *auth.Limit, given auth.Limit) {
	if given.Set {
		*l = given
	}
}

func (c *DeleteVhostLimits) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.Vhost(c.Vhost)
	if old == nil {
		return Result{}, errNoVhost(c.Vhost)
	}
	h := *old
	h.Limits.Each(func(name string, l *auth.Limit) { unset(l, name, c.Name) })
	return tx.limitVhost(old, &h), nil
}

// unset clears l if it is the one that is meant; "" means all.
func unset(l *auth.Limit, name, meant string) {
	if meant == "" || name == meant {
		*l = auth.Limit{}
	}
}

func (c *PutUserLimits) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.User(c.User)
	if old == nil {
		return Result{}, errNoUser(c.User)
	}
	u := *old
	given := map[string]auth.Limit{}
	c.Limits.Each(func(name string, l *auth.Limit) { given[name] = *l })
	u.Limits.Each(func(name string, l *auth.Limit) { overlay(l, given[name]) })
	return tx.limitUser(old, &u), nil
}

func (c *DeleteUserLimits) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.User(c.User)
	if old == nil {
		return Result{}, errNoUser(c.User)
	}
	u := *old
	u.Limits.Each(func(name string, l *auth.Limit) { unset(l, name, c.Name) })
	return tx.limitUser(old, &u), nil
}

func errNoUser(name string) *amqp.Error {
	return amqp.Errorf(amqp.NotFound, 0, "user '%s' not found", name)
}

func (tx *txn) limitVhost(old, h *Vhost) Result {
	if h.Limits == old.Limits {
		return Result{}
	}
	tx.vhosts.put(key(h.Name), h)
	return Result{Changed: true}
}

func (tx *txn) limitUser(old, u *auth.User) Result {
	if u.Limits == old.Limits {
		return Result{}
	}
	tx.users.put(key(u.Name), u)
	return Result{Changed: true}
}
