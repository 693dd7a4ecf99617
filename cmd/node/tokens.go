package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/warrenmq/warren/auth/attempts"
	"github.com/warrenmq/warren/auth/scopes"
	"github.com/warrenmq/warren/auth/tokens"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/management"
)

// aliasesMax bounds the file of aliases, in bytes.
const aliasesMax = 1 << 20

// openTokens reads the keys of tokens, or begins to fetch them, and what their scopes may be called.
func (n *running) openTokens() (err error) {
	if n.cfg.TokenKeysFile == "" && n.cfg.TokenKeysURL == "" {
		return nil
	}
	if n.scopes, err = scopesOf(n.cfg); err != nil {
		return err
	}
	n.tokens, err = tokens.Open(tokens.Config{
		File: n.cfg.TokenKeysFile, URL: n.cfg.TokenKeysURL, CAFile: n.cfg.TokenKeysCAFile, Issuer: n.cfg.TokenIssuer, Audience: n.cfg.TokenAudience,
		UserClaims: n.cfg.TokenUserClaims, Log: n.log,
	})
	if err != nil {
		return err
	}
	n.onClose("keys of tokens", n.tokens.Close)
	return nil
}

// scopesOf is how scopes are read, nil if they count for nothing.
func scopesOf(cfg config.Config) (*scopes.Config, error) {
	if cfg.TokenScopes != config.TokenScopesOn {
		return nil, nil
	}
	s := &scopes.Config{Prefix: cfg.TokenScopePrefix, Audience: cfg.TokenAudience, Claims: cfg.TokenScopeClaims}
	switch s.Prefix {
	case "":
		s.Prefix = cfg.TokenAudience + "."
	case config.TokenPrefixNone:
		s.Prefix = ""
	}
	if cfg.TokenScopeAliasesFile == "" {
		return s, nil
	}
	f, err := os.Open(cfg.TokenScopeAliasesFile)
	if err != nil {
		return nil, fmt.Errorf("aliases of scopes: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, aliasesMax+1))
	if err == nil && len(text) > aliasesMax {
		err = fmt.Errorf("more than %d bytes", aliasesMax)
	}
	if err == nil {
		s.Aliases, err = scopes.ParseAliases(text)
	}
	if err != nil {
		return nil, fmt.Errorf("aliases of scopes: %s: %w", cfg.TokenScopeAliasesFile, err)
	}
	return s, nil
}

// readToken finds out what a token says; the error is why it does not count.
func (n *running) readToken(token string) (broker.Token, error) {
	if n.tokens == nil {
		return broker.Token{}, errors.New("this node has no keys for tokens")
	}
	t, err := n.tokens.Check(token)
	if err != nil || n.scopes == nil {
		return broker.Token{User: t.User, Until: t.Until}, err
	}
	set, err := n.scopes.Read(t.Claims)
	if err != nil {
		return broker.Token{User: t.User}, err
	}
	if ignored := set.Ignored(); len(ignored) > 0 {
		n.log.Debug("scopes of a token are not understood", "user", t.User, "scopes", ignored)
	}
	return broker.Token{User: t.User, Until: t.Until, Rights: set, Tags: set.Tags()}, nil
}

// logInByToken lets the user in whom a token names. Nobody guesses tokens: nobody is held up for one that has ended, least of all those who share
// an address, or a name, with who sent it.
func (n *running) logInByToken(ctx context.Context, p attempts.Protocol, mechanism, token, from string) (broker.User, error) {
	says, err := n.readToken(token)
	u, err := n.broker.LoginToken(ctx, mechanism, says, err, n.admitsGuest(from))
	if e, ok := errors.AsType[*broker.Error](err); !ok || e.Kind == broker.AccessRefused {
		n.logins.Done(p, hostOf(from), u.Name, err == nil, time.Now())
	}
	return u, err
}

// logInByBearer is logInByToken for the management API.
func (n *running) logInByBearer(ctx context.Context, token, from string) (management.User, error) {
	u, err := n.logInByToken(ctx, attempts.HTTP, "BEARER", token, from)
	return management.User{Name: u.Name, Tags: u.Tags, Login: u}, orBusy(err)
}
