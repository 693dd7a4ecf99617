package scopes

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/auth"
)

// rabbit is the prefix of the tests.
var rabbit = Config{Prefix: "rabbit.", Audience: "rabbit"}

func read(t testing.TB, c Config, claims map[string]any) *Set {
	t.Helper()
	s, err := c.Read(claims)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPatterns: what RabbitMQ 4.3.6 answered to a queue.declare in "/" with this scope and "rabbit.read:%2F/none", except where said.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		scope, queue string
		want         bool
	}{
		{"configure:*/*", "q", true},
		{"configure:%2F/q", "q", true},
		{"configure:%2f/q", "q", true},
		{"configure:other/q", "q", false},
		{"configure:*/a+b", "a+b", false},
		{"configure:*/a+b", "a b", true},
		{"configure:*/a%2Bb", "a+b", true},
		{"configure:*/a%2fb", "a/b", true},
		{"configure:*/a%zz", "a%zz", false},
		{"configure:*/a%2", "a%2", false},
		{"configure:*/a*b", "ab", true},
		{"configure:*/a*b", "axxb", true},
		{"configure:*/a*b", "axxbc", false},
		{"configure:*/aba*aba", "aba", false},
		{"configure:*/*b*", "abc", true},
		{"configure:*/start*middle*end", "start-middle-end", true},
		{"configure:*/start*middle*end", "start-end", false},
		{"configure:*/a*%2A", "ax*", true},
		{"configure:*/a*%2A", "ax", false},
		{"configure:*/x.y", "x.y", true},
		{"configure:*/x.y", "xay", false},
		{"configure:*/Q", "q", false},
		{"configure:*/{sub}-q", "ann-q", true},
		{"configure:*/sub}", "sub}", true},
		{"configure:*/{sub", "{sub", false},
		{"configure:*/a/", "a", true},
		{"configure:*/a/b", "a", true},
		{"configure:*/a/b/c", "a", false},
		{"configure:/a", "a", false},
		{"configure:*", "a", false},
		{"configure:*/", "a", false},
		{"CONFIGURE:*/a", "a", false},
		{"write:*/a", "a", false},
		{"tag:configure:*/a", "a", false},
		{"configure", "a", false},
		{"", "a", false},
		// RabbitMQ looks for a text after a * at its first place only, and refuses these.
		{"configure:*/*foo", "foofoo", true},
		{"configure:*/foo**", "foo", true},
		// The names of virtual hosts and what claims say are patterns to RabbitMQ: it refuses the first and allows the second.
		{"configure:*/{vhost}q", "/q", true},
		{"configure:*/{star}-q", "x-q", false},
		{"configure:*/{star}-q", "*-q", true},
		// A claim that is none is its name to RabbitMQ, which allows this.
		{"configure:*/{none}-q", "none-q", false},
		{"configure:*/{number}-q", "7-q", false},
	} {
		s := read(t, rabbit, map[string]any{"scope": []any{"rabbit." + c.scope, "rabbit.read:%2F/none"}, "sub": "ann", "star": "*", "number": 7.0})
		if got := s.Allows("/", auth.Configure, auth.Queue, c.queue); got != c.want {
			t.Errorf("scope %q, queue %q: %v", c.scope, c.queue, got)
		}
	}
}

// TestActions: who may do what, as RabbitMQ 4.3.6 answered over AMQP: topic exchanges take a third part.
func TestActions(t *testing.T) {
	s := read(t, rabbit, map[string]any{"scope": "rabbit.write:v/top/a.* rabbit.read:v/top/b.{vhost} rabbit.write:v/amq.default rabbit.configure:v/q* configure:*/* other.read:*/* rabbit.read:w/two"})
	for _, c := range []struct {
		vhost string
		a     auth.Action
		k     auth.Kind
		name  string
		want  bool
	}{
		{"v", auth.Write, auth.Exchange, "top", true},
		{"v", auth.Read, auth.Exchange, "top", true},
		{"v", auth.Configure, auth.Exchange, "top", false},
		{"v", auth.Write, auth.Exchange, "", true},
		{"v", auth.Write, auth.Queue, "", false},
		{"v", auth.Read, auth.Exchange, "", false},
		{"v", auth.Configure, auth.Queue, "q1", true},
		{"w", auth.Configure, auth.Queue, "q1", false},
		{"v", auth.Read, auth.Queue, "x", false},
	} {
		if got := s.Allows(c.vhost, c.a, c.k, c.name); got != c.want {
			t.Errorf("%v %s %q in %q: %v", c.a, c.k, c.name, c.vhost, got)
		}
	}
	if !s.Enters("v") || !s.Enters("w") || s.Enters("x") || s.Enters("") {
		t.Error("the wrong virtual hosts are open")
	}
	for _, c := range []struct {
		vhost, exchange string
		a               auth.Action
		key             string
		want            bool
	}{
		{"v", "top", auth.Write, "a.b", true},
		{"v", "top", auth.Write, "b.v", false},
		{"v", "top", auth.Read, "b.v", true},
		{"v", "top", auth.Read, "a.b", false},
		{"v", "other", auth.Write, "a.b", false},
		{"w", "two", auth.Read, "a", false},
	} {
		if got := s.Keys(c.vhost, c.exchange).Allows(c.a, c.key); got != c.want {
			t.Errorf("%v with key %q on %q in %q: %v", c.a, c.key, c.exchange, c.vhost, got)
		}
	}
}

// TestClaims: where scopes are found.
func TestClaims(t *testing.T) {
	const one, tag = "rabbit.read:*/one", "rabbit.tag:management"
	list := []any{one, tag}
	for name, c := range map[string]struct {
		cfg    Config
		claims map[string]any
		want   bool
	}{
		"a text":           {rabbit, map[string]any{"scope": "openid  " + one + " " + tag}, true},
		"a list":           {rabbit, map[string]any{"scope": list}, true},
		"no scope":         {rabbit, map[string]any{}, false},
		"a number":         {rabbit, map[string]any{"scope": 1.0}, false},
		"no list of texts": {rabbit, map[string]any{"scope": []any{1.0, nil, list}}, false},
		"another claim":    {rabbit, map[string]any{"roles": list}, false},
		"a party's":        {rabbit, map[string]any{"authorization": map[string]any{"permissions": []any{map[string]any{"rsname": "x", "scopes": list}}}}, true},
		"further":          {Config{Prefix: "rabbit.", Claims: []string{"roles"}}, map[string]any{"roles": list, "scope": "openid"}, true},
		"a path":           {Config{Prefix: "rabbit.", Claims: []string{"x", "realm_access.roles"}}, map[string]any{"realm_access": map[string]any{"roles": list}}, true},
		"a name of points": {Config{Prefix: "rabbit.", Claims: []string{"https://example.com/roles"}}, map[string]any{"https://example.com/roles": list}, true},
		"by audience": {
			Config{Prefix: "rabbit.", Audience: "rabbit", Claims: []string{"resources"}},
			map[string]any{"resources": map[string]any{"rabbit": []any{"read:*/one", "tag:management"}, "other": list}},
			true,
		},
		"another prefix":   {Config{Prefix: "api://"}, map[string]any{"scope": "api://read:*/one api://tag:management"}, true},
		"no prefix":        {Config{}, map[string]any{"scope": "read:*/one tag:management"}, true},
		"the prefix lacks": {rabbit, map[string]any{"scope": "read:*/one tag:management"}, false},
		"an alias":         {Config{Prefix: "rabbit.", Aliases: map[string][]string{"admin": {one, tag}}}, map[string]any{"scope": "admin"}, true},
		"no alias twice":   {Config{Prefix: "rabbit.", Aliases: map[string][]string{"admin": {"more"}, "more": {one, tag}}}, map[string]any{"scope": "admin"}, false},
	} {
		s := read(t, c.cfg, c.claims)
		if s.Allows("v", auth.Read, auth.Queue, "one") != c.want || slices.Contains(s.Tags(), "management") != c.want {
			t.Errorf("%s: rules %v, tags %q", name, s.rules, s.Tags())
		}
	}
	if s := read(t, rabbit, map[string]any{"scope": "rabbit.red:*/* rabbit.tag: rabbit.read:*/%"}); len(s.Ignored()) != 3 || s.Enters("/") || len(s.Tags()) > 0 {
		t.Errorf("what is not understood: %q", s.Ignored())
	}
	many := make([]any, Max+1)
	for i := range many {
		many[i] = fmt.Sprint("rabbit.read:*/", i)
	}
	if _, err := rabbit.Read(map[string]any{"scope": many}); err == nil {
		t.Error("too many scopes were read")
	}
	if _, err := (Config{Aliases: map[string][]string{"all": make([]string, Max)}}).Read(map[string]any{"scope": "all"}); err == nil {
		t.Error("an alias for too many scopes was read")
	}
}

func TestParseAliases(t *testing.T) {
	got, err := ParseAliases([]byte(`{"admin": "r.tag:administrator r.read:*/*", "dev": ["r.read:dev/*"]}`))
	if err != nil || !slices.Equal(got["admin"], []string{"r.tag:administrator", "r.read:*/*"}) || !slices.Equal(got["dev"], []string{"r.read:dev/*"}) {
		t.Errorf("aliases: %q, %v", got, err)
	}
	for _, bad := range []string{"", "null", "[]", `{"a": 1}`, `{"a": ""}`, `{"a": []}`, `{"a": ["x", 1]}`, `{"a": {}}`, `{"a"`} {
		if got, err := ParseAliases([]byte(bad)); err == nil {
			t.Errorf("aliases %s were read: %q", bad, got)
		}
	}
}

// model is a pattern as a regular expression, made from its pieces and not from its text.
type model struct {
	scope string // as part of a scope
	re    string
}

func anyModel() *rapid.Generator[model] {
	piece := rapid.Custom(func(t *rapid.T) model {
		switch text := rapid.StringOfN(rapid.RuneFrom([]rune("ab/*.%{} +é")), 0, 2, -1).Draw(t, "text"); rapid.IntRange(0, 3).Draw(t, "piece") {
		case 0:
			return model{"*", "(?s:.*)"}
		case 1:
			return model{"{vhost}", "VHOST"}
		default:
			return model{url.QueryEscape(text), regexp.QuoteMeta(text)}
		}
	})
	return rapid.Custom(func(t *rapid.T) (m model) {
		for _, p := range rapid.SliceOfN(piece, 0, 4).Draw(t, "pieces") {
			m = model{m.scope + p.scope, m.re + p.re}
		}
		return m
	})
}

func (m model) matches(vhost, name string) bool {
	return regexp.MustCompile("^(?:" + strings.ReplaceAll(m.re, "VHOST", regexp.QuoteMeta(vhost)) + ")$").MatchString(name)
}

// TestScopesAllowWhatTheySay: a set of scopes allows exactly what one of them does, by a model of regular expressions.
func TestScopesAllowWhatTheySay(t *testing.T) {
	type scope struct {
		action             auth.Action
		vhost, name, key   model
		withKey, forOthers bool
	}
	one := rapid.Custom(func(t *rapid.T) scope {
		return scope{
			auth.Action(rapid.IntRange(0, 2).Draw(t, "action")), anyModel().Draw(t, "vhost"), anyModel().Draw(t, "name"), anyModel().Draw(t, "key"),
			rapid.Bool().Draw(t, "with key"), rapid.IntRange(0, 9).Draw(t, "for others") == 0,
		}
	})
	name := rapid.StringOfN(rapid.RuneFrom([]rune("ab/*.%{} +é")), 0, 4, -1)
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(one, 0, 4).Draw(t, "scopes")
		var list []any
		for _, s := range all {
			text := fmt.Sprintf("rabbit.%v:%s/%s", s.action, s.vhost.scope, s.name.scope)
			if s.withKey {
				text += "/" + s.key.scope
			}
			if s.forOthers {
				text = "x" + text
			}
			list = append(list, text)
		}
		set, err := rabbit.Read(map[string]any{"scope": list})
		if err != nil || len(set.Ignored()) > 0 {
			t.Fatalf("%q: %v, not understood: %q", list, err, set.Ignored())
		}
		vhost, on, key, a := name.Draw(t, "vhost"), name.Draw(t, "name"), name.Draw(t, "key"), auth.Action(rapid.IntRange(0, 2).Draw(t, "action"))
		enters, allows, allowsKey := false, false, false
		for _, s := range all {
			in := !s.forOthers && s.vhost.matches(vhost, vhost)
			does := in && s.action == a && s.name.matches(vhost, on)
			enters, allows, allowsKey = enters || in, allows || does, allowsKey || does && s.withKey && s.key.matches(vhost, key)
		}
		if set.Enters(vhost) != enters || set.Allows(vhost, a, auth.Queue, on) != allows || set.Keys(vhost, on).Allows(a, key) != allowsKey {
			t.Fatalf("%q in %q, %v %q with %q: enters %v, allows %v, allows the key %v; the model says the contrary of one", list, vhost, a, on, key,
				set.Enters(vhost), set.Allows(vhost, a, auth.Queue, on), set.Keys(vhost, on).Allows(a, key))
		}
	})
}

// FuzzScope: no scope makes trouble, and one without a star or a variable permits one name at most.
func FuzzScope(f *testing.F) {
	for _, seed := range []string{"rabbit.read:*/*", "rabbit.write:%2F/a*b/{sub}.#", "rabbit.tag:administrator", "rabbit.configure:v/%zz", "rabbit.read:{vhost}/{", ""} {
		f.Add(seed, "v", "name")
	}
	f.Fuzz(func(t *testing.T, scope, vhost, name string) {
		s, err := rabbit.Read(map[string]any{"scope": []any{scope}, "sub": name})
		if err != nil {
			t.Fatal(err)
		}
		allowed := s.Allows(vhost, auth.Read, auth.Queue, name)
		s.Keys(vhost, name).Allows(auth.Read, name)
		if allowed && !s.Enters(vhost) {
			t.Errorf("scope %q permits something in %q, which it does not open", scope, vhost)
		}
		if allowed && !strings.ContainsAny(scope, "*{") && (s.Allows(vhost, auth.Read, auth.Queue, name+"x") || s.Allows(vhost+"x", auth.Read, auth.Queue, name)) {
			t.Errorf("scope %q permits more than one name", scope)
		}
	})
}
