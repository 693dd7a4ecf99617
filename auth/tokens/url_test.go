package tokens

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// quick is a pace for tests.
var quick = pace{every: time.Hour, pause: 20 * time.Millisecond, timeout: 10 * time.Second, wait: 10 * time.Second}

// keyServer is an issuer's server of keys.
type keyServer struct {
	*httptest.Server

	answer atomic.Value // http.HandlerFunc
	asked  atomic.Int32
}

func serveKeys(t *testing.T, keys ...jose.JSONWebKey) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.have(t, keys...)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		s.answer.Load().(http.HandlerFunc)(w, r)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(s.Close)
	return s
}

// have has the server answer with keys.
func (s *keyServer) have(t *testing.T, keys ...jose.JSONWebKey) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	writeKeys(t, file, keys...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.answer.Store(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }))
}

func (s *keyServer) caFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// checker has the keys of a URL.
func checker(t *testing.T, url, caFile string, p pace) *Checker {
	t.Helper()
	source, err := openURL(url, caFile, p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := &Checker{cfg: Config{Audience: "warren", UserClaims: []string{"sub"}}, now: time.Now, source: source}
	t.Cleanup(func() { _ = c.Close(); _ = c.Close() })
	return c
}

// await waits until a token counts, or does not.
func await(t *testing.T, c *Checker, token string, counts bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		_, err := c.Check(token)
		if (err == nil) == counts {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("counts: %v, wanted %v: %v", !counts, counts, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestKeysOfURL: keys come when they are needed, new ones when a token names one, and those of before count while the issuer has no answer.
func TestKeysOfURL(t *testing.T) {
	first, second := newIssuer(t, "first"), newIssuer(t, "second")
	s := serveKeys(t, first.key.Public())
	c := checker(t, s.URL, s.caFile(t), quick)
	if _, err := c.Check(first.sign(good())); err != nil { // waits for the first fetch
		t.Fatal(err)
	}
	if _, err := c.Check(second.sign(good())); err == nil {
		t.Fatal("a key that is nowhere counts")
	}
	s.have(t, first.key.Public(), second.key.Public())
	await(t, c, second.sign(good()), true)
	for name, answer := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"no keys":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"keys":[]}`) },
		"nonsense": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"too much": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat(" ", keysMax+1)) },
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://issuer.example/keys", http.StatusFound)
		},
		"in circles": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) },
		"nothing":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a private key": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"keys":[{"kty":"oct","k":"AAAA","kid":"first"}]}`)
		},
	} {
		s.answer.Store(answer)
		asked := s.asked.Load()
		for deadline := time.Now().Add(30 * time.Second); s.asked.Load() < asked+2 && time.Now().Before(deadline); { // the first may have been under way
			if _, err := c.Check(newIssuer(t, "none").sign(good())); err == nil {
				t.Fatalf("%s: a key that is nowhere counts", name)
			}
		}
		for _, i := range []issuer{first, second} {
			if _, err := c.Check(i.sign(good())); err != nil {
				t.Errorf("the issuer answers with %s: %v", name, err)
			}
		}
	}
	s.have(t, second.key.Public())
	await(t, c, first.sign(good()), false)
}

// TestIssuerIsSpared: however many tokens name a key that there is not, the issuer is asked once in a while.
func TestIssuerIsSpared(t *testing.T) {
	us, them := newIssuer(t, "us"), newIssuer(t, "them")
	s := serveKeys(t, us.key.Public())
	spared := quick
	spared.pause = time.Hour
	c := checker(t, s.URL, s.caFile(t), spared)
	if _, err := c.Check(us.sign(good())); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := c.Check(them.sign(good())); err == nil {
			t.Fatal("a key that is nowhere counts")
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times", n)
	}
	if _, err := c.Check(us.sign(good())); err != nil {
		t.Error(err)
	}
}

// TestSilentIssuer: without an issuer there are no keys, and who waits for them is refused in time.
func TestSilentIssuer(t *testing.T) {
	us := newIssuer(t, "us")
	s := serveKeys(t, us.key.Public())
	have := s.answer.Load()
	hang := make(chan struct{})
	s.answer.Store(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	hasty := quick
	hasty.wait = 50 * time.Millisecond
	c := checker(t, s.URL, s.caFile(t), hasty)
	if _, err := c.Check(us.sign(good())); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("without keys: %v", err)
	}
	s.answer.Store(have)
	close(hang)
	await(t, c, us.sign(good()), true)
}

// TestIssuerIsVerified: keys come from who has a certificate for the URL, over TLS or from this machine.
func TestIssuerIsVerified(t *testing.T) {
	us := newIssuer(t, "us")
	s := serveKeys(t, us.key.Public())
	c := checker(t, s.URL, "", quick) // with the system's authorities
	if _, err := c.Check(us.sign(good())); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("keys of a server that nobody vouches for: %v", err)
	}
	old := httptest.NewUnstartedServer(s.Config.Handler)
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11} //nolint:gosec // that is what is tested
	old.Config.ErrorLog = s.Config.ErrorLog
	old.StartTLS()
	t.Cleanup(old.Close)
	if _, err := checker(t, old.URL, s.caFile(t), quick).Check(us.sign(good())); err == nil {
		t.Error("keys came over an old TLS")
	}
	plain := httptest.NewServer(s.Config.Handler)
	t.Cleanup(plain.Close)
	if _, err := checker(t, plain.URL, "", quick).Check(us.sign(good())); err != nil {
		t.Errorf("keys from this machine: %v", err)
	}
	for _, bad := range []string{"http://issuer.example/keys", "issuer.example", "ftp://issuer.example", ":", "https://"} {
		if c, err := Open(Config{URL: bad, Audience: "warren"}); err == nil {
			_ = c.Close()
			t.Errorf("keys may come from %q", bad)
		}
	}
	for _, bad := range []string{filepath.Join(t.TempDir(), "none"), "url_test.go"} {
		if c, err := Open(Config{URL: s.URL, CAFile: bad, Audience: "warren"}); err == nil {
			_ = c.Close()
			t.Errorf("authorities may be in %q", bad)
		}
	}
}
