package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// HashingAlgorithm is the name RabbitMQ's definitions give the only way in which
// passwords are kept.
const HashingAlgorithm = "rabbit_password_hashing_sha256"

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

// PasswordHash is base64 of four bytes of salt and SHA-256 of salt and password, as
// in RabbitMQ's definitions. "" belongs to a user without a password, who
// cannot log in with one. It hides itself from logs.
type PasswordHash string

// String hides the hash.
func (PasswordHash) String() string { return "(hidden)" }

const saltBytes = 4

// HashPassword hashes a password with fresh salt. An empty password gives the
// empty hash.
func HashPassword(password string) PasswordHash {
	if password == "" {
		return ""
	}
	var salt [saltBytes]byte
	_, _ = rand.Read(salt[:]) // never fails, by its documentation
	return hashWith(salt, password)
}

func hashWith(salt [saltBytes]byte, password string) PasswordHash {
	h := sha256.New()
	h.Write(salt[:])
	h.Write([]byte(password))
	return PasswordHash(base64.StdEncoding.EncodeToString(h.Sum(salt[:])))
}

// Matches reports whether password is the one that was hashed. An empty password
// never matches.
func (p PasswordHash) Matches(password string) bool {
	raw, err := base64.StdEncoding.DecodeString(string(p))
	if password == "" || err != nil || len(raw) != saltBytes+sha256.Size {
		return false
	}
	want := hashWith([saltBytes]byte(raw), password)
	return subtle.ConstantTimeCompare([]byte(want), []byte(base64.StdEncoding.EncodeToString(raw))) == 1
}

// Validate reports why p is no hash.
func (p PasswordHash) Validate() error {
	if p == "" {
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(string(p))
	if err != nil {
		return errors.New("password hash is not base64")
	}
	if len(raw) != saltBytes+sha256.Size {
		return fmt.Errorf("password hash has %d bytes, want %d", len(raw), saltBytes+sha256.Size)
	}
	return nil
}

// User is one user. It is immutable once it is in the catalog.
type User struct {
	Name         string
	PasswordHash PasswordHash
	Tags         []string // in the order given
	Limits       UserLimits
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

// Login checks password for a client; loopback tells that it is on this machine. The
// error wraps [ErrLogin]; its text is for the log, never for the client.
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
