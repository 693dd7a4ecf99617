// Package pki makes certificate authorities and certificates for tests.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

var serial atomic.Int64

// Authority is a certificate authority.
type Authority struct {
	// PEM is its certificate.
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one that is valid for a day around now.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{PEM: pemOf("CERTIFICATE", der), cert: cert, key: key}, nil
}

// Leaf says what a certificate is to hold.
type Leaf struct {
	Subject pkix.Name
	DNS     []string
	IPs     []net.IP
	Emails  []string
	URIs    []*url.URL
	// From and To are its dates; a day around now if zero.
	From, To time.Time
	// Usage is both ends' if nil.
	Usage []x509.ExtKeyUsage
}

// Pair is a certificate and its key, as PEM.
type Pair struct{ Cert, Key []byte }

// Issue makes a certificate and its key.
func (a *Authority) Issue(l Leaf) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: l.Subject, DNSNames: l.DNS, IPAddresses: l.IPs, EmailAddresses: l.Emails, URIs: l.URIs,
		NotBefore: l.From, NotAfter: l.To, ExtKeyUsage: l.Usage, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-24 * time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	if template.ExtKeyUsage == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pemOf("CERTIFICATE", der), Key: pemOf("PRIVATE KEY", raw)}, nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Paths are where Write puts files.
type Paths struct{ Cert, Key, CA string }

// In returns the paths in a folder: tls.crt, tls.key and ca.crt, as Kubernetes names them.
func In(dir string) Paths {
	return Paths{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}
}

// Write puts a pair and authorities into a folder, each file at once.
func Write(dir string, p Pair, authorities ...*Authority) (Paths, error) {
	var bundle []byte
	for _, a := range authorities {
		bundle = append(bundle, a.PEM...)
	}
	at := In(dir)
	for _, f := range []struct {
		path    string
		content []byte
	}{{at.Cert, p.Cert}, {at.Key, p.Key}, {at.CA, bundle}} {
		tmp := f.path + ".tmp"
		if err := os.WriteFile(tmp, f.content, 0o600); err != nil {
			return at, fmt.Errorf("write certificates: %w", err)
		}
		if err := os.Rename(tmp, f.path); err != nil {
			return at, fmt.Errorf("write certificates: %w", err)
		}
	}
	return at, nil
}
