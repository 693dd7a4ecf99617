package certs

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/warrenmq/warren/test/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodeName = "warren-node"

func authority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *pki.Authority, l pki.Leaf) pki.Pair {
	t.Helper()
	p, err := a.Issue(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func node(t *testing.T, a *pki.Authority) pki.Pair {
	t.Helper()
	return issue(t, a, pki.Leaf{DNS: []string{nodeName}})
}

func put(t *testing.T, dir string, p pki.Pair, as ...*pki.Authority) Files {
	t.Helper()
	at, err := pki.Write(dir, p, as...)
	if err != nil {
		t.Fatal(err)
	}
	return Files(at)
}

func open(t *testing.T, f Files, opt Options) *Source {
	t.Helper()
	opt.Every = time.Hour
	s, err := Open(f, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// cut takes some bytes from the end of a file.
func cut(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b[:len(b)-100], 0o600)
}

// An authority that ends before the certificate does is told of: with it the certificate is worthless. Of several the next one counts, and when all have expired the last.
func TestAuthorityThatExpires(t *testing.T) {
	first := authority(t, "first")
	leaf := issue(t, first, pki.Leaf{DNS: []string{nodeName}, To: time.Now().Add(365 * 24 * time.Hour)})
	f := put(t, t.TempDir(), leaf, first)
	now := time.Now()
	s := open(t, f, Options{Name: nodeName, Now: func() time.Time { return now }})
	end := s.Stats().Authorities
	if left := end.Sub(now); left < 47*time.Hour || left > 49*time.Hour {
		t.Errorf("the authority ends in %v", left)
	}
	if now = end.Add(time.Minute); s.Stats().Authorities != end {
		t.Errorf("expired, it ends at %v, want %v", s.Stats().Authorities, end)
	}
	// Nodes cannot be started with it any more: what is said before has to be enough.
	if _, err := Open(f, Options{Name: nodeName, Now: func() time.Time { return now }}); err == nil {
		t.Error("opened with an authority that has expired")
	}
	bare := put(t, t.TempDir(), leaf)
	bare.CA = ""
	if open(t, bare, Options{}).Stats().Authorities != (time.Time{}) {
		t.Error("there is no authority")
	}
	at := func(hours ...int) (list []time.Time) {
		for _, h := range hours {
			list = append(list, now.Add(time.Duration(h)*time.Hour))
		}
		return list
	}
	for _, ends := range [][]time.Time{at(3), at(-5, 3, 7), at(7, 3, -5), at(7, -5, 3)} {
		if got := nextEnd(ends, now); !got.Equal(at(3)[0]) {
			t.Errorf("%v: %v", ends, got)
		}
	}
	for _, ends := range [][]time.Time{at(-3, -7), at(-7, -3)} {
		if got := nextEnd(ends, now); !got.Equal(at(-3)[0]) {
			t.Errorf("%v: %v", ends, got)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	ca, other := authority(t, "ca"), authority(t, "other")
	good := node(t, ca)
	for _, tc := range []struct {
		name   string
		pair   pki.Pair
		ca     []*pki.Authority
		spoil  func(Files) error
		opt    Options
		reason string
	}{
		{name: "good", pair: good, ca: []*pki.Authority{ca}, opt: Options{Name: nodeName}},
		{name: "any name for clients", pair: issue(t, other, pki.Leaf{}), ca: []*pki.Authority{ca}},
		{name: "of another authority", pair: node(t, other), ca: []*pki.Authority{ca}, opt: Options{Name: nodeName}, reason: "unknown authority"},
		{name: "without the name", pair: issue(t, ca, pki.Leaf{DNS: []string{"n1"}}), ca: []*pki.Authority{ca}, opt: Options{Name: nodeName}, reason: "not warren-node"},
		{name: "name in the subject only", pair: issue(t, ca, pki.Leaf{Subject: pkix.Name{CommonName: nodeName}}), ca: []*pki.Authority{ca}, opt: Options{Name: nodeName}, reason: "SANs"},
		{name: "only for servers", pair: issue(t, ca, pki.Leaf{DNS: []string{nodeName}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), ca: []*pki.Authority{ca}, opt: Options{Name: nodeName}, reason: "incompatible key usage"},
		{name: "expired", pair: issue(t, ca, pki.Leaf{DNS: []string{nodeName}, To: time.Now().Add(-time.Minute)}), ca: []*pki.Authority{ca}, opt: Options{Name: nodeName}},
		{name: "key of another", pair: pki.Pair{Cert: good.Cert, Key: node(t, ca).Key}, ca: []*pki.Authority{ca}, reason: "private key does not match"},
		{name: "no PEM", pair: pki.Pair{Cert: []byte("hello"), Key: good.Key}, ca: []*pki.Authority{ca}, reason: "failed to find any PEM data"},
		{name: "no authority", pair: good, reason: "no certificate in it"},
		{name: "missing", pair: good, ca: []*pki.Authority{ca}, spoil: func(f Files) error { return os.Remove(f.Key) }, reason: "no such file"},
		{name: "too large", pair: good, ca: []*pki.Authority{ca}, spoil: func(f Files) error { return os.Truncate(f.CA, fileBytesMax+1) }, reason: "larger than"},
		{name: "half an authority", pair: good, ca: []*pki.Authority{ca}, spoil: func(f Files) error {
			return os.WriteFile(f.CA, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0o600)
		}, reason: "malformed"},
		{name: "a bundle that is cut short", pair: good, ca: []*pki.Authority{ca, other}, spoil: func(f Files) error { return cut(f.CA) }, reason: "incomplete"},
		{name: "a chain that is cut short", pair: pki.Pair{Cert: slices.Concat(good.Cert, node(t, other).Cert), Key: good.Key}, ca: []*pki.Authority{ca}, spoil: func(f Files) error { return cut(f.Cert) }, reason: "incomplete"},
		{name: "words around them", pair: pki.Pair{Cert: slices.Concat([]byte("leaf:\n"), good.Cert, []byte("\nthe end\n")), Key: good.Key}, ca: []*pki.Authority{ca}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := put(t, t.TempDir(), tc.pair, tc.ca...)
			if tc.spoil != nil {
				if err := tc.spoil(f); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Open(f, tc.opt)
			if s != nil {
				defer s.Close()
			}
			switch {
			case tc.reason == "" && err != nil:
				t.Error(err)
			case tc.reason != "" && (err == nil || !strings.Contains(err.Error(), tc.reason)):
				t.Errorf("got %v, want %q in it", err, tc.reason)
			}
		})
	}
}

func TestNodesCheckEachOther(t *testing.T) {
	ca, other := authority(t, "ca"), authority(t, "other")
	us := open(t, put(t, t.TempDir(), node(t, ca), ca), Options{Name: nodeName})
	server, client := us.ServerConfig(tls.RequireAndVerifyClientCert, "h2"), us.ClientConfig("h2")
	for _, tc := range []struct {
		name string
		pair pki.Pair
		ok   bool
	}{
		{"a node", node(t, ca), true},
		{"of another authority", node(t, other), false},
		{"a client of the same authority", issue(t, ca, pki.Leaf{Subject: pkix.Name{CommonName: nodeName}, DNS: []string{"app"}}), false},
		{"expired", issue(t, ca, pki.Leaf{DNS: []string{nodeName}, To: time.Now().Add(-time.Minute)}), false},
		{"not yet valid", issue(t, ca, pki.Leaf{DNS: []string{nodeName}, From: time.Now().Add(time.Hour)}), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pair, err := tls.X509KeyPair(tc.pair.Cert, tc.pair.Key)
			if err != nil {
				t.Fatal(err)
			}
			// It trusts everybody: what is looked at is whether it is trusted.
			serverErr, clientErr := pki.Shake(server, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
			if (serverErr == nil && clientErr == nil) != tc.ok {
				t.Errorf("as a client: server %v, client %v", serverErr, clientErr)
			}
			_, clientErr = pki.Shake(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"h2"}}, client)
			if (clientErr == nil) != tc.ok {
				t.Errorf("as a server: %v", clientErr)
			}
		})
	}
	t.Run("no certificate", func(t *testing.T) {
		if serverErr, clientErr := pki.Shake(server, &tls.Config{InsecureSkipVerify: true}); serverErr == nil || clientErr == nil {
			t.Errorf("server %v, client %v", serverErr, clientErr)
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		pair := node(t, ca)
		c, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		if serverErr, _ := pki.Shake(server, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c}, MaxVersion: tls.VersionTLS12}); serverErr == nil {
			t.Error("was let in")
		}
	})
}

// What is in use changes under configurations that were handed out before, and bad content changes nothing.
func TestReload(t *testing.T) {
	first, second := authority(t, "first"), authority(t, "second")
	dir := t.TempDir()
	start := node(t, first)
	s := open(t, put(t, dir, start, first), Options{Name: nodeName})
	server, client := s.ServerConfig(tls.RequireAndVerifyClientCert), s.ClientConfig()
	var changes []Change
	s.OnChange(func(c Change) { changes = append(changes, c) })
	peer := func(pair pki.Pair) bool {
		c, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		serverErr, _ := pki.Shake(server, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c}})
		_, clientErr := pki.Shake(&tls.Config{Certificates: []tls.Certificate{c}, ClientAuth: tls.RequireAnyClientCert}, client)
		if (serverErr == nil) != (clientErr == nil) {
			t.Fatalf("the listener says %v, the dialler %v", serverErr, clientErr)
		}
		return serverErr == nil
	}
	oldPeer, newPeer := node(t, first), node(t, second)
	for i, step := range []struct {
		name      string
		pair      pki.Pair
		ca        []*pki.Authority
		spoil     func(Files) error
		change    *Change
		failures  uint64
		old, next bool // which peers are let in afterwards
	}{
		{name: "nothing new", pair: start, ca: []*pki.Authority{first}, old: true},
		{name: "both authorities", pair: start, ca: []*pki.Authority{first, second}, change: &Change{Authorities: true}, old: true, next: true},
		{name: "half of both authorities", pair: start, ca: []*pki.Authority{first, second}, spoil: func(f Files) error { return cut(f.CA) }, failures: 1, old: true, next: true},
		{name: "key of another", pair: pki.Pair{Cert: start.Cert, Key: oldPeer.Key}, ca: []*pki.Authority{first, second}, failures: 2, old: true, next: true},
		{name: "expired", pair: issue(t, second, pki.Leaf{DNS: []string{nodeName}, To: time.Now().Add(-time.Hour)}), ca: []*pki.Authority{first, second}, failures: 3, old: true, next: true},
		{name: "a leaf whose authority is gone", pair: start, ca: []*pki.Authority{second}, failures: 4, old: true, next: true},
		{name: "no key", pair: node(t, second), ca: []*pki.Authority{first, second}, spoil: func(f Files) error { return os.Remove(f.Key) }, failures: 5, old: true, next: true},
		{name: "a leaf of the new one", pair: newPeer, ca: []*pki.Authority{first, second}, change: &Change{Certificate: true}, failures: 5, old: true, next: true},
		{name: "only the new one", pair: newPeer, ca: []*pki.Authority{second}, change: &Change{Authorities: true}, failures: 5, next: true},
	} {
		t.Run(step.name, func(t *testing.T) {
			f := put(t, dir, step.pair, step.ca...)
			if step.spoil != nil {
				if err := step.spoil(f); err != nil {
					t.Fatal(err)
				}
			}
			changes = nil
			s.Reload()
			s.Reload() // a failure counts once
			switch {
			case step.change == nil && len(changes) != 0 || step.change != nil && (len(changes) != 1 || changes[0] != *step.change):
				t.Errorf("step %d: changes %+v, want %+v", i, changes, step.change)
			case s.Stats().Failures != step.failures:
				t.Errorf("%d failures, want %d", s.Stats().Failures, step.failures)
			}
			if old, next := peer(oldPeer), peer(newPeer); old != step.old || next != step.next {
				t.Errorf("lets in the old peer %t, the new one %t; want %t and %t", old, next, step.old, step.next)
			}
		})
	}
	if n := s.Stats().Reloads; n != 3 {
		t.Errorf("%d reloads", n)
	}
}

// Kubernetes mounts a Secret as links into a folder that a link names, and exchanges that link.
func TestReloadBySymbolicLink(t *testing.T) {
	ca := authority(t, "ca")
	dir := t.TempDir()
	for i, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, name), issue(t, ca, pki.Leaf{DNS: []string{nodeName}, To: time.Now().Add(time.Duration(i+1) * time.Hour)}), ca)
	}
	link := func(target string) {
		if err := os.Symlink(target, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	link("one")
	for _, f := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", f), filepath.Join(dir, f)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(Files(pki.In(dir)), Options{Name: nodeName, Every: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := s.Stats().NotAfter
	link("two")
	for deadline := time.Now().Add(30 * time.Second); s.Stats().NotAfter.Equal(before); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new certificate was not taken")
		}
	}
}

// A listener for clients: with and without certificates of theirs.
func TestClients(t *testing.T) {
	ca, clients := authority(t, "ca"), authority(t, "clients")
	s := open(t, put(t, t.TempDir(), issue(t, ca, pki.Leaf{DNS: []string{"broker"}}), clients), Options{})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	app := issue(t, clients, pki.Leaf{Subject: pkix.Name{CommonName: "app"}})
	pair, err := tls.X509KeyPair(app.Cert, app.Key)
	if err != nil {
		t.Fatal(err)
	}
	strange := node(t, ca)
	stranger, err := tls.X509KeyPair(strange.Cert, strange.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		auth                      tls.ClientAuthType
		without, with, ofStranger bool
	}{
		{tls.NoClientCert, true, true, true},
		{tls.VerifyClientCertIfGiven, true, true, false},
		{tls.RequireAndVerifyClientCert, false, true, false},
	} {
		t.Run(tc.auth.String(), func(t *testing.T) {
			for name, c := range map[string]struct {
				cert []tls.Certificate
				want bool
			}{"without": {nil, tc.without}, "with": {[]tls.Certificate{pair}, tc.with}, "stranger": {[]tls.Certificate{stranger}, tc.ofStranger}} {
				cfg := &tls.Config{RootCAs: roots, ServerName: "broker"}
				cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					if len(c.cert) == 0 {
						return new(tls.Certificate), nil
					}
					return &c.cert[0], nil
				}
				if serverErr, clientErr := pki.Shake(s.ServerConfig(tc.auth), cfg); (serverErr == nil && clientErr == nil) != c.want {
					t.Errorf("%s: server %v, client %v", name, serverErr, clientErr)
				}
			}
		})
	}
}

// A look that falls between the writing of a certificate and that of its key is repeated before anybody is told.
func TestHalfWrittenPair(t *testing.T) {
	ca := authority(t, "ca")
	dir := t.TempDir()
	f := put(t, dir, node(t, ca), ca)
	next, now := node(t, ca), time.Now()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(f, Options{Name: nodeName, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		write := func(path string, content []byte) {
			t.Helper()
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		check := func(reloads, failures uint64) {
			t.Helper()
			if st := s.Stats(); st.Reloads != reloads || st.Failures != failures {
				t.Errorf("%+v, want %d reloads and %d failures", st, reloads, failures)
			}
		}
		time.Sleep(everyDefault - time.Millisecond)
		write(f.Cert, next.Cert)
		time.Sleep(2 * time.Millisecond)
		write(f.Key, next.Key)
		time.Sleep(lookAgain)
		check(1, 0)
		write(f.Key, []byte("no key"))
		time.Sleep(everyDefault + lookAgain)
		check(1, 1)
		time.Sleep(3 * everyDefault)
		check(1, 1)
	})
}
