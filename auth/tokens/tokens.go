// Package tokens checks bearer tokens: JSON Web Tokens (RFC 7519) that an issuer outside of the cluster has signed, whose public
// keys are in a file or at a URL of the issuer's. What whoever a token names may do is no affair of this package.
package tokens

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// Leeway is how far the clocks of issuer and node may be apart.
	Leeway = 30 * time.Second
	// TokenMax bounds a token, in bytes.
	TokenMax = 8 << 10
	// keysMax bounds a set of keys, in bytes, and nameMax the name of a user.
	keysMax = 1 << 20
	nameMax = 255
)

// algorithms are those of public keys: with a shared secret whoever can check a token could make one.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Config says whose tokens count.
type Config struct {
	// File has the issuer's public keys as a JSON Web Key Set (RFC 7517). It is read again when it changes.
	File string
	// URL is where they are fetched from, if File is empty. It is one of https, or of a server on this machine.
	URL string
	// CAFile has the certificates (PEM) that the server at URL is verified with; empty: those of the system.
	CAFile string
	// Issuer is what claim iss must be; empty: anything.
	Issuer string
	// Audience is what claim aud must have among its values.
	Audience string
	// UserClaims are the claims that a token may have the user's name in; the first that it has counts. Empty: sub.
	UserClaims []string
	// Log is told when keys cannot be fetched, and when they can again. Nil: the default one.
	Log *slog.Logger
}

// source has the issuer's public keys.
type source interface {
	// keys are those of now. An error says why they may be old; they are nil if there never were any. A source may look for new ones if it has none of the id,
	// which is "" in tokens that name none.
	keys(id string) (*jose.JSONWebKeySet, error)
	close() error
}

// Checker checks tokens. It is safe for concurrent use.
type Checker struct {
	cfg    Config
	now    func() time.Time
	source source
}

// Open reads the keys of a file, or begins to fetch those of a URL, which may come later. Close ends it.
func Open(cfg Config) (*Checker, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if len(cfg.UserClaims) == 0 {
		cfg.UserClaims = []string{"sub"}
	}
	c := &Checker{cfg: cfg, now: time.Now}
	var err error
	if cfg.File != "" {
		c.source, err = openFile(cfg.File)
	} else {
		c.source, err = openURL(cfg.URL, cfg.CAFile, usual, cfg.Log)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the fetching of keys. It may be called more than once.
func (c *Checker) Close() error { return c.source.close() }

// Shaped tells whether a secret that a client sends as its password is a token: three parts with points between them, of which the first is
// a JOSE header (RFC 7515, 3.1).
func Shaped(secret string) bool {
	header, rest, ok := strings.Cut(secret, ".")
	if !ok || strings.Count(rest, ".") != 1 {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(header)
	var h struct {
		Algorithm string `json:"alg"`
	}
	return err == nil && json.Unmarshal(text, &h) == nil && h.Algorithm != ""
}

// Token is what a token that counts says.
type Token struct {
	// User is whom it names.
	User string
	// Until is when it ends, with what the clocks may be apart.
	Until time.Time
	// Claims are all that it has.
	Claims map[string]any
}

// Check returns what a token says. The error says what is wrong with it; it is for logs.
func (c *Checker) Check(token string) (Token, error) {
	claims, all, err := c.claims(token)
	if err != nil {
		return Token{}, err
	}
	for _, name := range c.cfg.UserClaims {
		user, _ := all[name].(string)
		if len(user) > nameMax {
			return Token{}, fmt.Errorf("the name in claim %s has %d bytes, the maximum is %d", name, len(user), nameMax)
		}
		if user != "" {
			return Token{User: user, Until: claims.Expiry.Time().Add(Leeway), Claims: all}, nil
		}
	}
	return Token{}, fmt.Errorf("the token names no user: it has none of the claims %s", strings.Join(c.cfg.UserClaims, ", "))
}

func (c *Checker) claims(token string) (claims jwt.Claims, all map[string]any, err error) {
	if len(token) > TokenMax {
		return claims, nil, fmt.Errorf("a token of %d bytes is longer than %d", len(token), TokenMax)
	}
	signed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return claims, nil, fmt.Errorf("no signed token: %w", err)
	}
	keys, stale := c.source.keys(signed.Headers[0].KeyID)
	key, err := choose(keys, signed.Headers[0])
	if err != nil {
		return claims, nil, errors.Join(err, stale)
	}
	if err := signed.Claims(key, &claims, &all); err != nil {
		return claims, nil, fmt.Errorf("the token's signature: %w", err)
	}
	expected := jwt.Expected{Issuer: c.cfg.Issuer, AnyAudience: jwt.Audience{c.cfg.Audience}, Time: c.now()}
	switch err := claims.ValidateWithLeeway(expected, Leeway); {
	case err != nil:
		return claims, nil, err
	case claims.Expiry == nil:
		return claims, nil, errors.New("the token has no exp: it would count for ever")
	}
	return claims, all, nil
}

// choose returns the key that a token says it is signed with.
func choose(keys *jose.JSONWebKeySet, header jose.Header) (any, error) {
	if keys == nil {
		return nil, errors.New("there are no keys yet")
	}
	var found []jose.JSONWebKey
	for _, k := range keys.Keys {
		if header.KeyID == "" || k.KeyID == header.KeyID {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("there is no key %q", header.KeyID)
	case len(found) > 1:
		return nil, fmt.Errorf("the token's key %q could be one of %d", header.KeyID, len(found))
	case found[0].Algorithm != "" && found[0].Algorithm != header.Algorithm:
		return nil, fmt.Errorf("the key is for %s and not for %s", found[0].Algorithm, header.Algorithm)
	}
	return found[0].Key, nil
}
