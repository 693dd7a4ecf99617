package catalog

import (
	"slices"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
)

// ChangeUser makes a user that does not exist yet, or changes one thing about one that
// does. Two tools that change the tags and the password of a user at the same time both have
// their way, as they would not with [PutUser]. Limits are ignored.
type ChangeUser struct {
	User auth.User
	What UserChange
}

// UserChange is what a [ChangeUser] is about.
type UserChange uint8

// The changes. The numbers are stored.
const (
	AddUser     UserChange = 1 // refused if the user exists
	SetPassword UserChange = 2 // takes PasswordHash, leaves the tags; refused if there is no such user
	SetTags     UserChange = 3 // takes Tags, leaves the password; refused if there is no such user
)

func (*ChangeUser) kind() commandKind { return kindChangeUser }

func (c *ChangeUser) fields(f *fields) {
	userFields(f, &c.User)
	what := byte(c.What)
	f.byte(&what)
	c.What = UserChange(what)
}

func (c *ChangeUser) validate() error {
	if c.What < AddUser || c.What > SetTags {
		return refused("unknown change %d of a user", c.What)
	}
	return firstError(checkUser(&c.User))
}

func (c *ChangeUser) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.User(c.User.Name)
	if c.What == AddUser {
		if old != nil {
			return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "user '%s' already exists", c.User.Name)
		}
		u := c.User
		u.Limits, u.Added = auth.UserLimits{}, tx.index
		tx.users.put(key(u.Name), &u)
		return Result{Changed: true}, nil
	}
	if old == nil {
		return Result{}, errNoUser(c.User.Name)
	}
	u := *old
	same := false
	if c.What == SetPassword {
		same = u.PasswordHash == c.User.PasswordHash
		u.PasswordHash = c.User.PasswordHash
	} else {
		same = slices.Equal(u.Tags, c.User.Tags)
		u.Tags = c.User.Tags
	}
	if !same {
		tx.users.put(key(u.Name), &u)
	}
	return Result{Changed: !same}, nil
}

// SameAccess reports whether v has the same users and vhosts as old, nil for none. It costs
// next to nothing and errs on the side of no.
func (v *View) SameAccess(old *View) bool {
	return old != nil && v.users.tree == old.users.tree && v.vhosts.tree == old.vhosts.tree
}
