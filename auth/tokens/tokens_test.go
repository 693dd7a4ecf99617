package tokens

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

type issuer struct {
	t   *testing.T
	key jose.JSONWebKey
}

func newIssuer(t *testing.T, id string) issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{t, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}}
}

func (i issuer) sign(claims jwt.Claims) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return token
}

func writeKeys(t *testing.T, file string, keys ...jose.JSONWebKey) {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func good() jwt.Claims {
	return jwt.Claims{
		Subject: "orders", Issuer: "https://login.example", Audience: jwt.Audience{"other", "warren"},
		Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute)), NotBefore: jwt.NewNumericDate(time.Now().Add(-time.Minute)),
	}
}

func userOf(c *Checker, token string) (string, time.Time, error) {
	got, err := c.Check(token)
	return got.User, got.Until, err
}

func TestUser(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	us, them := newIssuer(t, "a"), newIssuer(t, "a")
	second := newIssuer(t, "b")
	writeKeys(t, file, us.key.Public(), second.key.Public())
	c, err := Open(Config{File: file, Issuer: "https://login.example", Audience: "warren"})
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*jwt.Claims)) string {
		claims := good()
		change(&claims)
		return us.sign(claims)
	}
	for _, token := range []string{us.sign(good()), second.sign(good())} {
		user, until, err := userOf(c, token)
		if left := time.Until(until); user != "orders" || err != nil || left < Leeway || left > 2*time.Hour {
			t.Errorf("a good token: %q, for %v, %v", user, left, err)
		}
		if !Shaped(token) {
			t.Error("a good token is taken for a password")
		}
	}
	valid := us.sign(good())
	parts := strings.Split(valid, ".")
	for name, token := range map[string]string{
		"no token":            "",
		"nonsense":            "a.b.c",
		"of somebody else":    them.sign(good()),
		"of an unknown key":   newIssuer(t, "c").sign(good()),
		"of no certain key":   newIssuer(t, "").sign(good()),
		"changed":             parts[0] + "." + parts[1][:len(parts[1])-2] + "." + parts[2],
		"unsigned":            "eyJhbGciOiJub25lIn0." + parts[1] + ".",
		"expired":             with(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Minute)) }),
		"without an end":      with(func(c *jwt.Claims) { c.Expiry = nil }),
		"not yet":             with(func(c *jwt.Claims) { c.NotBefore = jwt.NewNumericDate(time.Now().Add(time.Minute)) }),
		"for somebody else":   with(func(c *jwt.Claims) { c.Audience = jwt.Audience{"other"} }),
		"for nobody":          with(func(c *jwt.Claims) { c.Audience = nil }),
		"of another issuer":   with(func(c *jwt.Claims) { c.Issuer = "https://login.example.org" }),
		"without an issuer":   with(func(c *jwt.Claims) { c.Issuer = "" }),
		"without a user":      with(func(c *jwt.Claims) { c.Subject = "" }),
		"with a long name":    with(func(c *jwt.Claims) { c.Subject = strings.Repeat("a", nameMax+1) }),
		"longer than allowed": strings.Repeat("a", TokenMax+1),
	} {
		if user, _, err := userOf(c, token); err == nil {
			t.Errorf("%s: let in as %q", name, user)
		}
	}
}

// TestSecretsAreNoKeys: a token "signed" with the public key as a shared secret, or by an algorithm that the key is not for, does not count.
func TestSecretsAreNoKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	us := newIssuer(t, "a")
	writeKeys(t, file, us.key.Public())
	c, err := Open(Config{File: file, Audience: "warren"})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := us.key.Public().MarshalJSON()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: text, KeyID: "a"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(good()).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	if user, _, err := userOf(c, token); err == nil {
		t.Errorf("let in as %q", user)
	}
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	for name, key := range map[string]jose.JSONWebKey{
		"a private key":        us.key,
		"a shared secret":      {Key: []byte("secret"), KeyID: "s", Algorithm: string(jose.HS256)},
		"a key for encryption": {Key: private.Public(), KeyID: "e", Use: "enc"},
	} {
		writeKeys(t, file, key)
		if _, err := Open(Config{File: file, Audience: "warren"}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for name, text := range map[string]string{"empty": "", "no keys": `{"keys":[]}`, "no JSON": "-----BEGIN", "another kind": `{"keys":[{"kty":"moon"}]}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{File: file, Audience: "warren"}); err == nil {
			t.Errorf("a file that is %s is taken", name)
		}
	}
	if _, err := Open(Config{File: file + "x", Audience: "warren"}); err == nil {
		t.Error("no file is taken")
	}
}

// TestKeysOfIssuer: of what an issuer publishes in one set only the keys for signatures count, whatever else is there.
func TestKeysOfIssuer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	us, enc := newIssuer(t, "a"), newIssuer(t, "e")
	sig, public := us.key.Public(), enc.key.Public()
	sig.Use, public.Use = "sig", "enc"
	one, err := sig.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	other, err := public.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	set := fmt.Sprintf(`{"keys":[%s,{"kty":"OKP","crv":"Ed448","kid":"f","x":"AA"},{"kty":"moon"},%s]}`, other, one)
	if err := os.WriteFile(file, []byte(set), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(Config{File: file, Audience: "warren"})
	if err != nil {
		t.Fatal(err)
	}
	if user, _, err := userOf(c, us.sign(good())); err != nil {
		t.Errorf("a token signed with the key for signatures: %q, %v", user, err)
	}
	if user, _, err := userOf(c, enc.sign(good())); err == nil {
		t.Errorf("a token signed with a key that is not for signatures: let in as %q", user)
	}
}

// TestKeysRotate: the file is read again when it has changed; one that cannot be read leaves the keys that there are.
func TestKeysRotate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	old, next := newIssuer(t, "a"), newIssuer(t, "b")
	writeKeys(t, file, old.key.Public())
	c, err := Open(Config{File: file, Audience: "warren"})
	if err != nil {
		t.Fatal(err)
	}
	ahead := time.Duration(0)
	now := func() time.Time { return time.Now().Add(ahead) }
	c.now, c.source.(*keyFile).now = now, now
	counts := func(i issuer) bool {
		ahead += looks
		_, _, err := userOf(c, i.sign(good()))
		return err == nil
	}
	if !counts(old) || counts(next) {
		t.Error("the first keys do not count alone")
	}
	writeKeys(t, file, old.key.Public(), next.key.Public())
	if !counts(old) || !counts(next) {
		t.Error("both keys do not count")
	}
	if err := os.WriteFile(file, []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !counts(old) || !counts(next) {
		t.Error("keys are gone with a file that cannot be read")
	}
	writeKeys(t, file, next.key.Public())
	if counts(old) || !counts(next) {
		t.Error("the old key still counts")
	}
}

// TestKeysHang: logins go on with the keys of before while the file of keys hangs, as one does on a disk that hangs.
func TestKeysHang(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	issuer := newIssuer(t, "a")
	writeKeys(t, file, issuer.key.Public())
	c, err := Open(Config{File: file, Audience: "warren"})
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Now().Add(2 * looks) }
	c.now, c.source.(*keyFile).now = now, now // it is looked at again
	if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 10)
	token := issuer.sign(good())
	for range cap(ended) {
		go func() { // ends soon
			_, _, err := userOf(c, token)
			ended <- err
		}()
	}
	for range cap(ended) {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * lookMax):
			t.Fatal("a login waits for the file")
		}
	}
	pipe, err := os.OpenFile(file, os.O_WRONLY, 0) // which ends the look
	if err != nil {
		t.Fatal(err)
	}
	pipe.Close()
}

func FuzzToken(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	keys := &keyFile{now: time.Now, looked: time.Now().Add(24 * time.Hour), set: &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "a"}}}}
	c := &Checker{cfg: Config{Audience: "warren", UserClaims: []string{"sub"}}, now: time.Now, source: keys}
	f.Add("eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.e30.AAAA")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if user, _, err := userOf(c, token); err == nil {
			t.Errorf("%q is let in as %q", token, user)
		}
	})
}

// TestShaped: what a client sends as its password may be a token, and most passwords are none.
func TestShaped(t *testing.T) {
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	for secret, want := range map[string]bool{
		header + ".x.y": true, header + "..": true, // the checker refuses them
		"": false, "guest": false, "a.b.c": false, "..": false, header: false, header + ".x": false, header + ".x.y.z": false, "e30.x.y": false, "W10.x.y": false, header + "=.x.y": false,
	} {
		if Shaped(secret) != want {
			t.Errorf("%q: %v", secret, !want)
		}
	}
}
