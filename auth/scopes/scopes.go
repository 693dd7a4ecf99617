package scopes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/warrenmq/warren/auth"
)

// Max bounds the scopes of a token, with those that aliases stand for.
const Max = 2048

// Config says which scopes are meant for this cluster, and where they are.
type Config struct {
	// Prefix is how they begin; empty: with what they permit.
	Prefix string
	// Audience is the name of the cluster at the issuer. A claim with an object of such names has the scopes, without Prefix, under this one.
	Audience string
	// Claims are those that have scopes beside "scope", by name or as a path with points.
	Claims []string
	// Aliases are what names stand for that the issuer uses as scopes.
	Aliases map[string][]string
}

// requested is where a requesting party token of UMA has scopes, which Keycloak issues.
const requested = "authorization.permissions.scopes"

// Set is what a token permits. It implements [auth.Rights], is immutable and safe for use by several goroutines.
type Set struct {
	rules []rule
	tags  []string
	// ignored are scopes with the prefix that are not understood.
	ignored []string
}

// rule is one scope.
type rule struct {
	action      auth.Action
	vhost, name pattern
	key         pattern
	keySet      bool // without a key a scope permits nothing with topic exchanges
}

// Read returns what a token with those claims permits. The error is that it has too many scopes.
func (c Config) Read(claims map[string]any) (*Set, error) {
	list := c.collect(claims, "scope")
	for _, path := range append(slices.Clone(c.Claims), requested) {
		list = append(list, c.collect(claims, path)...)
	}
	for _, scope := range slices.Clone(list) {
		list = append(list, c.Aliases[scope]...)
		if len(list) > Max {
			return nil, fmt.Errorf("the token has more than %d scopes", Max)
		}
	}
	slices.Sort(list)
	s := &Set{}
	claim := func(name string) (string, bool) {
		value, ok := claims[name].(string)
		return value, ok
	}
	for _, scope := range slices.Compact(list) {
		own, ok := strings.CutPrefix(scope, c.Prefix)
		if !ok {
			continue // meant for somebody else
		}
		if tag, is := strings.CutPrefix(own, "tag:"); is && tag != "" {
			s.tags = append(s.tags, tag)
			continue
		}
		if r, ok := parse(own, claim); ok {
			s.rules = append(s.rules, r)
		} else {
			s.ignored = append(s.ignored, scope)
		}
	}
	return s, nil
}

// parse reads a scope without its prefix.
func parse(scope string, claim func(string) (string, bool)) (r rule, ok bool) {
	word, resource, _ := strings.Cut(scope, ":")
	switch word {
	case "configure":
		r.action = auth.Configure
	case "write":
		r.action = auth.Write
	case "read":
		r.action = auth.Read
	default:
		return r, false
	}
	parts := strings.Split(resource, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return r, false
	}
	r.keySet = len(parts) == 3
	for i, to := range []*pattern{&r.vhost, &r.name, &r.key}[:len(parts)] {
		if *to, ok = parsePattern(parts[i], claim); !ok {
			return r, false
		}
	}
	return r, true
}

// Tags are the tags that the token gives.
func (s *Set) Tags() []string { return s.tags }

// Ignored are the scopes that begin as those for this cluster do and are not understood.
func (s *Set) Ignored() []string { return s.ignored }

// Source implements [auth.Rights].
func (s *Set) Source() string { return "a token's scopes" }

// Lasting implements [auth.Rights]: a token says the same until it ends.
func (s *Set) Lasting() bool { return true }

// Enters implements [auth.Rights]: somebody may open a virtual host in which they may do something.
func (s *Set) Enters(vhost string) bool {
	return slices.ContainsFunc(s.rules, func(r rule) bool { return matches(r.vhost.in(vhost), vhost) })
}

// Allows implements [auth.Rights].
func (s *Set) Allows(vhost string, a auth.Action, k auth.Kind, name string) bool {
	name = auth.CheckedName(k, name)
	return slices.ContainsFunc(s.rules, func(r rule) bool {
		return r.action == a && matches(r.vhost.in(vhost), vhost) && matches(r.name.in(vhost), name)
	})
}

// Keys implements [auth.Rights].
func (s *Set) Keys(vhost, exchange string) auth.Keys {
	k := &keys{}
	for _, r := range s.rules {
		if r.keySet && matches(r.vhost.in(vhost), vhost) && matches(r.name.in(vhost), exchange) {
			k.patterns[r.action] = append(k.patterns[r.action], r.key.in(vhost))
		}
	}
	return k
}

// keys are the patterns of keys for one exchange, by action.
type keys struct{ patterns [3][][]string }

// Allows implements [auth.Keys].
func (k *keys) Allows(a auth.Action, key string) bool {
	for _, p := range k.patterns[a] {
		if matches(p, key) {
			return true
		}
	}
	return false
}
