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

	"google.golang.org/grpc/credentials"
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
	if got, err := a.Call(withTimeout(t, 5*time.Second), "b/1", 1, nil); err != nil || string(got) != "second" {
		t.Fatalf("Call = %q, %v", got, err)
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

func TestMutualTLS(t *testing.T) {
	cert, pool := certificate(t)
	d := &directory{}
	secure := func(c *Config) {
		c.ServerCreds = credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
		c.ClientCreds = credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool})
	}
	a, b := startMesh(t, d, "a/1", secure), startMesh(t, d, "b/1", secure)
	plain := startMesh(t, d, "p/1", nil)
	b.HandleCall(1, func(context.Context, NodeID, []byte) ([]byte, error) { return []byte("secret"), nil })
	ctx := withTimeout(t, 10*time.Second)
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
