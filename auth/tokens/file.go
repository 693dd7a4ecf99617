package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// looks is the least time between two looks whether the file has changed, and lookMax how long logins wait for one.
const looks, lookMax = time.Second, time.Second

// keyFile is a source that reads the keys again when their file changes.
type keyFile struct {
	path string
	now  func() time.Time

	mu     sync.Mutex
	set    *jose.JSONWebKeySet
	looked time.Time
	read   fs.FileInfo // of the file as it was read
	look   *look       // that is under way, nil if none is
}

// look is one at the file.
type look struct {
	began time.Time
	ended chan struct{} // closed when err, and what it has found, are there
	err   error
}

func openFile(path string) (*keyFile, error) {
	c := &keyFile{path: path, now: time.Now}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("keys of tokens: %w", err)
	}
	if c.set, err = load(path); err != nil {
		return nil, err
	}
	c.read, c.looked = info, c.now()
	return c, nil
}

func (c *keyFile) close() error { return nil }

// keys implements source. With an error they are those of before.
func (c *keyFile) keys(string) (*jose.JSONWebKeySet, error) {
	l := c.looking()
	var err error
	if l != nil {
		late := time.NewTimer(lookMax - time.Since(l.began))
		defer late.Stop()
		select {
		case <-l.ended:
			err = l.err
		case <-late.C:
			err = errHangs
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set, err
}

var errHangs = errors.New("keys of tokens: the file does not answer: those of before are used")

// looking returns the look that is under way, and begins one if it is time; nil: nobody looks.
func (c *keyFile) looking() *look {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.look == nil && now.Sub(c.looked) >= looks {
		l := &look{began: time.Now(), ended: make(chan struct{})}
		c.looked, c.look = now, l
		go c.again(l, c.read) // ends with the look; there is one at a time
	}
	return c.look
}

// again looks whether the file has changed. It may hang, as what the file is on may: nobody else does.
func (c *keyFile) again(l *look, before fs.FileInfo) {
	keys, info, err := changed(c.path, before)
	c.mu.Lock()
	defer c.mu.Unlock()
	if keys != nil {
		c.set, c.read = keys, info
	}
	l.err, c.look = err, nil
	close(l.ended)
}

// changed reads a file if it is another one than before, else the keys are nil.
func changed(file string, before fs.FileInfo) (*jose.JSONWebKeySet, fs.FileInfo, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, fmt.Errorf("keys of tokens: %w", err)
	}
	if os.SameFile(info, before) && info.ModTime().Equal(before.ModTime()) && info.Size() == before.Size() {
		return nil, nil, nil
	}
	keys, err := load(file)
	return keys, info, err
}

// load reads a set of keys from a file.
func load(file string) (*jose.JSONWebKeySet, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("keys of tokens: %w", err)
	}
	defer f.Close()
	return parse(f, file)
}

// parse reads what load does; from is where that comes from, for errors. What is no key for signatures, or of a kind that is not known, is passed over, as RFC 7517
// (section 5) has it: issuers publish the keys of all that they do in one set. One that whoever reads it could sign tokens with is a mistake that somebody should
// hear of.
func parse(r io.Reader, from string) (*jose.JSONWebKeySet, error) {
	text, err := io.ReadAll(io.LimitReader(r, keysMax+1))
	if err != nil {
		return nil, fmt.Errorf("keys of tokens: %s: %w", from, err)
	}
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if len(text) > keysMax {
		return nil, fmt.Errorf("keys of tokens: %s has more than %d bytes", from, keysMax)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&all); err != nil {
		return nil, fmt.Errorf("keys of tokens: %s is no JSON Web Key Set: %w", from, err)
	}
	set := &jose.JSONWebKeySet{}
	for i, raw := range all.Keys {
		var k jose.JSONWebKey
		err := json.Unmarshal(raw, &k)
		switch {
		case errors.Is(err, jose.ErrUnsupportedKeyType):
			continue
		case err != nil:
			return nil, fmt.Errorf("keys of tokens: key %d of %d in %s: %w", i+1, len(all.Keys), from, err)
		case !k.Valid():
			return nil, fmt.Errorf("keys of tokens: key %q in %s is not valid", k.KeyID, from)
		case !k.IsPublic():
			return nil, fmt.Errorf("keys of tokens: key %q in %s is no public key: whoever reads it could sign tokens", k.KeyID, from)
		case k.Use == "" || k.Use == "sig":
			set.Keys = append(set.Keys, k)
		}
	}
	if len(set.Keys) == 0 {
		return nil, fmt.Errorf("keys of tokens: of %d keys in %s none is one for signatures that is known here", len(all.Keys), from)
	}
	return set, nil
}
