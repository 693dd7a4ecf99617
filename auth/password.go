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
// passwords are hashed unless something else is asked for.
const HashingAlgorithm = "rabbit_password_hashing_sha256"

// salted is one way of RabbitMQ's to hash the salt and the password.
type salted struct {
	name string
	sum  func([]byte) []byte
}

// saltedHashes are those of hashes that logins are checked against, by the length of what they make: a hash that came with
// definitions stays what it is until its user gets another password. MD5 was the only one before RabbitMQ 3.6.
var saltedHashes = map[int]salted{
	md5.Size:    {"rabbit_password_hashing_md5", func(b []byte) []byte { sum := md5.Sum(b); return sum[:] }},
	sha256.Size: {HashingAlgorithm, func(b []byte) []byte { sum := sha256.Sum256(b); return sum[:] }},
	sha512.Size: {"rabbit_password_hashing_sha512", func(b []byte) []byte { sum := sha512.Sum512(b); return sum[:] }},
}

// PasswordHash is base64 of four bytes of salt and a hash of salt and password, as
// in RabbitMQ's definitions: SHA-256, or one of the others that RabbitMQ has; or bcrypt's own text, which begins with a dollar.
// "" belongs to a user without a password, who cannot log in with one. It hides itself from logs.
type PasswordHash string

// String hides the hash.
func (PasswordHash) String() string { return "(hidden)" }

const saltBytes = 4

// hashBytesMax bounds a hash: base64 may have line breaks, any number of them.
const hashBytesMax = 1024

// HashPassword hashes a password with fresh salt by SHA-256. An empty password gives the
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
	sum := saltedHashes[sha256.Size].sum(append(salt[:], password...))
	return PasswordHash(base64.StdEncoding.EncodeToString(append(salt[:], sum...)))
}

// Matches reports whether password is the one that was hashed. An empty password
// never matches. It takes as long as [PasswordHash.Costly] says.
func (p PasswordHash) Matches(password string) bool {
	if password == "" || p == "" {
		return false
	}
	if p.Costly() {
		return p.bcryptMatches(password)
	}
	raw, h, err := p.parse()
	if err != nil {
		return false
	}
	want := h.sum(append(slices.Clone(raw[:saltBytes]), password...))
	return subtle.ConstantTimeCompare(want, raw[saltBytes:]) == 1
}

// Costly tells whether a check takes tens of milliseconds of a processor by design, and not a microsecond.
func (p PasswordHash) Costly() bool { return strings.HasPrefix(string(p), "$") }

// parse returns the salt with the hash, and how it was made, of one that is not costly.
func (p PasswordHash) parse() (raw []byte, h salted, err error) {
	if raw, err = base64.StdEncoding.DecodeString(string(p)); err != nil {
		return nil, salted{}, errors.New("password hash is not base64")
	}
	h, ok := saltedHashes[len(raw)-saltBytes]
	if !ok {
		return nil, salted{}, fmt.Errorf("password hash has %d bytes, want %d (SHA-256), %d (SHA-512) or %d (MD5)",
			len(raw), saltBytes+sha256.Size, saltBytes+sha512.Size, saltBytes+md5.Size)
	}
	return raw, h, nil
}

// Algorithm is the name definitions give the way in which a valid hash was made.
func (p PasswordHash) Algorithm() string {
	if p.Costly() {
		return Bcrypt
	}
	if _, h, err := p.parse(); err == nil {
		return h.name
	}
	return HashingAlgorithm
}

// CheckAlgorithm reports that p was not made in the way that definitions name: bcrypt under any name that ends so, since
// brokers differ in it.
func (p PasswordHash) CheckAlgorithm(name string) error {
	is := p.Algorithm()
	if p == "" || name == is || is == Bcrypt && strings.HasSuffix(strings.ToLower(name), Bcrypt) {
		return nil
	}
	return fmt.Errorf("hashing_algorithm is %s, and the hash one of %s", name, is)
}

// Validate reports why p is no hash, or one that takes too long to check.
func (p PasswordHash) Validate() error {
	switch {
	case p == "":
		return nil
	case len(p) > hashBytesMax:
		return fmt.Errorf("password hash has %d bytes, the maximum is %d", len(p), hashBytesMax)
	case p.Costly():
		return p.validateBcrypt()
	}
	_, _, err := p.parse()
	return err
}
