package member

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Encryption says what of gossip is sealed.
type Encryption string

// Modes of Encryption.
const (
	// EncryptionOff sends and takes nothing that is sealed.
	EncryptionOff Encryption = "off"
	// EncryptionAccept takes both, and seals what goes to those who have sealed something lately. It is for the
	// time in which a running cluster turns sealing on.
	EncryptionAccept Encryption = "accept"
	// EncryptionOn sends and takes sealed gossip only.
	EncryptionOn Encryption = "on"
)

const (
	keysMax    = 16
	sealedFor  = time.Minute // how long an address that has sealed something is taken for one that opens
	sealersMax = 4096        // addresses remembered
)

// ParseKeys reads keys, one a line, in base64, of 16, 24 or 32 bytes: AES-128, -192 or -256. Empty lines and those that begin with #
// do not count. The first key seals, all open.
func ParseKeys(content []byte) ([][]byte, error) {
	var keys [][]byte
	number := 0
	for line := range bytes.Lines(content) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil {
			return nil, fmt.Errorf("line %d is no base64", number) // not err: it would quote the key
		}
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return nil, fmt.Errorf("the key of line %d has %d bytes, want 16, 24 or 32", number, n)
		}
		if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			return nil, fmt.Errorf("the key of line %d is there twice", number)
		}
		keys = append(keys, key)
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("no key")
	case len(keys) > keysMax:
		return nil, fmt.Errorf("%d keys, the maximum is %d", len(keys), keysMax)
	}
	return keys, nil
}

// Fingerprint tells keys apart without telling them.
func Fingerprint(key []byte) string {
	sum := sha256.Sum256(append([]byte("warren gossip key\x00"), key...))
	return hex.EncodeToString(sum[:6])
}

// ring holds the keys and seals and opens with them. Its methods may be called from any goroutine.
type ring struct {
	mode     Encryption
	current  atomic.Pointer[[]sealer] // the first seals; never empty unless mode is off
	unopened atomic.Uint64

	mu      sync.Mutex
	sealers map[string]time.Time // addresses that have sealed something, and when last
}

type sealer struct {
	aead        cipher.AEAD
	fingerprint string
}

func newRing(mode Encryption, keys [][]byte) (*ring, error) {
	r := &ring{mode: mode, sealers: map[string]time.Time{}}
	switch mode {
	case "", EncryptionOff:
		r.mode = EncryptionOff
		return r, nil
	case EncryptionAccept, EncryptionOn:
		return r, r.set(keys)
	}
	return nil, fmt.Errorf("gossip encryption %q is not known", mode)
}

func (r *ring) set(keys [][]byte) error {
	if len(keys) == 0 || len(keys) > keysMax {
		return fmt.Errorf("%d gossip keys, want 1 to %d", len(keys), keysMax)
	}
	list := make([]sealer, len(keys))
	for i, k := range keys {
		block, err := aes.NewCipher(k)
		if err != nil {
			return fmt.Errorf("gossip key: %w", err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return fmt.Errorf("gossip key: %w", err)
		}
		list[i] = sealer{aead, Fingerprint(k)}
	}
	r.current.Store(&list)
	return nil
}

func (r *ring) fingerprints() (list []string) {
	if keys := r.current.Load(); keys != nil {
		for _, k := range *keys {
			list = append(list, k.fingerprint)
		}
	}
	return list
}

// sealOverhead is what sealing adds.
const sealOverhead = 12 + 16 // nonce, tag

// appendSealed appends nonce and ciphertext of b. about is authenticated with it.
func (r *ring) appendSealed(to, b, about []byte) []byte {
	aead := (*r.current.Load())[0].aead
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return aead.Seal(append(to, nonce...), nonce, b, about)
}

var errUnopened = errors.New("sealed with a key that is not here")

// open opens what appendSealed has made, with any of the keys.
func (r *ring) open(b, about []byte) ([]byte, error) {
	keys := r.current.Load()
	if keys == nil || len(b) < sealOverhead {
		return nil, errUnopened
	}
	for _, k := range *keys {
		n := k.aead.NonceSize()
		if plain, err := k.aead.Open(nil, b[:n], b[n:], about); err == nil {
			return plain, nil
		}
	}
	r.unopened.Add(1)
	return nil, errUnopened
}

// hears notes that an address has sealed something.
func (r *ring) hears(addr string) {
	if r.mode != EncryptionAccept {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if _, known := r.sealers[addr]; !known && len(r.sealers) >= sealersMax {
		for a, at := range r.sealers {
			if now.Sub(at) > sealedFor {
				delete(r.sealers, a)
			}
		}
		if len(r.sealers) >= sealersMax {
			return
		}
	}
	r.sealers[addr] = now
}

// sealsTo tells whether what goes to an address is sealed.
func (r *ring) sealsTo(addr string) bool {
	if r.mode != EncryptionAccept {
		return r.mode == EncryptionOn
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.sealers[addr]
	return ok && time.Since(at) <= sealedFor
}
