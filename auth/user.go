package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// GuestName is the user that may log in over loopback only.
const GuestName = "guest"

// The tags that mean something.
const (
	TagAdministrator = "administrator"
	TagMonitoring    = "monitoring"
	TagPolicymaker   = "policymaker"
	TagManagement    = "management"
	TagImpersonator  = "impersonator"
)

// NameBytesMax bounds the names of users.
const NameBytesMax = 255

// User is one user. It is immutable once it is in the catalog.
type User struct {
	Name         string
	PasswordHash PasswordHash
	Tags         []string // in the order given
	Limits       UserLimits
	// Added is the index in the catalog's log of when the user was added, 0 if that is in no log that this node has applied since its start
	// or a snapshot from another one. It is not stored: sessions that last longer than their user are on nodes that run.
	Added uint64
}

// Validate reports why u cannot be stored.
func (u *User) Validate() error {
	switch {
	case u.Name == "":
		return errors.New("user name is empty")
	case len(u.Name) > NameBytesMax:
		return fmt.Errorf("user name has %d bytes, the maximum is %d", len(u.Name), NameBytesMax)
	}
	return u.PasswordHash.Validate()
}

// HasTag reports whether u carries tag.
func (u *User) HasTag(tag string) bool { return slices.Contains(u.Tags, tag) }

// ErrLogin is the refusal of a login. Why, is for the log.
var ErrLogin = errors.New("login refused")

// Login checks password for a client; loopback tells that it is on this machine. It takes as long as
// [PasswordHash.Matches]: a node has package passwords in between. The error wraps [ErrLogin]; its text is for the log,
// never for the client.
func (u *User) Login(password string, loopback bool) error {
	if u == nil {
		return fmt.Errorf("%w: no such user", ErrLogin)
	}
	if !u.PasswordHash.Matches(password) {
		return fmt.Errorf("%w: wrong password for user '%s'", ErrLogin, u.Name)
	}
	if u.Name == GuestName && !loopback {
		return fmt.Errorf("%w: user '%s' can only connect via localhost", ErrLogin, u.Name)
	}
	return nil
}

// LoginVerified checks whether a user whose identity the transport has verified
// may log in. loopback is as for Login. The error wraps [ErrLogin].
func (u *User) LoginVerified(loopback bool) error {
	switch {
	case u == nil:
		return fmt.Errorf("%w: no such user", ErrLogin)
	case u.Name == GuestName && !loopback:
		return fmt.Errorf("%w: user '%s' can only connect via localhost", ErrLogin, u.Name)
	}
	return nil
}

// ParseTags reads the older form of tags: names separated by commas.
func ParseTags(s string) []string {
	var tags []string
	for tag := range strings.SplitSeq(s, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}
