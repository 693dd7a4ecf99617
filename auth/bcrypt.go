package auth

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// Bcrypt is the name of bcrypt in definitions and settings.
const Bcrypt = "bcrypt"

// Bounds of bcrypt. A check takes 2 to the cost as long as its smallest step: about 50 ms at 10, 0.8 s at 14. What is above would let
// whoever writes a user's hash say how long this node works for a login.
const (
	BcryptCostMin     = bcrypt.MinCost
	BcryptCostMax     = 14
	BcryptCostDefault = 10
	// BcryptBytesMax is how much of a password bcrypt looks at. Longer ones are refused, and never match.
	BcryptBytesMax = 72
)

// The text of bcrypt: $2b$10$, then 22 characters of salt and 31 of hash.
const (
	bcryptHeadChars = len("$2b$10$")
	bcryptSaltChars = 22
	bcryptChars     = bcryptHeadChars + bcryptSaltChars + 31
	bcryptAlphabet  = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

// validateBcrypt reports why p is no hash of bcrypt that may be checked here. 2x is left out: it marks hashes of a program that
// took some passwords for the same.
func (p PasswordHash) validateBcrypt() error {
	s := string(p)
	switch {
	case len(s) != bcryptChars || !strings.HasPrefix(s, "$2") || !strings.ContainsRune("aby", rune(s[2])) || s[3] != '$' || s[6] != '$':
		return errors.New("password hash begins with $ and is not one of bcrypt: $2b$, two digits, $ and 53 characters")
	case strings.Trim(s[bcryptHeadChars:], bcryptAlphabet) != "":
		return errors.New("password hash of bcrypt has characters other than ./A-Za-z0-9 in salt and hash")
	}
	cost, err := strconv.Atoi(s[4:6])
	if err != nil || strings.ContainsAny(s[4:6], "+-") || cost < BcryptCostMin || cost > BcryptCostMax {
		return fmt.Errorf("password hash of bcrypt has cost %s, want %02d to %d", s[4:6], BcryptCostMin, BcryptCostMax)
	}
	return nil
}

func (p PasswordHash) bcryptMatches(password string) bool {
	return len(password) <= BcryptBytesMax && p.validateBcrypt() == nil && bcrypt.CompareHashAndPassword([]byte(p), []byte(password)) == nil
}

// Hashing is how new passwords are hashed. The zero value is RabbitMQ's salted SHA-256.
type Hashing struct {
	// BcryptCost is the cost of bcrypt; 0: it is not used.
	BcryptCost int
}

// ParseHashing reads sha256, bcrypt or bcrypt:COST.
func ParseHashing(s string) (Hashing, error) {
	name, cost, given := strings.Cut(s, ":")
	switch {
	case s == "sha256":
		return Hashing{}, nil
	case name == Bcrypt && !given:
		return Hashing{BcryptCost: BcryptCostDefault}, nil
	case name == Bcrypt:
		if n, err := strconv.Atoi(cost); err == nil && strconv.Itoa(n) == cost && n >= BcryptCostMin && n <= BcryptCostMax {
			return Hashing{BcryptCost: n}, nil
		}
	}
	return Hashing{}, fmt.Errorf("must be sha256, bcrypt or bcrypt:COST with a cost from %d to %d, got %q", BcryptCostMin, BcryptCostMax, s)
}

// String is what [ParseHashing] reads.
func (h Hashing) String() string {
	if h.BcryptCost == 0 {
		return "sha256"
	}
	return Bcrypt + ":" + strconv.Itoa(h.BcryptCost)
}

// Hash hashes a password with fresh salt. An empty password gives the empty hash. The error says which passwords can
// not be hashed.
func (h Hashing) Hash(password string) (PasswordHash, error) {
	switch {
	case h.BcryptCost == 0 || password == "":
		return HashPassword(password), nil
	case len(password) > BcryptBytesMax:
		return "", fmt.Errorf("password has %d bytes, bcrypt takes %d at most", len(password), BcryptBytesMax)
	}
	raw, err := bcrypt.GenerateFromPassword([]byte(password), h.BcryptCost)
	return PasswordHash(raw), err
}

// Decoy is a hash that takes as long to check as those of h, and that nobody knows a password for; "" if that is no time.
func (h Hashing) Decoy() PasswordHash {
	if h.BcryptCost == 0 {
		return ""
	}
	// Letters and digits of base64 are of bcrypt's alphabet, whose order does not matter here.
	raw := make([]byte, bcryptChars)
	_, _ = rand.Read(raw) // never fails, by its documentation
	text := strings.ReplaceAll(base64.StdEncoding.EncodeToString(raw), "+", ".")[:bcryptChars-bcryptHeadChars]
	return PasswordHash(fmt.Sprintf("$2b$%02d$%s", h.BcryptCost, text))
}

// BcryptCost is the cost of a valid hash of bcrypt, 0 of another.
func (p PasswordHash) BcryptCost() int {
	if !p.Costly() {
		return 0
	}
	cost, err := bcrypt.Cost([]byte(p))
	if err != nil {
		return 0
	}
	return cost
}
