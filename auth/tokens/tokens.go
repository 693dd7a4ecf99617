// Package tokens checks bearer tokens: JSON Web Tokens (RFC 7519) that an issuer outside of the cluster has signed, whose public
// keys are in a file. Who a token names is a user of the catalog; what the user may do is the catalog's affair.
package tokens

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// Leeway is how far the clocks of issuer and node may be apart.
	Leeway = 30 * time.Second
	// fileMax bounds the file of keys, TokenMax a token.
	fileMax = 1 << 20
	// TokenMax bounds a token, in bytes.
	TokenMax = 8 << 10
	// looks is the least time between two looks whether the file has changed, and lookMax how long logins wait for one.
	looks, lookMax = time.Second, time.Second
)

// algorithms are those of public keys: with a shared secret whoever can check a token could make one.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Config says whose tokens count.
type Config struct {
	// File has the issuer's public keys as a JSON Web Key Set (RFC 7517). It is read again when it changes.
	File string
	// Issuer is what claim iss must be; empty: anything.
	Issuer string
	// Audience is what claim aud must have among its values.
	Audience string
}

// Checker checks tokens. It is safe for concurrent use.
type Checker struct {
	cfg Config
	now func() time.Time

	mu     sync.Mutex
	keys   *jose.JSONWebKeySet
	looked time.Time
	read   fs.FileInfo // of the file as it was read
	look   *look       // that is under way, nil if none is
}

// look is one at the file.
type look struct {
	began time.Time
	ended chan struct{} // closed when err, and what it has found, are there
	err   error
}

// Open reads the keys.
func Open(cfg Config) (*Checker, error) {
	c := &Checker{cfg: cfg, now: time.Now}
	info, err := os.Stat(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("keys of tokens: %w", err)
	}
	if c.keys, err = load(cfg.File); err != nil {
		return nil, err
	}
	c.read, c.looked = info, c.now()
	return c, nil
}

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

// User returns the user that a token names in claim sub, and when the token ends, with what the clocks may be apart. The error says what is wrong with the
// token; it is for logs.
func (c *Checker) User(token string) (name string, until time.Time, err error) {
	claims, err := c.claims(token)
	if err != nil {
		return "", time.Time{}, err
	}
	return claims.Subject, claims.Expiry.Time().Add(Leeway), nil
}

func (c *Checker) claims(token string) (claims jwt.Claims, err error) {
	if len(token) > TokenMax {
		return claims, fmt.Errorf("a token of %d bytes is longer than %d", len(token), TokenMax)
	}
	signed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return claims, fmt.Errorf("no signed token: %w", err)
	}
	keys, stale := c.current()
	key, err := choose(keys, signed.Headers[0])
	if err != nil {
		return claims, errors.Join(err, stale)
	}
	if err := signed.Claims(key, &claims); err != nil {
		return claims, fmt.Errorf("the token's signature: %w", err)
	}
	expected := jwt.Expected{Issuer: c.cfg.Issuer, AnyAudience: jwt.Audience{c.cfg.Audience}, Time: c.now()}
	switch err := claims.ValidateWithLeeway(expected, Leeway); {
	case err != nil:
		return claims, err
	case claims.Expiry == nil:
		return claims, errors.New("the token has no exp: it would count for ever")
	case claims.Subject == "":
		return claims, errors.New("the token has no sub: it names no user")
	}
	return claims, nil
}

// current returns the keys, read again if the file has changed. With an error they are those of before.
func (c *Checker) current() (*jose.JSONWebKeySet, error) {
	l := c.looking()
	var err error
	if l != nil {
		late := time.NewTimer(lookMax - time.Since(l.began))
		defer late.Stop()
		select {
		case <-l.ended:
			err = l.err
		case <-late.C:
			err = errHangs
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys, err
}

var errHangs = errors.New("keys of tokens: the file does not answer: those of before are used")

// looking returns the look that is under way, and begins one if it is time; nil: nobody looks.
func (c *Checker) looking() *look {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.look == nil && now.Sub(c.looked) >= looks {
		l := &look{began: time.Now(), ended: make(chan struct{})}
		c.looked, c.look = now, l
		go c.again(l, c.read) // ends with the look; there is one at a time
	}
	return c.look
}

// again looks whether the file has changed. It may hang, as what the file is on may: nobody else does.
func (c *Checker) again(l *look, before fs.FileInfo) {
	keys, info, err := changed(c.cfg.File, before)
	c.mu.Lock()
	defer c.mu.Unlock()
	if keys != nil {
		c.keys, c.read = keys, info
	}
	l.err, c.look = err, nil
	close(l.ended)
}

// changed reads a file if it is another one than before, else the keys are nil.
func changed(file string, before fs.FileInfo) (*jose.JSONWebKeySet, fs.FileInfo, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, fmt.Errorf("keys of tokens: %w", err)
	}
	if os.SameFile(info, before) && info.ModTime().Equal(before.ModTime()) && info.Size() == before.Size() {
		return nil, nil, nil
	}
	keys, err := load(file)
	return keys, info, err
}

// choose returns the key that a token says it is signed with.
func choose(keys *jose.JSONWebKeySet, header jose.Header) (any, error) {
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

// load reads a set of keys. What is no key for signatures, or of a kind that is not known, is passed over, as RFC 7517 (section 5) has it: issuers
// publish the keys of all that they do in one set. One that whoever reads the file could sign tokens with is a mistake that somebody should hear of.
func load(file string) (*jose.JSONWebKeySet, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("keys of tokens: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err != nil {
		return nil, fmt.Errorf("keys of tokens: %w", err)
	}
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if len(text) > fileMax {
		return nil, fmt.Errorf("keys of tokens: %s has more than %d bytes", file, fileMax)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&all); err != nil {
		return nil, fmt.Errorf("keys of tokens: %s is no JSON Web Key Set: %w", file, err)
	}
	set := &jose.JSONWebKeySet{}
	for i, raw := range all.Keys {
		var k jose.JSONWebKey
		err := json.Unmarshal(raw, &k)
		switch {
		case errors.Is(err, jose.ErrUnsupportedKeyType):
			continue
		case err != nil:
			return nil, fmt.Errorf("keys of tokens: key %d of %d in %s: %w", i+1, len(all.Keys), file, err)
		case !k.Valid():
			return nil, fmt.Errorf("keys of tokens: key %q in %s is not valid", k.KeyID, file)
		case !k.IsPublic():
			return nil, fmt.Errorf("keys of tokens: key %q in %s is no public key: whoever reads the file could sign tokens", k.KeyID, file)
		case k.Use == "" || k.Use == "sig":
			set.Keys = append(set.Keys, k)
		}
	}
	if len(set.Keys) == 0 {
		return nil, fmt.Errorf("keys of tokens: of %d keys in %s none is one for signatures that is known here", len(all.Keys), file)
	}
	return set, nil
}
