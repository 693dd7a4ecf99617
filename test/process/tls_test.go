package process

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/client"
	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/pki"
)

// secureRig is a single node that serves clients over TLS. It shows certificates of one authority and trusts
// those of another.
type secureRig struct {
	*testing.T
	node          *cluster.Node
	dir           string // of the files that the node watches
	server, users *pki.Authority
	amqps, https  string
}

// newSecureRig starts a node with more arguments.
func newSecureRig(t *testing.T, args ...string) *secureRig {
	t.Helper()
	r := &secureRig{T: t, dir: t.TempDir(), server: newAuthority(t, "servers"), users: newAuthority(t, "users")}
	r.renew(r.server, r.users)
	files := pki.In(r.dir)
	ports, err := cluster.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	r.amqps, r.https = fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	c := newCluster(t, 1, func(cfg *cluster.Config) {
		cfg.Args = append([]string{
			"--amqps-addr", r.amqps, "--https-addr", r.https, "--tls-client-auth", "verify",
			"--tls-cert-file", files.Cert, "--tls-key-file", files.Key, "--tls-ca-file", files.CA,
		}, args...)
	})
	startAll(t, c)
	r.node = c.Node(0)
	return r
}

func newAuthority(t *testing.T, name string) *pki.Authority {
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

// renew writes a certificate of one authority for the server, and those whose certificates users show.
func (r *secureRig) renew(server *pki.Authority, users ...*pki.Authority) {
	r.Helper()
	p := issue(r.T, server, pki.Leaf{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, DNS: []string{"localhost"}})
	if _, err := pki.Write(r.dir, p, users...); err != nil {
		r.Fatal(err)
	}
}

// user returns files of a certificate of the users' authority, with the servers' authority as CA.
func (r *secureRig) user(l pki.Leaf) pki.Paths {
	r.Helper()
	return writePair(r.T, issue(r.T, r.users, l), r.server)
}

func writePair(t *testing.T, p pki.Pair, as ...*pki.Authority) pki.Paths {
	t.Helper()
	at, err := pki.Write(t.TempDir(), p, as...)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// clientTLS trusts an authority and shows the certificate in files, none if nil.
func clientTLS(t *testing.T, trusted *pki.Authority, files *pki.Paths) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AppendCertsFromPEM(trusted.PEM)
	if files != nil {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		// Shown even if the server does not name its authority.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg
}

func (r *secureRig) dial(cfg *tls.Config, sasl ...amqp.Authentication) (*amqp.Connection, error) {
	if len(sasl) == 0 {
		sasl = []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}
	}
	return connectWith("amqps://"+r.amqps+"/", amqp.Config{SASL: sasl, TLSClientConfig: cfg, Heartbeat: 10 * time.Second})
}

// roundTrip sends a message through a queue.
func roundTrip(t *testing.T, conn *amqp.Connection) {
	t.Helper()
	s := &session{T: t, conn: conn, id: fmt.Sprintf("tls%d", time.Now().UnixNano())}
	s.ch = s.channel(conn)
	defer s.ch.Close()
	q, err := s.ch.QueueDeclare(s.id, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("warren", 100_000)
	ok, err := s.ch.PublishWithDeferredConfirm("", q.Name, false, false, amqp.Publishing{DeliveryMode: 2, Body: []byte(body)})
	if err != nil || !confirmed(t, ok) {
		t.Fatalf("publish: %v", err)
	}
	d, found, err := s.ch.Get(q.Name, true)
	if err != nil || !found || string(d.Body) != body {
		t.Fatalf("get: %t, %v, %d bytes", found, err, len(d.Body))
	}
	if _, err := s.ch.QueueDelete(q.Name, false, false, false); err != nil {
		t.Fatal(err)
	}
}

// hangup makes the node look at its files.
func (r *secureRig) hangup() {
	r.Helper()
	if err := r.node.Signal(syscall.SIGHUP); err != nil {
		r.Fatal(err)
	}
}

// eventually calls f until it returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
	defer cancel()
	var last error
	if err := cluster.Poll(ctx, func() (bool, error) {
		last = f()
		return last == nil, nil
	}); err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}

func TestAMQPS(t *testing.T) {
	t.Parallel()
	r := newSecureRig(t)
	host, port, err := net.SplitHostPort(r.amqps)
	if err != nil {
		t.Fatal(err)
	}
	guest := clientTLS(t, r.server, nil)
	t.Run("amqp091-go", func(t *testing.T) {
		conn, err := r.dial(guest)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		roundTrip(t, conn)
		eventually(t, func() error {
			body, err := r.fetch("http://"+strings.TrimPrefix(r.node.HTTP(), "http://"), nil, "guest", "/api/connections")
			if err != nil || !strings.Contains(body, `"ssl":true,"ssl_protocol":"tlsv1.3"`) {
				return fmt.Errorf("%v: %s", err, body)
			}
			return nil
		})
	})
	ca := writePair(t, issue(t, r.users, pki.Leaf{}), r.server).CA
	for name, command := range map[string][]string{
		"pika":    {"/usr/bin/python3", "../clients/pika/tls.py", host, port, ca},
		"amqplib": {"node", "../clients/node/check-tls.js", host, port, ca},
	} {
		t.Run(name, func(t *testing.T) { runClient(t, command, nil) })
	}
	t.Run("an authority that the client does not trust", func(t *testing.T) {
		if conn, err := r.dial(clientTLS(t, r.users, nil)); err == nil {
			conn.Close()
			t.Error("the client was content")
		}
	})
	t.Run("a certificate of a stranger", func(t *testing.T) {
		files := writePair(t, issue(t, r.server, pki.Leaf{Subject: pkix.Name{CommonName: "guest"}}))
		if conn, err := r.dial(clientTLS(t, r.server, &files)); err == nil {
			conn.Close()
			t.Error("the server was content")
		}
	})
	t.Run("no TLS", func(t *testing.T) {
		if conn, err := connect("amqp://guest:guest@" + r.amqps + "/"); err == nil {
			conn.Close()
			t.Error("was let in")
		}
	})
	t.Run("TLS 1.1", func(t *testing.T) {
		old := guest.Clone()
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		if conn, err := r.dial(old); err == nil {
			conn.Close()
			t.Error("was let in")
		}
	})
	t.Run("gRPC", func(t *testing.T) {
		conn, err := grpc.NewClient(r.node.GRPCAddr(), grpc.WithTransportCredentials(credentials.NewTLS(guest.Clone())))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("replaced without a restart", func(t *testing.T) {
		old, err := r.dial(guest)
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		next := newAuthority(t, "next")
		// A key that does not fit changes nothing.
		if err := os.WriteFile(pki.In(r.dir).Key, issue(t, next, pki.Leaf{}).Key, 0o600); err != nil {
			t.Fatal(err)
		}
		r.hangup()
		eventually(t, func() error { return r.metric("warren_certificate_reload_failures_total{use=\"clients\"} 1") })
		if conn, err := r.dial(guest); err != nil {
			t.Fatal(err)
		} else {
			conn.Close()
		}
		r.renew(next, r.users)
		r.hangup()
		eventually(t, func() error {
			conn, err := r.dial(clientTLS(t, next, nil))
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if conn, err := r.dial(guest); err == nil {
			conn.Close()
			t.Error("the old certificate is still shown")
		}
		roundTrip(t, old)
		if err := r.metric("warren_certificate_expiry_seconds{use=\"clients\"} 86"); err != nil {
			t.Error(err)
		}
	})
}

// metric tells whether a line of the metrics begins so.
func (r *secureRig) metric(line string) error {
	body, err := r.node.Fetch(r.Context(), "/metrics")
	if err == nil && !strings.Contains(string(body), "\n"+line) {
		err = fmt.Errorf("no metric %s", line)
	}
	return err
}

// fetch gets a path of the management API; user is "" for no password.
func (r *secureRig) fetch(base string, cfg *tls.Config, user, path string) (string, error) {
	client := &http.Client{Timeout: timeoutReply, Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return "", err
	}
	if user != "" {
		req.SetBasicAuth(user, user)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

func TestHTTPS(t *testing.T) {
	t.Parallel()
	r := newSecureRig(t, "--tls-login-from", "common_name")
	base := "https://" + r.https
	plain := clientTLS(t, r.server, nil)
	t.Run("password", func(t *testing.T) {
		if body, err := r.fetch(base, plain, "guest", "/api/whoami"); err != nil || !strings.Contains(body, `"name":"guest"`) {
			t.Errorf("%v: %s", err, body)
		}
		if _, err := r.fetch(base, plain, "nobody", "/api/whoami"); err == nil || !strings.Contains(err.Error(), "401") {
			t.Error(err)
		}
		if _, err := r.fetch(base, plain, "", "/api/whoami"); err == nil || !strings.Contains(err.Error(), "401") {
			t.Error(err)
		}
		if body, err := r.fetch(base, plain, "", "/readyz"); err != nil || !strings.HasPrefix(body, "ready\n") {
			t.Errorf("%v: %s", err, body)
		}
	})
	admin, stranger := r.user(pki.Leaf{Subject: pkix.Name{CommonName: "guest"}}), r.user(pki.Leaf{Subject: pkix.Name{CommonName: "unknown"}})
	t.Run("gRPC", func(t *testing.T) {
		get := func(cfg *tls.Config, options ...grpc.DialOption) error {
			conn, err := grpc.NewClient(r.node.GRPCAddr(), append(options, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))...)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = warrenv1.NewTopologyServiceClient(conn).ListExchanges(t.Context(), &warrenv1.ListExchangesRequest{})
			return err
		}
		if err := errors.Join(get(clientTLS(t, r.server, &admin)), get(plain, grpc.WithPerRPCCredentials(basicLogin{"guest", "guest"}))); err != nil {
			t.Error(err)
		}
		wantCode(t, get(clientTLS(t, r.server, &stranger)), codes.Unauthenticated, "LOGIN_REFUSED")
		wantCode(t, get(plain), codes.Unauthenticated, "LOGIN_REFUSED")
		// The Go client logs in in both ways, too.
		for _, cfg := range []client.Config{{TLS: clientTLS(t, r.server, &admin)}, {TLS: plain, User: "guest", Password: "guest"}} {
			cfg.Addrs = []string{r.node.GRPCAddr()}
			c, err := client.Dial(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.DeclareQueue(t.Context(), client.Queue{Name: "by TLS"}); err != nil {
				t.Error(err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			cfg.TLS, cfg.User = clientTLS(t, r.server, &stranger), strings.ReplaceAll(cfg.User, "guest", "nobody")
			if _, err := client.Dial(t.Context(), cfg); !errors.Is(err, client.ErrLoginRefused) {
				t.Errorf("a stranger: %v", err)
			}
		}
		// What a client says of itself goes before its certificate.
		wantCode(t, get(clientTLS(t, r.server, &admin), grpc.WithPerRPCCredentials(basicLogin{"guest", "wrong"})), codes.Unauthenticated, "LOGIN_REFUSED")
	})
	t.Run("certificate", func(t *testing.T) {
		cfg := clientTLS(t, r.server, &admin)
		body, err := r.fetch(base, cfg, "", "/api/whoami")
		var user struct{ Name string }
		if err == nil {
			err = json.Unmarshal([]byte(body), &user)
		}
		if err != nil || user.Name != "guest" {
			t.Errorf("%v: %s", err, body)
		}
		// A password that is given counts.
		if _, err := r.fetch(base, cfg, "nobody", "/api/whoami"); err == nil || !strings.Contains(err.Error(), "401") {
			t.Error(err)
		}
		if _, err := r.fetch(base, clientTLS(t, r.server, &stranger), "", "/api/whoami"); err == nil || !strings.Contains(err.Error(), "401") {
			t.Error(err)
		}
	})
	t.Run("ctl", func(t *testing.T) {
		if code, out, errs := ctl(t, r.node, "--url", base, "--ca-file", admin.CA, "list_vhosts"); code != 0 || !strings.Contains(out, "/") {
			t.Errorf("%d: %s %s", code, out, errs)
		}
		if code, out, errs := ctl(t, r.node, "--url", base, "--ca-file", admin.CA, "--cert-file", admin.Cert, "--key-file", admin.Key, "list_users"); code != 0 || !strings.Contains(out, "guest") {
			t.Errorf("%d: %s %s", code, out, errs)
		}
		if code, _, errs := ctl(t, r.node, "--url", base, "list_vhosts"); code != 69 || !strings.Contains(errs, "certificate") {
			t.Errorf("%d: %s", code, errs)
		}
		if code, _, errs := ctl(t, r.node, "--url", base, "--ca-file", filepath.Join(r.dir, "none"), "list_vhosts"); code != 64 {
			t.Errorf("%d: %s", code, errs)
		}
	})
}

// EXTERNAL: who may, and in which words who may not is refused.
func TestExternalLogin(t *testing.T) {
	t.Parallel()
	r := newSecureRig(t, "--tls-login-from", "subject_alternative_name", "--tls-login-san-type", "email")
	mustCtl(t, r.node, "add_user", "app@example.org", "a password of its own")
	mustCtl(t, r.node, "set_permissions", "app@example.org", ".*", ".*", ".*")
	app := r.user(pki.Leaf{Subject: pkix.Name{CommonName: "guest"}, Emails: []string{"app@example.org", "guest"}})
	unknown, nameless := r.user(pki.Leaf{Emails: []string{"nobody@example.org"}}), r.user(pki.Leaf{Subject: pkix.Name{CommonName: "guest"}, DNS: []string{"guest"}})
	host, port, err := net.SplitHostPort(r.amqps)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("amqp091-go", func(t *testing.T) {
		conn, err := r.dial(clientTLS(t, r.server, &app), &amqp.ExternalAuth{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		roundTrip(t, conn)
		body, err := r.fetch(r.node.HTTP(), nil, "guest", "/api/connections")
		if err != nil || !strings.Contains(body, `"auth_mechanism":"EXTERNAL"`) || !strings.Contains(body, `"user":"app@example.org"`) || !strings.Contains(body, `"peer_cert_subject":"CN=guest"`) {
			t.Errorf("%v: %s", err, body)
		}
	})
	for name, command := range map[string][]string{
		"pika":    {"/usr/bin/python3", "../clients/pika/tls.py"},
		"amqplib": {"node", "../clients/node/check-tls.js"},
	} {
		t.Run(name, func(t *testing.T) { runClient(t, append(command, host, port, app.CA, app.Cert, app.Key), nil) })
	}
	for name, files := range map[string]pki.Paths{"a user that does not exist": unknown, "a certificate without the name": nameless} {
		t.Run(name, func(t *testing.T) {
			_, err := r.dial(clientTLS(t, r.server, &files), &amqp.ExternalAuth{})
			if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Code != amqp.AccessRefused { // its words are the client's own
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("not offered without a certificate", func(t *testing.T) {
		if _, err := r.dial(clientTLS(t, r.server, nil), &amqp.ExternalAuth{}); !errors.Is(err, amqp.ErrSASL) {
			t.Errorf("over TLS: %v", err)
		}
		if _, err := connectWith(r.node.URL(), amqp.Config{SASL: []amqp.Authentication{&amqp.ExternalAuth{}}}); !errors.Is(err, amqp.ErrSASL) {
			t.Errorf("without TLS: %v", err)
		}
	})
	t.Run("passwords go on beside it", func(t *testing.T) {
		conn, err := r.dial(clientTLS(t, r.server, &app))
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	})
}
