package broker

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// What management tools do with users and permissions. A change holds on every living
// node when it is answered. Errors are *Error: NotFound for what does not exist,
// PreconditionFailed for content that cannot be stored.

// Users lists the users in the order of their names. They are read only.
func (b *Broker) Users() []*auth.User { return slices.Collect(b.cat.View().Users()) }

// FindUser returns a user, read only.
func (b *Broker) FindUser(ctx context.Context, name string) (*auth.User, error) {
	if u := b.cat.View().User(name); u != nil {
		return u, nil
	}
	view, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	if u := view.User(name); u != nil {
		return u, nil
	}
	return nil, noUser(name)
}

// Renew gives a user that has logged in the tags of now. The error is an *Error with AccessRefused: the user has been deleted since, or with ConnectionForced: the
// token has ended that says what the user may do.
func (b *Broker) Renew(u User) (User, error) {
	if u.Rights != nil {
		if !u.Until.IsZero() && !time.Now().Before(u.Until) {
			return u, CredentialExpired()
		}
		return u, nil
	}
	now := b.cat.View().User(u.Name)
	if now == nil || u.entry != nil && now.Added != u.entry.Added && now.Added > 0 { // another user may get the name
		return u, Errorf(AccessRefused, "user '%s' is deleted", u.Name)
	}
	u.Tags = withTags(now.Tags, u.lent)
	return u, nil
}

// CredentialExpired is why a connection ends whose token does. The words are RabbitMQ's.
func CredentialExpired() *Error { return Errorf(ConnectionForced, "credential expired") }

func noUser(name string) *Error { return Errorf(NotFound, "user '%s' not found", name) }

// PutUser makes a user, or replaces the password and the tags of one. Limits are ignored.
func (b *Broker) PutUser(ctx context.Context, u auth.User) (created bool, err error) {
	return b.changeEverywhere(ctx, &catalog.PutUser{User: u})
}

// AddUser makes a user; one of that name is refused with PreconditionFailed.
func (b *Broker) AddUser(ctx context.Context, u auth.User) error {
	return b.changeUser(ctx, u, catalog.AddUser)
}

// SetPassword replaces a user's password. With the empty hash nobody can log in with one.
func (b *Broker) SetPassword(ctx context.Context, name string, hash auth.PasswordHash) error {
	return b.changeUser(ctx, auth.User{Name: name, PasswordHash: hash}, catalog.SetPassword)
}

// SetTags replaces a user's tags.
func (b *Broker) SetTags(ctx context.Context, name string, tags []string) error {
	return b.changeUser(ctx, auth.User{Name: name, Tags: tags}, catalog.SetTags)
}

func (b *Broker) changeUser(ctx context.Context, u auth.User, what catalog.UserChange) error {
	_, err := b.changeEverywhere(ctx, &catalog.ChangeUser{User: u, What: what})
	return err
}

// DeleteUser deletes a user with its permissions. Its connections end, on each node as
// that learns of it.
func (b *Broker) DeleteUser(ctx context.Context, name string) error {
	changed, err := b.changeEverywhere(ctx, &catalog.DeleteUser{Name: name})
	if err == nil && !changed {
		return noUser(name)
	}
	return err
}

// Permissions lists the permissions in a vhost, or with "" in all, of a user, or with "" of
// all, by vhost and user. They are read only.
func (b *Broker) Permissions(vhost, user string) []*auth.Permission {
	return collect(b.cat.View().Permissions(), func(p *auth.Permission) bool {
		return (vhost == "" || p.Vhost == vhost) && (user == "" || p.User == user)
	})
}

// TopicPermissions is Permissions for those of topic exchanges.
func (b *Broker) TopicPermissions(vhost, user string) []*auth.TopicPermission {
	return collect(b.cat.View().TopicPermissions(), func(p *auth.TopicPermission) bool {
		return (vhost == "" || p.Vhost == vhost) && (user == "" || p.User == user)
	})
}

func collect[T any](all iter.Seq[T], wanted func(T) bool) (list []T) {
	for x := range all {
		if wanted(x) {
			list = append(list, x)
		}
	}
	return list
}

// PutPermission gives or replaces what a user may do in a vhost. The patterns are those of
// [auth.NewPermission].
func (b *Broker) PutPermission(ctx context.Context, vhost, user, configure, write, read string) (created bool, err error) {
	return b.changeEverywhere(ctx, &catalog.PutPermission{Vhost: vhost, User: user, Configure: configure, Write: write, Read: read})
}

// DeletePermission takes everything a user may do in a vhost. What is open stays open.
func (b *Broker) DeletePermission(ctx context.Context, vhost, user string) error {
	changed, err := b.changeEverywhere(ctx, &catalog.DeletePermission{Vhost: vhost, User: user})
	if err == nil && !changed {
		return Errorf(NotFound, "user '%s' has no permissions in vhost '%s'", user, vhost)
	}
	return err
}

// PutTopicPermission gives or replaces what a user may do with the keys of a topic exchange,
// which need not exist. The patterns are those of [auth.NewTopicPermission].
func (b *Broker) PutTopicPermission(ctx context.Context, vhost, user, exchange, write, read string) (created bool, err error) {
	return b.changeEverywhere(ctx, &catalog.PutTopicPermission{Vhost: vhost, User: user, Exchange: exchange, Write: write, Read: read})
}

// DeleteTopicPermission takes a user's entry for an exchange, or with "" those for all
// exchanges of the vhost: without one, all keys are allowed.
func (b *Broker) DeleteTopicPermission(ctx context.Context, vhost, user, exchange string) error {
	changed, err := b.changeEverywhere(ctx, &catalog.DeleteTopicPermission{Vhost: vhost, User: user, Exchange: exchange})
	if err == nil && !changed {
		return Errorf(NotFound, "user '%s' has no topic permissions in vhost '%s'", user, vhost)
	}
	return err
}

// changeEverywhere proposes a tool's change and waits a moment for the other living nodes. Unlike
// changeSeen it waits in any case: some commands report only what is new as changed, and
// what was already there may be on its way to other nodes still.
func (b *Broker) changeEverywhere(ctx context.Context, cmd catalog.Command) (changed bool, err error) {
	proposing, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	res, err := b.cat.Propose(proposing, cmd)
	if err != nil {
		return false, asError(err)
	}
	waiting, cancelWait := context.WithTimeout(ctx, everyoneWait)
	defer cancelWait()
	_ = b.cat.WaitEveryone(waiting, res.Index) // a slow node sees it later
	return res.Changed, nil
}

// closeStrangers ends the connections of users and vhosts that were deleted between two
// views, old being nil for the first.
func (b *Broker) closeStrangers(old, now *catalog.View) {
	if now.SameAccess(old) {
		return
	}
	b.mu.Lock()
	conns := make([]*Conn, 0, len(b.conns))
	for _, c := range b.conns {
		conns = append(conns, c)
	}
	b.mu.Unlock()
	for _, c := range conns {
		if why := c.stranger(now); why != nil && c.info.Kick != nil {
			c.info.Kick(why)
		}
	}
}

// stranger tells why a connection has no place in the catalog any more, nil if it has. The
// words are RabbitMQ's.
func (c *Conn) stranger(view *catalog.View) *Error {
	h, u := view.Vhost(c.vhost), view.User(c.login)
	switch {
	case c.brought && h != nil && h.Created == c.vhostCreated:
	case !c.brought && (u == nil || u.Added != c.userAdded && u.Added > 0): // another user may get the name
		return Errorf(ConnectionForced, "user '%s' is deleted", c.login)
	case h == nil || h.Created != c.vhostCreated:
		return Errorf(ConnectionForced, "vhost '%s' is deleted", c.vhost)
	}
	return nil
}
