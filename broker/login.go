package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// Source is where they come from, for those who keep order among many; Loopback tells that it is this machine. Address is the client's, without a port.
	Source, Address string
	Loopback        bool
	// Still is asked again after a wait whether the password is to be looked at; nil: it is.
	Still func() error
}

func (c Caller) attempt(cred auth.Credentials) auth.Attempt {
	return auth.Attempt{Credentials: cred, Source: c.Source, Address: c.Address, Still: c.Still}
}

// Login checks a SASL response. Errors are *Error with AccessRefused, with Unavailable if it was not looked at because too many
// log in, or what Still says. If the catalog cannot be brought up to date, who is not known here is refused with Unavailable, and who has
// another password here with TimedOut.
func (b *Broker) Login(ctx context.Context, mechanism string, response []byte, from Caller) (User, error) {
	cred, err := auth.ParseResponse(mechanism, response)
	if err != nil {
		b.cfg.Logger.Warn("login refused", "mechanism", mechanism, "err", err)
		return User{}, loginRefused(mechanism)
	}
	return b.lookFor(ctx, mechanism, from.attempt(cred), from.Loopback)
}

// loginRefused is what a client hears of a login that is refused. The words are RabbitMQ's.
func loginRefused(mechanism string) *Error {
	return Errorf(AccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", mechanism)
}

// checkPassword finds the user with those credentials. Errors are those of [passwords.Keeper.Check], and those of Login's that are about the catalog.
func (b *Broker) checkPassword(ctx context.Context, a auth.Attempt) (*auth.User, error) {
	u := b.cat.View().User(a.User)
	check := func() error {
		return b.cfg.Passwords.Check(ctx, &passwords.Try{Source: a.Source, Name: a.User, User: u, Password: string(a.Password), Still: a.Still})
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
	if now := view.User(a.User); now != u {
		u = now
		err = check()
	}
	return u, err
}

// LoginExternal lets a user in whose identity the transport has verified: the
// response of EXTERNAL may repeat it. Errors are *Error with AccessRefused, or Unavailable: the catalog cannot be brought up to date.
func (b *Broker) LoginExternal(ctx context.Context, peer string, response []byte, from Caller) (User, error) {
	name, err := auth.ParseExternal(response, peer)
	if err != nil {
		b.cfg.Logger.Warn("login refused", "mechanism", auth.MechanismExternal, "peer", peer, "err", err)
		return User{}, loginRefused(auth.MechanismExternal)
	}
	a := from.attempt(auth.Credentials{User: name})
	a.Verified = true
	return b.lookFor(ctx, auth.MechanismExternal, a, from.Loopback)
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
	u := User{Name: t.User, Tags: t.Tags, Rights: t.Rights}
	if err == nil && t.Rights == nil {
		var known *auth.User
		known, err = b.known(ctx, t.User)
		u = ofCatalog(known)
	}
	if err == nil {
		err = (&auth.User{Name: u.Name}).LoginVerified(loopback)
	}
	u.Until = t.Until
	if refusal, is := errors.AsType[*Error](err); is {
		return User{}, refusal
	}
	if err != nil {
		b.cfg.Logger.Warn("login refused", "mechanism", mechanism, "peer", t.User, "err", err)
		return User{Until: t.Until}, loginRefused(mechanism)
	}
	return u, nil
}

// known finds a user of the catalog. The error wraps [auth.ErrLogin], or is an *Error with Unavailable: the catalog cannot be brought up to date.
func (b *Broker) known(ctx context.Context, name string) (*auth.User, error) {
	u := b.cat.View().User(name)
	if u == nil {
		view, err := b.freshAccess(ctx)
		if err != nil {
			return nil, Errorf(Unavailable, "%v", err)
		}
		if u = view.User(name); u == nil {
			return nil, fmt.Errorf("%w: no such user", auth.ErrLogin)
		}
	}
	return u, nil
}

// ofCatalog is a login as a user of the catalog.
func ofCatalog(u *auth.User) User {
	if u == nil {
		return User{}
	}
	return User{Name: u.Name, Tags: u.Tags, entry: u}
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
	refusal := mayOpen(view, u, vhost)
	if refusal != nil && (u.Rights == nil || view.Vhost(vhost) == nil) {
		var err error
		if view, err = b.freshAccess(ctx); err != nil {
			return nil, err
		}
		refusal = mayOpen(view, u, vhost)
	}
	h := view.Vhost(vhost)
	if h == nil {
		return nil, refusal
	}
	// RabbitMQ looks at the limits first.
	if err := b.admitConnection(ctx, view, vhost, u.Name); err != nil {
		return nil, err
	}
	if refusal != nil {
		b.census.connectionEnds(vhost, u.Name)
		return nil, refusal
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
