package broker

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// outsider lets in who is named, with the password "out" or a certificate, and knows what they may do.
type outsider struct {
	let    map[string]auth.Admission
	fails  error
	asked  int
	verify bool // the last one was verified
}

func (o *outsider) LogIn(_ context.Context, a auth.Attempt) (auth.Admission, error) {
	o.asked++
	o.verify = a.Verified
	if o.fails != nil {
		return auth.Admission{}, o.fails
	}
	got, ok := o.let[a.User]
	if !ok || !a.Verified && a.Password != "out" {
		return got, fmt.Errorf("%w: not known outside", auth.ErrLogin)
	}
	return got, nil
}

// TestBackends: each is asked in its turn, the one that lets somebody in says what they may do, and nobody is told that they are refused if one could not tell.
func TestBackends(t *testing.T) {
	b := newBroker(t)
	hash, err := auth.Hashing{}.Hash("in")
	if err != nil {
		t.Fatal(err)
	}
	propose(t, b, &catalog.PutUser{User: auth.User{Name: "ann", PasswordHash: hash, Tags: []string{"management"}}})
	propose(t, b, &catalog.PutPermission{Vhost: "/", User: "ann", Configure: ".*", Write: ".*", Read: ".*"})
	rights := words(";read q;")
	let := map[string]auth.Admission{"ann": {Tags: []string{"monitoring"}, Rights: rights}, "bob": {Rights: rights}, "guest": {Rights: rights}}
	away := fmt.Errorf("%w: no answer", auth.ErrAway)
	never := Errorf(AccessRefused, "wait")
	for _, tc := range []struct {
		name           string
		order          string // i: the catalog, o: outside, c: outside, and the catalog for what they may do
		user, password string
		fails          error
		loopback       bool
		asked          int
		tags           []string
		brought, away  bool
		refused        bool
	}{
		{name: "catalog first", order: "io", user: "ann", password: "in", tags: []string{"management"}},
		{name: "catalog first, outside's password", order: "io", user: "ann", password: "out", asked: 1, tags: []string{"monitoring"}, brought: true},
		{name: "catalog first, nobody's password", order: "io", user: "ann", password: "x", asked: 1, refused: true},
		{name: "outside first", order: "oi", user: "ann", password: "out", asked: 1, tags: []string{"monitoring"}, brought: true},
		{name: "outside first, catalog's password", order: "oi", user: "ann", password: "in", asked: 1, tags: []string{"management"}},
		{name: "outside alone", order: "o", user: "ann", password: "in", asked: 1, refused: true},
		{name: "outside alone, in no catalog", order: "o", user: "bob", password: "out", asked: 1, brought: true},
		{name: "outside for passwords alone", order: "c", user: "ann", password: "out", asked: 1, tags: []string{"management", "monitoring"}},
		{name: "outside for passwords alone, in no catalog", order: "c", user: "bob", password: "out", asked: 1, refused: true},
		{name: "away", order: "oi", user: "bob", password: "out", fails: away, asked: 1, refused: true, away: true},
		{name: "away, but in the catalog", order: "oi", user: "ann", password: "in", fails: away, asked: 1, tags: []string{"management"}},
		{name: "not to be looked at", order: "oi", user: "ann", password: "in", fails: never, asked: 1, refused: true},
		{name: "guest from afar", order: "oi", user: "guest", password: "out", asked: 1, refused: true},
		{name: "guest", order: "oi", user: "guest", password: "out", loopback: true, asked: 1, brought: true},
	} {
		for _, verified := range []bool{false, true} {
			if verified && (tc.password == "x" || tc.order[0] == 'i' || tc.password == "in" && tc.fails == nil) {
				continue // it is no matter of passwords then
			}
			o := &outsider{let: let, fails: tc.fails}
			b.cfg.Backends = nil
			for _, c := range tc.order {
				b.cfg.Backends = append(b.cfg.Backends, map[rune]Backend{'i': {}, 'o': {Outside: o}, 'c': {Outside: o, ByCatalog: true}}[c])
			}
			var u User
			if from := (Caller{Loopback: tc.loopback}); verified {
				u, err = b.LoginExternal(t.Context(), tc.user, nil, from)
			} else {
				u, err = b.Login(t.Context(), auth.MechanismPlain, []byte("\x00"+tc.user+"\x00"+tc.password), from)
			}
			refusal, _ := err.(*Error)
			switch {
			case tc.name == "away" && verified && refusal != nil && refusal.Away: // and the same in the catalog
			case tc.refused != (kindOfRefusal(err) == AccessRefused) || tc.refused && refusal.Away != tc.away || !tc.refused && err != nil:
				t.Errorf("%s, verified %v: %v", tc.name, verified, err)
			case !tc.refused && (u.Name != tc.user || !slices.Equal(u.Tags, tc.tags) || (u.Rights != nil) != tc.brought):
				t.Errorf("%s, verified %v: let in as %+v", tc.name, verified, u)
			}
			if o.asked != tc.asked || tc.asked > 0 && o.verify != verified {
				t.Errorf("%s, verified %v: asked %d times, verified %v", tc.name, verified, o.asked, o.verify)
			}
			if err == nil && !tc.brought {
				if again, err := b.Renew(u); err != nil || !slices.Equal(again.Tags, tc.tags) {
					t.Errorf("%s: renewed with tags %v, %v", tc.name, again.Tags, err)
				}
			}
		}
	}
}

// passing are rights that change, and that call what is to be done before they wait.
type passing struct {
	*ofNow

	before func()
}

type ofNow struct{ now words }

func (p passing) Source() string                        { return "a test" }
func (p passing) Lasting() bool                         { return false }
func (p passing) Enters(vhost string) bool              { return p.now.Enters(vhost) }
func (p passing) Keys(vhost, exchange string) auth.Keys { return p.now.Keys(vhost, exchange) }
func (p passing) Waiting(before func()) auth.Rights     { return passing{p.ofNow, before} }
func (p passing) Allows(vhost string, a auth.Action, k auth.Kind, name string) bool {
	if p.before != nil {
		p.before()
	}
	return p.now.Allows(vhost, a, k, name)
}

// TestRightsThatChange: what another server says now counts for the next message, and what was published before does not wait for its answer.
func TestRightsThatChange(t *testing.T) {
	b := newBroker(t)
	dial(t, b).declare("q", nil)
	r := &ofNow{now: ";write amq.topic;key write amq.topic a;"}
	conn, err := b.Open(t.Context(), User{Name: "bob", Rights: passing{ofNow: r}}, "/", ConnInfo{})
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.OpenChannel(t.Context(), &onceSink{confirmed: make(chan Confirm, 1), failed: make(chan *Error, 1)})
	if err != nil {
		t.Fatal(err)
	}
	waited := 0
	publish := func() error {
		_, err := ch.Publish(t.Context(), &Publish{Exchange: "amq.topic", Key: "a", Waits: func() { waited++ }})
		return err
	}
	for range 2 {
		if err := publish(); err != nil || waited == 0 {
			t.Errorf("allowed, waited %d: %v", waited, err)
		}
	}
	for _, less := range []words{";write amq.topic;", ";key write amq.topic a;", ""} {
		r.now = less
		if err := publish(); kindOfRefusal(err) != AccessRefused {
			t.Errorf("with %q: %v", less, err)
		}
	}
	r.now = ";write amq.topic;key write amq.topic a;"
	if err := publish(); err != nil {
		t.Errorf("allowed again: %v", err)
	}
}
