package broker

import (
	"context"
	"iter"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// What management tools do with limits.

// LimitsOf are the limits of one vhost or one user, by their names.
type LimitsOf struct {
	Name   string
	Limits map[string]int64
}

// VhostLimits lists the vhosts that have limits, in the order of their names.
func (b *Broker) VhostLimits() []LimitsOf {
	return limited(b.cat.View().Vhosts(), func(h *catalog.Vhost) (string, eachLimit) { return h.Name, h.Limits.Each })
}

// UserLimits lists the users that have limits, in the order of their names.
func (b *Broker) UserLimits() []LimitsOf {
	return limited(b.cat.View().Users(), func(u *auth.User) (string, eachLimit) { return u.Name, u.Limits.Each })
}

// eachLimit passes the limits of one object to f.
type eachLimit func(f func(name string, l *auth.Limit))

func limited[T any](all iter.Seq[T], of func(T) (string, eachLimit)) []LimitsOf {
	list := []LimitsOf{}
	for x := range all {
		name, each := of(x)
		m := map[string]int64{}
		each(func(limit string, l *auth.Limit) {
			if l.Set {
				m[limit] = l.Value
			}
		})
		if len(m) > 0 {
			list = append(list, LimitsOf{name, m})
		}
	}
	return list
}

// HasUser reports whether there is a user of that name. That there is none is said only of
// an up-to-date catalog.
func (b *Broker) HasUser(ctx context.Context, name string) (bool, error) {
	if b.cat.View().User(name) != nil {
		return true, nil
	}
	view, err := b.fresh(ctx)
	return err == nil && view.User(name) != nil, err
}

// setLimits takes the named limits, or tells which name it does not know.
func setLimits(each eachLimit, limits map[string]int64) (unknown string) {
	known := map[string]bool{}
	each(func(name string, l *auth.Limit) {
		known[name] = true
		if v, ok := limits[name]; ok {
			*l = auth.LimitOf(v)
		}
	})
	for name := range limits {
		if !known[name] {
			return name
		}
	}
	return ""
}

// SetVhostLimits sets limits of a vhost by their names, for whatever comes from now on: what
// is open stays open. Others stay as they are, or with replace are no more. A negative one
// is shown and limits nothing. The error is an *Error: NotFound for a vhost that does not
// exist, PreconditionFailed for an unknown limit.
func (b *Broker) SetVhostLimits(ctx context.Context, vhost string, limits map[string]int64, replace bool) error {
	cmd := &catalog.PutVhostLimits{Vhost: vhost, Replace: replace}
	if unknown := setLimits(cmd.Limits.Each, limits); unknown != "" {
		return Errorf(PreconditionFailed, "unknown limit '%s' of a vhost", unknown)
	}
	return b.changeSeen(ctx, cmd)
}

// ClearVhostLimits takes a limit from a vhost, all with an empty name. One that is not there
// is fine.
func (b *Broker) ClearVhostLimits(ctx context.Context, vhost, limit string) error {
	return b.changeSeen(ctx, &catalog.DeleteVhostLimits{Vhost: vhost, Name: limit})
}

// SetUserLimits is SetVhostLimits for a user; limits that are not named stay.
func (b *Broker) SetUserLimits(ctx context.Context, user string, limits map[string]int64) error {
	cmd := &catalog.PutUserLimits{User: user}
	if unknown := setLimits(cmd.Limits.Each, limits); unknown != "" {
		return Errorf(PreconditionFailed, "unknown limit '%s' of a user", unknown)
	}
	return b.changeSeen(ctx, cmd)
}

// ClearUserLimits is ClearVhostLimits for a user.
func (b *Broker) ClearUserLimits(ctx context.Context, user, limit string) error {
	return b.changeSeen(ctx, &catalog.DeleteUserLimits{User: user, Name: limit})
}

// changeSeen proposes a tool's change and waits a moment for the other living nodes, so
// that it holds on any of them when the tool has its answer.
func (b *Broker) changeSeen(ctx context.Context, cmd catalog.Command) error {
	proposing, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	res, err := b.cat.Propose(proposing, cmd)
	if err != nil {
		return asError(err)
	}
	if res.Changed {
		waiting, cancel := context.WithTimeout(ctx, everyoneWait)
		defer cancel()
		_ = b.cat.WaitEveryone(waiting, res.Index) // a slow node sees it later
	}
	return nil
}

// NameCluster gives the cluster a name for people.
func (b *Broker) NameCluster(ctx context.Context, name string) error {
	_, err := b.changeEverywhere(ctx, &catalog.NameCluster{Name: name})
	return err
}
