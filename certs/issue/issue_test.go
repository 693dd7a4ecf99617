package issue

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/certs"
	"github.com/warrenmq/warren/test/pki"
)

func filesIn(dir string) certs.Files {
	return certs.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
}

func open(t *testing.T, dir, name string) *certs.Source {
	t.Helper()
	s, err := certs.Open(filesIn(dir), certs.Options{Use: "test", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestMade: nodes accept each other, clients the nodes, nodes the users, and nobody of one authority passes for one of the other.
func TestMade(t *testing.T) {
	dir := t.TempDir()
	r := Request{Dir: dir, NodeName: "warren-node", ClientNames: []string{"warren.prod.svc", "10.1.2.3", "*.warren-nodes"}, Users: []string{"orders"}}
	made, err := Make(r)
	if err != nil || len(made) != 3 {
		t.Fatalf("made %q, %v", made, err)
	}
	nodes, clients := filepath.Join(dir, "nodes"), filepath.Join(dir, "clients")
	node, edge := open(t, nodes, "warren-node"), open(t, clients, "")
	if s, c := pki.Shake(node.ServerConfig(tls.RequireAndVerifyClientCert), node.ClientConfig()); s != nil || c != nil {
		t.Errorf("between nodes: %v, %v", s, c)
	}
	user, err := tls.LoadX509KeyPair(filepath.Join(dir, "users", "orders", "tls.crt"), filepath.Join(dir, "users", "orders", "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(dir, "users", "orders", "ca.crt"))
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "warren.prod.svc", "10.1.2.3", "warren-0.warren-nodes"} {
		c := &tls.Config{RootCAs: pool, ServerName: name, Certificates: []tls.Certificate{user}}
		if s, c := pki.Shake(edge.ServerConfig(tls.RequireAndVerifyClientCert), c); s != nil || c != nil {
			t.Errorf("client of %s: %v, %v", name, s, c)
		}
	}
	if _, c := pki.Shake(edge.ServerConfig(tls.NoClientCert), &tls.Config{RootCAs: pool, ServerName: "other.svc"}); c == nil {
		t.Error("a client takes a name that is not in the certificate")
	}
	if s, _ := pki.Shake(node.ServerConfig(tls.RequireAndVerifyClientCert), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{user}}); s == nil {
		t.Error("a user's certificate passes for a node's")
	}
	if user.Leaf.Subject.CommonName != "orders" {
		t.Errorf("common name %q", user.Leaf.Subject.CommonName)
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && path != dir {
			t.Errorf("%s can be read by others: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRenewal: a second run makes new certificates of the same authorities.
func TestRenewal(t *testing.T) {
	r := Request{Dir: t.TempDir(), NodeName: "warren-node", Life: time.Hour}
	read := func(path ...string) string {
		raw, err := os.ReadFile(filepath.Join(append([]string{r.Dir}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if _, err := Make(r); err != nil {
		t.Fatal(err)
	}
	cert, ca := read("nodes", "tls.crt"), read("nodes", "ca.crt")
	old := open(t, filepath.Join(r.Dir, "nodes"), "warren-node")
	if _, err := Make(r); err != nil {
		t.Fatal(err)
	}
	if read("nodes", "tls.crt") == cert || read("nodes", "ca.crt") != ca {
		t.Error("want a new certificate of the same authority")
	}
	renewed := open(t, filepath.Join(r.Dir, "nodes"), "warren-node")
	if s, c := pki.Shake(old.ServerConfig(tls.RequireAndVerifyClientCert), renewed.ClientConfig()); s != nil || c != nil {
		t.Errorf("the old one and the new one: %v, %v", s, c)
	}
}

// TestNotLongerThanTheAuthority: a certificate that outlives its authority would fail without notice.
func TestNotLongerThanTheAuthority(t *testing.T) {
	r := Request{Dir: t.TempDir(), NodeName: "n", Life: 48 * time.Hour, AuthorityLife: 24 * time.Hour}
	if _, err := Make(r); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(open(t, filepath.Join(r.Dir, "nodes"), "n").Stats().NotAfter); left > 24*time.Hour {
		t.Errorf("valid for %v", left)
	}
	r.Now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	if _, err := Make(r); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("with an expired authority: %v", err)
	}
}

func TestRefused(t *testing.T) {
	ok := func() Request { return Request{Dir: t.TempDir(), NodeName: "warren-node"} }
	for name, spoil := range map[string]func(*Request){
		"no folder":     func(r *Request) { r.Dir = "" },
		"no name":       func(r *Request) { r.NodeName = "" },
		"name":          func(r *Request) { r.ClientNames = []string{"a b"} },
		"empty label":   func(r *Request) { r.ClientNames = []string{"a..b"} },
		"star inside":   func(r *Request) { r.ClientNames = []string{"a.*.b"} },
		"user's path":   func(r *Request) { r.Users = []string{"../x"} },
		"dots":          func(r *Request) { r.Users = []string{".."} },
		"long user":     func(r *Request) { r.Users = []string{strings.Repeat("u", 65)} },
		"negative life": func(r *Request) { r.Life = -1 },
		"a file, no folder": func(r *Request) {
			r.Dir = filepath.Join(r.Dir, "f")
			if err := os.WriteFile(r.Dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"authority without key": func(r *Request) {
			if _, err := Make(*r); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(r.Dir, "authorities", "nodes.key")); err != nil {
				t.Fatal(err)
			}
		},
		"authority of another key": func(r *Request) {
			if _, err := Make(*r); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(r.Dir, "authorities", "nodes.key"), filepath.Join(r.Dir, "authorities", "clients.key")); err != nil {
				t.Fatal(err)
			}
		},
		"authority that is none": func(r *Request) {
			if _, err := Make(*r); err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{"crt", "key"} {
				if err := os.Rename(filepath.Join(r.Dir, "nodes", "tls."+f), filepath.Join(r.Dir, "authorities", "nodes."+f)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"garbage": func(r *Request) {
			if err := write(filepath.Join(r.Dir, "authorities", "nodes.crt"), []byte("no PEM")); err != nil {
				t.Fatal(err)
			}
			if err := write(filepath.Join(r.Dir, "authorities", "nodes.key"), nil); err != nil {
				t.Fatal(err)
			}
		},
	} {
		r := ok()
		spoil(&r)
		if made, err := Make(r); err == nil {
			t.Errorf("%s: made %q", name, made)
		}
	}
}
