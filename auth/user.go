package auth

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// HashingAlgorithm is the name RabbitMQ's definitions give the way in which
// passwords are hashed here.
const HashingAlgorithm = "rabbit_password_hashing_sha256"

// hashing is one way of RabbitMQ's to hash the salt and the password.
type hashing struct {
	name string
	sum  func([]byte) []byte
}

// hashings are those of hashes that logins are checked against, by the length of what they make: a hash that came with
// definitions stays what it is until its user gets another password. MD5 was the only one before RabbitMQ 3.6.
var hashings = map[int]hashing{
	md5.Size:    {"rabbit_password_hashing_md5", func(b []byte) []byte { sum := md5.Sum(b); return sum[:] }},
	sha256.Size: {HashingAlgorithm, func(b []byte) []byte { sum := sha256.Sum256(b); return sum[:] }},
	sha512.Size: {"rabbit_password_hashing_sha512", func(b []byte) []byte { sum := sha512.Sum512(b); return sum[:] }},
}

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

// PasswordHash is base64 of four bytes of salt and a hash of salt and password, as
// in RabbitMQ's definitions: SHA-256, or one of the others that RabbitMQ has. "" belongs to a user without a password, who
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
	sum := hashings[sha256.Size].sum(append(salt[:], password...))
	return PasswordHash(base64.StdEncoding.EncodeToString(append(salt[:], sum...)))
}

// Matches reports whether password is the one that was hashed. An empty password
// never matches.
func (p PasswordHash) Matches(password string) bool {
	raw, h, err := p.parse()
	if password == "" || p == "" || err != nil {
		return false
	}
	want := h.sum(append(slices.Clone(raw[:saltBytes]), password...))
	return subtle.ConstantTimeCompare(want, raw[saltBytes:]) == 1
}

// parse returns the salt with the hash, and how it was made.
func (p PasswordHash) parse() (raw []byte, h hashing, err error) {
	if raw, err = base64.StdEncoding.DecodeString(string(p)); err != nil {
		return nil, hashing{}, errors.New("password hash is not base64")
	}
	h, ok := hashings[len(raw)-saltBytes]
	if !ok {
		return nil, hashing{}, fmt.Errorf("password hash has %d bytes, want %d (SHA-256), %d (SHA-512) or %d (MD5)",
			len(raw), saltBytes+sha256.Size, saltBytes+sha512.Size, saltBytes+md5.Size)
	}
	return raw, h, nil
}

// Algorithm is the name RabbitMQ's definitions give the way in which a valid hash was made.
func (p PasswordHash) Algorithm() string {
	if _, h, err := p.parse(); err == nil {
		return h.name
	}
	return HashingAlgorithm
}

// Validate reports why p is no hash.
func (p PasswordHash) Validate() error {
	if p == "" {
		return nil
	}
	_, _, err := p.parse()
	return err
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
