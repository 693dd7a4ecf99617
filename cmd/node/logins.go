package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/auth/attempts"
	"github.com/warrenmq/warren/auth/passwords"
	"github.com/warrenmq/warren/auth/tokens"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/metrics"
)

// openLogins makes the table of failed logins.
func (n *running) openLogins() {
	if n.cfg.LoopbackUsers == config.LoopbackNone {
		n.log.Warn("guest may log in from other machines, if there is such a user", "loopback-users", n.cfg.LoopbackUsers)
	}
	cfg := attempts.Default()
	cfg.Free = n.cfg.LoginFailures
	n.logins = attempts.New(cfg)
	n.passwords = passwords.New(passwords.Config{
		Hashing: n.hashing(), Parallel: max(1, runtime.GOMAXPROCS(0)/2), Waiting: hashesWaiting, Wait: hashWait, Known: passwordsKnown,
	})
}

// Bounds of costly password hashes; see package passwords.
const (
	hashesWaiting  = 1024
	hashWait       = 8 * time.Second // a handshake may take ten
	passwordsKnown = 4096
)

// hashing is how new passwords are hashed.
func (n *running) hashing() auth.Hashing {
	h, err := auth.ParseHashing(n.cfg.PasswordHashing)
	if err != nil {
		panic(fmt.Sprintf("password-hashing: %v", err)) // config has looked at it
	}
	return h
}

// hashPassword hashes a new password for the management API.
func (n *running) hashPassword(ctx context.Context, password, from string) (auth.PasswordHash, error) {
	hash, err := n.passwords.Hash(ctx, attempts.Network(hostOf(from)), password)
	if errors.Is(err, passwords.ErrBusy) {
		err = &management.Busy{Reason: err.Error()}
	}
	return hash, err
}

// logIn checks a password, or a token that is sent as one, unless somebody there has guessed too often; then wait is how long they have to.
func (n *running) logIn(ctx context.Context, p attempts.Protocol, mechanism string, response []byte, from string) (u broker.User, wait time.Duration, err error) {
	address, user := hostOf(from), ""
	cred, unread := auth.ParseResponse(mechanism, response)
	if unread == nil && n.tokens != nil && tokens.Shaped(string(cred.Password)) {
		u, err = n.logInByToken(ctx, p, mechanism, string(cred.Password), from)
		return u, 0, err
	}
	mayTry := func() error {
		if wait = n.logins.Wait(p, address, user, time.Now()); wait == 0 {
			return nil
		}
		n.log.Warn("login held up: too many failures", "user", user, "from", address, "wait", wait.Round(time.Millisecond))
		return broker.Errorf(broker.AccessRefused,
			"Login was refused using authentication mechanism %s. For details see the broker logfile.", mechanism)
	}
	if unread == nil {
		user = cred.User
		if err := mayTry(); err != nil {
			return u, wait, err
		}
	}
	caller := n.caller(from)
	caller.Still = mayTry
	u, err = n.broker.Login(ctx, mechanism, response, caller)
	// What was not looked at is neither a success nor a failure. TimedOut: the password was not the one that is known here.
	if e, ok := errors.AsType[*broker.Error](err); user != "" && wait == 0 && (!ok || e.Kind == broker.AccessRefused && !e.Away || e.Kind == broker.TimedOut) {
		n.logins.Done(p, address, user, err == nil, time.Now())
	}
	return u, wait, err
}

// logInHTTP is logIn for the management API.
func (n *running) logInHTTP(ctx context.Context, user, password, from string) (management.User, error) {
	u, wait, err := n.logIn(ctx, attempts.HTTP, auth.MechanismPlain, []byte("\x00"+user+"\x00"+password), from)
	if wait > 0 {
		err = &management.HeldUp{Wait: wait}
	}
	return management.User{Name: u.Name, Tags: u.Tags, Login: u}, orBusy(err)
}

// orBusy has a login that was not refused, and may succeed later or at another node, tried again.
func orBusy(err error) error {
	e, ok := errors.AsType[*broker.Error](err)
	switch {
	case ok && e.Away:
		return &management.Busy{Reason: auth.ErrAway.Error()}
	case ok && (e.Kind == broker.Unavailable || e.Kind == broker.TimedOut):
		return &management.Busy{Reason: e.Text}
	}
	return err
}

func (n *running) logInByCertificate(ctx context.Context, c *x509.Certificate, from string) (management.User, error) {
	u, err := n.broker.LoginExternal(ctx, n.peerName().Of(c), nil, n.caller(from))
	return management.User{Name: u.Name, Tags: u.Tags, Login: u}, orBusy(err)
}

// caller is who comes from an address.
func (n *running) caller(from string) broker.Caller {
	address := hostOf(from)
	return broker.Caller{Source: attempts.Network(address), Address: address, Loopback: n.admitsGuest(from)}
}

// hostOf is an address without its port.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// admitsGuest tells whether guest may log in from an address: one of this machine alone, unless the settings say otherwise.
func (n *running) admitsGuest(addr string) bool {
	return n.cfg.LoopbackUsers == config.LoopbackNone || net.ParseIP(hostOf(addr)).IsLoopback()
}

// Logins are the counts and the failures of this node.
func (n *running) Logins() management.Logins {
	l := management.Logins{Protocols: []management.LoginCounts{}, Sources: []management.LoginSource{}}
	counts := n.logins.Counts()
	for _, p := range attempts.Protocols() {
		c := counts[p]
		l.Protocols = append(l.Protocols, management.LoginCounts{
			Protocol: p.String(), Attempts: c.Accepted + c.Failed + c.Held, Failed: c.Failed, Accepted: c.Accepted, Held: c.Held,
		})
	}
	for _, s := range n.logins.Sources(time.Now()) {
		l.Sources = append(l.Sources, management.LoginSource{Address: s.Address, User: s.User, Failures: s.Failures, LastMillis: s.Last.UnixMilli()})
	}
	return l
}

// ResetLogins forgets them.
func (n *running) ResetLogins() { n.logins.Reset() }

func (n *running) loginFigures() (list []metrics.Logins) {
	for p, c := range n.logins.Counts() {
		list = append(list, metrics.Logins{Protocol: p.String(), Accepted: c.Accepted, Failed: c.Failed, Held: c.Held})
	}
	return list
}

func (n *running) passwordFigures() metrics.Passwords { return metrics.Passwords(n.passwords.Counts()) }

// from is a client's address as text.
func from(a net.Addr) string { return fmt.Sprint(a) }
