package amqp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	wire "github.com/warrenmq/warren/amqp"
)

// certificate makes a certificate that signs itself.
func certificate(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: []string{"test"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}, pool
}

// EXTERNAL is offered to clients with a verified certificate, and to nobody else.
func TestExternal(t *testing.T) {
	t.Parallel()
	const all = "PLAIN AMQPLAIN EXTERNAL"
	const refused = "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile."
	r := startServer(t, func(cfg *Config) { cfg.Mechanisms = []string{"PLAIN", "AMQPLAIN", "EXTERNAL"} })
	server, servers := certificate(t, "server")
	client, clients := certificate(t, "client")
	nobody, _ := certificate(t, "nobody")
	clients.AddCert(nobody.Leaf)
	other, _ := certificate(t, "other")
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { // Shutdown of the rig ends it
		_ = r.s.Serve(tls.NewListener(inner, &tls.Config{
			Certificates: []tls.Certificate{server}, ClientCAs: clients, ClientAuth: tls.VerifyClientCertIfGiven,
		}))
	}()
	dial := func(t *testing.T, certificates ...tls.Certificate) *rawClient {
		nc, err := tls.Dial("tcp", inner.Addr().String(), &tls.Config{RootCAs: servers, Certificates: certificates})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		if err := nc.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		return &rawClient{tb: t, nc: nc, fr: wire.NewFrameReader(nc)}
	}
	for _, tc := range []struct {
		name, response string
		ok             bool
	}{
		{"says nothing", "", true},
		{"repeats its name", "CN=client,O=test", true},
		{"names somebody else, which counts for nothing", "guest", true},
		{"says what amqp091-go does", "\x00*\x00*", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := dial(t, client)
			if m := c.greet(); m.Mechanisms != all {
				t.Errorf("offered %q, want %q", m.Mechanisms, all)
			}
			c.send(0, &wire.ConnectionStartOk{ClientProperties: allCapabilities(), Mechanism: "EXTERNAL", Response: tc.response})
			if tc.ok {
				want[*wire.ConnectionTune](c, 0)
			} else if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != 403 || m.ReplyText != refused {
				t.Errorf("%+v", m)
			}
		})
	}
	t.Run("with a certificate of nobody", func(t *testing.T) {
		c := dial(t, nobody)
		if m := c.greet(); m.Mechanisms != all {
			t.Errorf("offered %q, want %q", m.Mechanisms, all)
		}
		c.send(0, &wire.ConnectionStartOk{ClientProperties: allCapabilities(), Mechanism: "EXTERNAL"})
		if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != 403 || m.ReplyText != refused {
			t.Errorf("%+v", m)
		}
	})
	t.Run("without a certificate", func(t *testing.T) {
		c := dial(t)
		if m := c.greet(); m.Mechanisms != "PLAIN AMQPLAIN" {
			t.Errorf("offered %q", m.Mechanisms)
		}
		c.send(0, &wire.ConnectionStartOk{Mechanism: "EXTERNAL", Response: "CN=client,O=test"})
		if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != 503 {
			t.Errorf("%+v", m)
		}
	})
	t.Run("with a certificate of a stranger", func(t *testing.T) {
		// A client shows no certificate that the server would not trust.
		if m := dial(t, other).greet(); m.Mechanisms != "PLAIN AMQPLAIN" {
			t.Errorf("offered %q", m.Mechanisms)
		}
	})
}

func TestUpdateSecret(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := r.open(t)
	c.send(0, &wire.ConnectionUpdateSecret{NewSecret: "guest", Reason: "rotated"})
	want[*wire.ConnectionUpdateSecretOk](c, 0)
	c.alive(1)
	for _, secret := range []string{"wrong", "", "guest\x00x"} {
		c := r.open(t)
		c.send(0, &wire.ConnectionUpdateSecret{NewSecret: secret})
		m := want[*wire.ConnectionClose](c, 0)
		checkClose(t, rule{code: 530, text: "NOT_ALLOWED - New secret was refused by one of the backends", class: 10, method: 70},
			m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
	}
}

// A new secret comes with what the user may do now.
func TestUpdateSecretChecksAgain(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := r.open(t)
	c.send(1, &wire.ChannelOpen{})
	want[*wire.ChannelOpenOk](c, 1)
	for _, q := range []string{"mine", "lost"} {
		c.send(1, &wire.QueueDeclare{Queue: q, NoWait: true}, &wire.BasicConsume{Queue: q, ConsumerTag: q})
		want[*wire.BasicConsumeOk](c, 1)
	}
	r.b.mu.Lock()
	r.b.unreadable = "lost"
	r.b.mu.Unlock()
	c.send(0, &wire.ConnectionUpdateSecret{NewSecret: "guest"})
	if m := want[*wire.BasicCancel](c, 1); m.ConsumerTag != "lost" {
		t.Errorf("consumer %q was cancelled", m.ConsumerTag)
	}
	want[*wire.ConnectionUpdateSecretOk](c, 0)
	c.publish(1, wire.BasicPublish{RoutingKey: "mine"}, "x")
	want[*wire.BasicDeliver](c, 1)

	c = r.open(t)
	r.b.mu.Lock()
	r.b.locked = true
	r.b.mu.Unlock()
	c.send(0, &wire.ConnectionUpdateSecret{NewSecret: "guest"})
	m := want[*wire.ConnectionClose](c, 0)
	checkClose(t, rule{code: 530, text: "NOT_ALLOWED - access to vhost '/' refused for user 'guest'", class: 10, method: 70},
		m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
}
