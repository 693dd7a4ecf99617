package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

func TestRestartedNodeAtANewAddressIsFound(t *testing.T) {
	d := &directory{}
	a := startMesh(t, d, "a/1", nil)
	first := startMesh(t, d, "b/1", nil)
	a.SetPeers([]NodeID{"b/1"})
	untilUp(t, a, "b/1")
	run := a.Peer("b/1").Process
	first.Close()
	until(t, "the old process is gone", func() bool { return !a.Peer("b/1").Up })
	second := startMesh(t, d, "b/1", nil)
	second.HandleCall(1, func(context.Context, NodeID, []byte) ([]byte, error) { return []byte("second"), nil })
	untilUp(t, a, "b/1")
	if got := a.Peer("b/1").Process; got == run || got != second.process {
		t.Fatalf("process %d, was %d, is %d", got, run, second.process)
	}
	if got, err := a.Call(withTimeout(t, 30*time.Second), "b/1", 1, nil); err != nil || string(got) != "second" {
		t.Fatalf("Call = %q, %v", got, err)
	}
}

// TestMovedNodeIsDialledAtOnce: a dial that hangs at the address that a node had is given up when its new one is known; so is
// the pause after one that failed.
func TestMovedNodeIsDialledAtOnce(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		d := &directory{}
		var dials atomic.Int32
		a := startMesh(t, d, "a/1", func(c *Config) {
			c.DialTimeout, c.RedialMin, c.RedialMax = time.Hour, time.Hour, time.Hour
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				if addr != "gone:1" {
					return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
				}
				dials.Add(1)
				if hangs {
					<-ctx.Done()
				}
				return nil, errors.New("nobody is there")
			}
		})
		d.set("a/1", "b/1", "gone:1")
		a.SetPeers([]NodeID{"b/1"})
		until(t, "it is dialled where it was", func() bool { return dials.Load() > 0 && (hangs || a.Peer("b/1").Err != nil) })
		a.SetPeers([]NodeID{"b/1"}) // nothing is new
		b := startMesh(t, d, "b/1", nil)
		d.set("a/1", "b/1", b.cfg.Listener.Addr().String())
		a.SetPeers([]NodeID{"b/1"})
		untilUp(t, a, "b/1")
		if n := dials.Load(); n != 1 {
			t.Errorf("hangs %t: %d dials of the former address", hangs, n)
		}
	}
}

func TestVirginNodesLinkOnceFounded(t *testing.T) {
	d := &directory{}
	var cluster atomic.Value
	cluster.Store("")
	change := func(c *Config) { c.ClusterID = func() string { return cluster.Load().(string) } }
	a, b := startMesh(t, d, "a/1", change), startMesh(t, d, "b/1", change)
	a.SetPeers([]NodeID{"b/1"})
	b.SetPeers([]NodeID{"a/1"})
	until(t, "a attempt fails", func() bool { return errors.Is(a.Peer("b/1").Err, ErrVirgin) })
	cluster.Store("founded")
	untilUp(t, a, "b/1")
	untilUp(t, b, "a/1")
}

// TestDialKicksBack shows that a node that returns is dialled when it calls, not
// when the next attempt is due.
func TestDialKicksBack(t *testing.T) {
	d := &directory{}
	a := startMesh(t, d, "a/1", func(c *Config) { c.RedialMin, c.RedialMax = time.Hour, time.Hour })
	a.SetPeers([]NodeID{"b/1"})
	until(t, "the first attempt fails", func() bool { return a.Peer("b/1").Err != nil })
	b := startMesh(t, d, "b/1", nil)
	b.SetPeers([]NodeID{"a/1"})
	untilUp(t, a, "b/1")
}

// certificate returns a key pair for loopback that is its own authority.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func mutual(cert tls.Certificate, pool *x509.CertPool) *Secure {
	return &Secure{
		Server: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
		Client: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool},
	}
}

func TestMutualTLS(t *testing.T) {
	cert, pool := certificate(t)
	d := &directory{}
	secure := func(c *Config) { c.Secure = mutual(cert, pool) }
	a, b := startMesh(t, d, "a/1", secure), startMesh(t, d, "b/1", secure)
	plain := startMesh(t, d, "p/1", nil)
	b.HandleCall(1, func(context.Context, NodeID, []byte) ([]byte, error) { return []byte("secret"), nil })
	ctx := withTimeout(t, 30*time.Second)
	if got, err := a.Call(ctx, "b/1", 1, nil); err != nil || string(got) != "secret" {
		t.Fatalf("Call = %q, %v", got, err)
	}
	if got, err := a.CallAddr(ctx, b.cfg.Listener.Addr().String(), 1, nil); err != nil || string(got) != "secret" {
		t.Fatalf("CallAddr = %q, %v", got, err)
	}
	if _, err := plain.Call(ctx, "b/1", 1, nil); !errors.Is(err, ErrPeerDown) {
		t.Fatalf("plain caller: %v", err)
	}
	if _, err := a.Call(ctx, "p/1", 1, nil); !errors.Is(err, ErrPeerDown) {
		t.Fatalf("plain server: %v", err)
	}
}

// A running cluster turns TLS on in two steps: at no moment two neighbours in it fail to reach each other, in either direction.
func TestTurningTLSOn(t *testing.T) {
	cert, pool := certificate(t)
	modes := map[string]func(*Config){
		"off":    nil,
		"accept": func(c *Config) { c.Secure = mutual(cert, pool); c.Secure.Plain = true },
		"on":     func(c *Config) { c.Secure = mutual(cert, pool) },
	}
	for _, tc := range []struct {
		a, b string
		ok   bool
	}{{"off", "accept", true}, {"accept", "accept", true}, {"accept", "on", true}, {"on", "on", true}, {"off", "on", false}} {
		t.Run(tc.a+" and "+tc.b, func(t *testing.T) {
			d := &directory{}
			a, b := startMesh(t, d, "a/1", modes[tc.a]), startMesh(t, d, "b/1", modes[tc.b])
			for _, way := range []struct{ from, to *Mesh }{{a, b}, {b, a}} {
				way.to.HandleCall(1, func(context.Context, NodeID, []byte) ([]byte, error) { return []byte("here"), nil })
				_, err := way.from.CallAddr(withTimeout(t, 30*time.Second), way.to.cfg.Listener.Addr().String(), 1, nil)
				if (err == nil) != tc.ok {
					t.Errorf("%s by address: %v", way.from.cfg.Local, err)
				}
				if _, err := way.from.Call(withTimeout(t, 30*time.Second), way.to.cfg.Local, 1, nil); (err == nil) != tc.ok {
					t.Errorf("%s by name: %v", way.from.cfg.Local, err)
				}
			}
		})
	}
}

// Links that are made anew show the certificates of now, and come back.
func TestRenewLinks(t *testing.T) {
	cert, pool := certificate(t)
	a, b := pair(t, func(c *Config) { c.Secure = mutual(cert, pool) })
	before, other := a.Stats().LinksMade, b.Stats().LinksMade
	a.RenewLinks(false)
	a.RenewLinks(false) // takes the place of the first
	until(t, "the link is new", func() bool { return a.Stats().LinksMade == before+1 && a.Peer("b/1").Up })
	if b.Stats().LinksMade != other {
		t.Error("the other node's link was made anew")
	}
	a.RenewLinks(false)
	a.Close() // while it waits
	a.RenewLinks(false)
}

// A link that could not be made with the certificates of now stays, unless authorities were replaced.
func TestRenewLinksThatCannotBe(t *testing.T) {
	cert, pool := certificate(t)
	var expired atomic.Bool
	a, _ := pair(t, func(c *Config) {
		c.Secure = mutual(cert, pool)
		c.Secure.Client.VerifyConnection = func(tls.ConnectionState) error {
			if expired.Load() {
				return errors.New("expired")
			}
			return nil
		}
	})
	before := a.Stats().LinksMade
	expired.Store(true)
	a.RenewLinks(false)
	time.Sleep(3 * renewPause)
	if !a.Peer("b/1").Up || a.Stats().LinksMade != before {
		t.Error("the link did not stay")
	}
	a.RenewLinks(true)
	until(t, "the link has ended", func() bool { return !a.Peer("b/1").Up })
	expired.Store(false)
	until(t, "the link is new", func() bool { return a.Peer("b/1").Up })
}
