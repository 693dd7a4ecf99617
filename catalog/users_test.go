package catalog

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/auth"
)

func TestChangeUser(t *testing.T) {
	s := newScript(t)
	change := func(what UserChange, name, password string, tags ...string) *ChangeUser {
		u := auth.User{Name: name, Tags: tags, Limits: auth.UserLimits{Channels: auth.LimitOf(1)}}
		u.PasswordHash = auth.HashPassword(password)
		return &ChangeUser{u, what}
	}
	is := func(password string, tags ...string) {
		t.Helper()
		u := s.view().User("u")
		if u == nil || password != "" && !u.PasswordHash.Matches(password) || password == "" && u.PasswordHash != "" || !slices.Equal(u.Tags, tags) {
			t.Errorf("%+v", u)
		}
	}
	s.refused(change(SetPassword, "u", "new"), "NOT_FOUND - user 'u' not found")
	s.refused(change(SetTags, "u", "", "a"), "NOT_FOUND - user 'u' not found")
	s.ok(change(AddUser, "u", "first", "a"))
	if s.view().User("u").Limits != (auth.UserLimits{}) {
		t.Error("a user begins with limits")
	}
	s.refused(change(AddUser, "u", "other"), "PRECONDITION_FAILED - user 'u' already exists")
	is("first", "a")
	s.ok(&PutUserLimits{"u", auth.UserLimits{Channels: auth.LimitOf(9)}})
	s.ok(change(SetTags, "u", "other", "b", "c"))
	is("first", "b", "c")
	if s.ok(change(SetTags, "u", "", "b", "c")).Changed {
		t.Error("the same tags are a change")
	}
	s.ok(change(SetPassword, "u", "second", "d"))
	is("second", "b", "c")
	s.ok(change(SetPassword, "u", ""))
	is("", "b", "c")
	if s.view().User("u").Limits.Channels != auth.LimitOf(9) {
		t.Error("the limits have changed")
	}
	for name, c := range map[string]Command{
		"nothing":    change(0, "u", ""),
		"too much":   change(4, "u", ""),
		"no name":    change(SetTags, "", ""),
		"no hash":    &ChangeUser{auth.User{Name: "u", PasswordHash: "YWJj"}, SetPassword},
		"empty tag":  change(SetTags, "u", "", ""),
		"long names": change(AddUser, string(make([]byte, 256)), ""),
	} {
		if _, err := s.do(c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// TestCostlyHashes belong to level 2: programs before take them for malformed.
func TestCostlyHashes(t *testing.T) {
	costly := auth.User{Name: "u", PasswordHash: goldenBcrypt}
	for _, cmd := range []Command{&PutUser{costly}, &ChangeUser{costly, AddUser}, &ChangeUser{costly, SetPassword}} {
		if err := gate(cmd, 1); !errors.Is(err, ErrLevel) || !strings.Contains(err.Error(), "managed_membership") {
			t.Errorf("at level 1: %v", err)
		}
		if err := gate(cmd, 2); err != nil || cmd.validate() != nil {
			t.Errorf("at level 2: %v", err)
		}
	}
	for _, cmd := range []Command{&PutUser{auth.User{Name: "u"}}, &ChangeUser{auth.User{Name: "u", PasswordHash: auth.HashPassword("x")}, SetPassword}} {
		if err := gate(cmd, 1); err != nil {
			t.Errorf("at level 1: %v", err)
		}
	}
	costly.PasswordHash = auth.PasswordHash("$2b$31" + goldenBcrypt[6:])
	if err := (&PutUser{costly}).validate(); err == nil || !strings.Contains(err.Error(), "cost 31, want 04 to 14") {
		t.Errorf("a hash that takes years: %v", err)
	}
}

func TestSameAccess(t *testing.T) {
	s := newScript(t)
	same := func(c Command) bool {
		old := s.view()
		s.ok(c)
		return s.view().SameAccess(old)
	}
	if s.view().SameAccess(nil) {
		t.Error("the first view has nothing to be the same as")
	}
	if !same(declare("q")) || !same(&DeleteUser{Name: "gone"}) || !same(&PutPermission{Vhost: "/", User: "guest"}) {
		t.Error("users and vhosts are the same")
	}
	if same(&PutUser{auth.User{Name: "u"}}) || same(&DeleteUser{Name: "u"}) || same(&PutVhost{Vhost: Vhost{Name: "v"}}) || same(&DeleteVhost{Name: "v"}) {
		t.Error("users or vhosts differ")
	}
}
