package broker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/auth/passwords"
	"github.com/warrenmq/warren/catalog"
)

// Who may come in and do what is first looked up in this node's copy of the catalog. A copy may be old: nobody is refused because of one, so before a
// refusal it is brought up to date.

// accessWait bounds that. It is less than the ten seconds that clients' libraries wait for a handshake.
const accessWait = 3 * time.Second

// freshAccess is freshForRoute for that.
func (b *Broker) freshAccess(ctx context.Context) (*catalog.View, error) {
	ctx, cancel := context.WithTimeout(ctx, accessWait)
	defer cancel()
	return b.freshForRoute(ctx)
}

// Caller is who wants to log in.
type Caller struct {
	// Source is where they come from, for those who keep order among many; Loopback tells that it is this machine.
	Source   string
	Loopback bool
	// Still is asked again after a wait whether the password is to be looked at; nil: it is.
	Still func() error
}

// Login checks a SASL response. Errors are *Error with AccessRefused, with Unavailable if it was not looked at because too many
// log in, or what Still says. If the catalog cannot be brought up to date, who is not known here is refused with Unavailable, and who has
// another password here with TimedOut.
func (b *Broker) Login(ctx context.Context, mechanism string, response []byte, from Caller) (User, error) {
	refused := Errorf(AccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", mechanism)
	cred, err := auth.ParseResponse(mechanism, response)
	if err != nil {
		b.cfg.Logger.Warn("login refused", "mechanism", mechanism, "err", err)
		return User{}, refused
	}
	u, err := b.checkPassword(ctx, cred, from)
	if err == nil {
		err = u.LoginVerified(from.Loopback)
	}
	switch {
	case err == nil:
		return User{Name: u.Name, Tags: u.Tags, entry: u}, nil
	case errors.Is(err, passwords.ErrBusy):
		b.cfg.Logger.Warn("login not looked at", "user", cred.User, "err", err)
		return User{}, Errorf(Unavailable, "%v", err)
	case !errors.Is(err, auth.ErrLogin):
		return User{}, err
	}
	b.cfg.Logger.Warn("login refused", "user", cred.User, "err", err)
	return User{}, refused
}

// checkPassword finds the user with those credentials. Errors are those of [passwords.Keeper.Check], and those of Login's that are about the catalog.
func (b *Broker) checkPassword(ctx context.Context, cred auth.Credentials, from Caller) (*auth.User, error) {
	u := b.cat.View().User(cred.User)
	check := func() error {
		return b.cfg.Passwords.Check(ctx, &passwords.Try{Source: from.Source, Name: cred.User, User: u, Password: string(cred.Password), Still: from.Still})
	}
	err := check()
	if !errors.Is(err, auth.ErrLogin) {
		return u, err
	}
	view, old := b.freshAccess(ctx)
	if old != nil && u == nil {
		return nil, Errorf(Unavailable, "%v", old)
	}
	if old != nil {
		return nil, old
	}
	if now := view.User(cred.User); now != u {
		u = now
		err = check()
	}
	return u, err
}

// LoginExternal lets a user in whose identity the transport has verified: the
// response of EXTERNAL may repeat it. Errors are *Error with AccessRefused, or Unavailable: the catalog cannot be brought up to date.
func (b *Broker) LoginExternal(ctx context.Context, peer string, response []byte, loopback bool) (User, error) {
	name, err := auth.ParseExternal(response, peer)
	return b.verified(ctx, auth.MechanismExternal, name, peer, err, loopback)
}

// Token is what a token says that counts.
type Token struct {
	User  string
	Until time.Time
	// Rights and Tags are the user's, if its scopes say what the user may do; Rights is nil if the catalog does.
	Rights auth.Rights
	Tags   []string
}

// LoginToken lets the user in that a token names; err says why it does not count. Errors are those of LoginExternal.
func (b *Broker) LoginToken(ctx context.Context, mechanism string, t Token, err error, loopback bool) (User, error) {
	if err == nil && t.Rights != nil {
		if err = (&auth.User{Name: t.User}).LoginVerified(loopback); err == nil {
			return User{Name: t.User, Tags: t.Tags, Until: t.Until, Rights: t.Rights}, nil
		}
	}
	u, err := b.verified(ctx, mechanism, t.User, t.User, err, loopback)
	u.Until = t.Until
	return u, err
}

// verified lets a user in whom something else has verified, unless err says that it has not.
func (b *Broker) verified(ctx context.Context, mechanism, name, peer string, err error, loopback bool) (User, error) {
	var u *auth.User
	if err == nil {
		if u = b.cat.View().User(name); u == nil {
			view, old := b.freshAccess(ctx)
			if old != nil {
				return User{}, Errorf(Unavailable, "%v", old)
			}
			u = view.User(name)
		}
		err = u.LoginVerified(loopback)
	}
	if err != nil {
		b.cfg.Logger.Warn("login refused", "mechanism", mechanism, "peer", peer, "err", err)
		return User{}, Errorf(AccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", mechanism)
	}
	return User{Name: u.Name, Tags: u.Tags, entry: u}, nil
}

// mayOpen tells why a user may not open a vhost: there is none, or no permission for it.
func mayOpen(view *catalog.View, u User, vhost string) error {
	if view.Vhost(vhost) == nil {
		return Errorf(NotAllowed, "vhost %s not found", vhost)
	}
	return u.enters(view, vhost)
}

// Open opens a vhost for an authenticated user, within the limits of both. Errors are
// *Error with NotAllowed, or TimedOut: the catalog cannot be brought up to date.
func (b *Broker) Open(ctx context.Context, u User, vhost string, info ConnInfo) (*Conn, error) {
	view := b.cat.View()
	if mayOpen(view, u, vhost) != nil {
		var err error
		if view, err = b.freshAccess(ctx); err != nil {
			return nil, err
		}
	}
	h := view.Vhost(vhost)
	if h == nil {
		return nil, mayOpen(view, u, vhost)
	}
	// RabbitMQ looks at the limits first.
	if err := b.admitConnection(ctx, view, vhost, u.Name); err != nil {
		return nil, err
	}
	if err := mayOpen(view, u, vhost); err != nil {
		b.census.connectionEnds(vhost, u.Name)
		return nil, err
	}
	c := &Conn{
		b: b, id: b.numbers.Add(1), user: u, vhost: vhost, info: info, login: u.Name, brought: u.Rights != nil, vhostCreated: h.Created,
		channels: map[*Channel]struct{}{}, exclusive: map[uint64]string{}, exclusiveMax: pruneMin,
	}
	if at := cmp.Or(u.entry, view.User(u.Name)); at != nil {
		c.userAdded = at.Added
	}
	c.traffic = b.traffics.of(vhost, h.Created)
	c.owner = catalog.Owner{Node: catalog.NodeID(b.cfg.Node), Incarnation: b.origin().Incarnation, Connection: c.id}
	b.mu.Lock()
	b.conns[c.id] = c
	b.mu.Unlock()
	// From here on closeStrangers sees it. Who was deleted before is refused.
	if why := c.stranger(b.cat.View()); why != nil {
		c.uncount()
		return nil, Errorf(NotAllowed, "%s", why.Text)
	}
	return c, nil
}
