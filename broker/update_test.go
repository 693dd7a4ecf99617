package broker

import (
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// What a user is and may do counts as it is when the secret is renewed.
func TestUpdateUser(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b).conn
	login := func() User {
		u, err := b.Login(t.Context(), auth.MechanismPlain, []byte("\x00guest\x00guest"), Caller{Loopback: true})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	if c.impersonator() || !c.MayRead("q") {
		t.Fatal("guest is more or less than it should be")
	}
	propose(t, b, &catalog.PutUser{User: auth.User{Name: "guest", PasswordHash: auth.HashPassword("guest"), Tags: []string{"impersonator"}}})
	propose(t, b, &catalog.PutPermission{User: "guest", Vhost: "/", Configure: ".*", Write: ".*", Read: "^r"})
	if err := c.UpdateUser(login()); err != nil {
		t.Fatal(err)
	}
	if !c.impersonator() {
		t.Error("the new tag does not count")
	}
	if c.MayRead("q") || !c.MayRead("r") || !c.MayRead(ReplyQueue) {
		t.Error("the new permission does not count")
	}
	propose(t, b, &catalog.DeletePermission{User: "guest", Vhost: "/"})
	wantKind(t, c.UpdateUser(login()), NotAllowed, "access to vhost '/' refused for user 'guest'")
}
