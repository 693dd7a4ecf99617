package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/auth/passwords"
)

// Backend is where a login is looked for.
type Backend struct {
	// Outside is a server that is asked; nil: the catalog.
	Outside Outside
	// ByCatalog tells that what somebody may do whom Outside lets in is what the catalog says, which has to have a user of that name.
	ByCatalog bool
}

// Outside is another server that knows who may log in.
type Outside interface {
	// LogIn asks for somebody. The error wraps [auth.ErrLogin] if they may not, and [auth.ErrAway] if that cannot be told now, or is that of Still.
	LogIn(ctx context.Context, a auth.Attempt) (auth.Admission, error)
}

// lookFor has one backend after the other look at a login, until one lets it in: what that one says counts, as in RabbitMQ. If none does, and one of them could not
// look at it, nobody is told that it is refused. Errors are those of Login.
func (b *Broker) lookFor(ctx context.Context, mechanism string, a auth.Attempt, loopback bool) (User, error) {
	backends := b.cfg.Backends
	if len(backends) == 0 {
		backends = []Backend{{}}
	}
	var unsure, refused error
	for _, at := range backends {
		u, err := b.lookAt(ctx, at, a)
		switch {
		case err == nil:
			if err = (&auth.User{Name: u.Name}).LoginVerified(loopback); err == nil {
				return u, nil
			}
			b.cfg.Logger.Warn("login refused", "mechanism", mechanism, "user", a.User, "err", err)
			return User{}, loginRefused(mechanism)
		case forClient(err): // nothing is to be looked at
			return User{}, err
		case errors.Is(err, auth.ErrLogin):
			refused = errors.Join(refused, err)
		case unsure == nil:
			unsure = err
		}
	}
	switch {
	case unsure == nil:
		b.cfg.Logger.Warn("login refused", "mechanism", mechanism, "user", a.User, "err", refused)
		return User{}, loginRefused(mechanism)
	case errors.Is(unsure, passwords.ErrBusy):
		b.cfg.Logger.Warn("login not looked at", "user", a.User, "err", unsure)
		return User{}, Errorf(Unavailable, "%v", unsure)
	case errors.Is(unsure, auth.ErrAway):
		b.cfg.Logger.Warn("login refused: it cannot be looked at now", "mechanism", mechanism, "user", a.User, "err", unsure)
		e := loginRefused(mechanism)
		e.Away = true
		return User{}, e
	}
	return User{}, unsure
}

// forClient tells whether an error is what Still says.
func forClient(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == AccessRefused
}

// lookAt has one backend look at a login. Errors wrap [auth.ErrLogin], [auth.ErrAway] or [passwords.ErrBusy], or are what a client is told.
func (b *Broker) lookAt(ctx context.Context, at Backend, a auth.Attempt) (User, error) {
	if at.Outside == nil {
		u, err := b.inCatalog(ctx, a)
		if err != nil {
			return User{}, err
		}
		return ofCatalog(u), nil
	}
	got, err := at.Outside.LogIn(ctx, a)
	if err != nil {
		return User{}, err
	}
	if !at.ByCatalog {
		return User{Name: a.User, Tags: got.Tags, Rights: got.Rights}, nil
	}
	known, err := b.known(ctx, a.User)
	if err != nil {
		return User{}, err
	}
	u := ofCatalog(known)
	u.lent = got.Tags
	u.Tags = withTags(u.Tags, got.Tags)
	return u, nil
}

// inCatalog finds a user of the catalog, by a password unless the transport has verified who it is.
func (b *Broker) inCatalog(ctx context.Context, a auth.Attempt) (*auth.User, error) {
	if a.Verified {
		return b.known(ctx, a.User)
	}
	return b.checkPassword(ctx, a)
}

// withTags are both, without those that are there twice.
func withTags(tags, more []string) []string {
	if len(more) == 0 {
		return tags
	}
	all := slices.Concat(tags, more)
	slices.Sort(all)
	return slices.Compact(all)
}
