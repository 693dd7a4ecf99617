package issue

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// backdated is how long before now certificates begin to be valid: clocks differ.
const backdated = time.Hour

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte // of cert
}

// openAuthority reads the authority that dir keeps under a name, or makes one that is good for life and keeps it there. One
// that cannot be read or is no longer valid is an error: it may be in use.
func openAuthority(dir, name string, life time.Duration, now time.Time) (*authority, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	cert, err := os.ReadFile(certFile)
	if errors.Is(err, os.ErrNotExist) {
		return newAuthority(dir, name, life, now)
	}
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("the authority's key: %w", err)
	}
	a, err := parseAuthority(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	if now.After(a.cert.NotAfter) {
		return nil, fmt.Errorf("%s: the authority has expired: make another one in a new folder, and let everybody trust both for a while", certFile)
	}
	return a, nil
}

func parseAuthority(certPEM, keyPEM []byte) (*authority, error) {
	c, k := decode(certPEM, "CERTIFICATE"), decode(keyPEM, "PRIVATE KEY")
	if c == nil || k == nil {
		return nil, errors.New("no authority's certificate and key in PEM")
	}
	cert, err := x509.ParseCertificate(c)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(k)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	switch {
	case !ok:
		return nil, fmt.Errorf("the key is a %T, expected an ECDSA key", parsed)
	case !key.PublicKey.Equal(cert.PublicKey):
		return nil, errors.New("the key is not that of the certificate")
	case !cert.IsCA:
		return nil, errors.New("it is not an authority's certificate")
	}
	return &authority{cert, key, encode("CERTIFICATE", c)}, nil
}

func newAuthority(dir, name string, life time.Duration, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		// The serial number tells authorities of the same name from each other.
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Warren"}, CommonName: fmt.Sprintf("Warren %s %x", name, serial.Bytes()[:4])},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(life), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	// The key first: an authority is there when its certificate is.
	if err := write(filepath.Join(dir, name+".key"), encode("PRIVATE KEY", raw)); err != nil {
		return nil, err
	}
	if err := write(filepath.Join(dir, name+".crt"), encode("CERTIFICATE", der)); err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key, encode("CERTIFICATE", der)}, err
}

// leaf says what a certificate is for.
type leaf struct {
	commonName string
	names      []string // DNS names and IP addresses
	usage      []x509.ExtKeyUsage
	life       time.Duration // not longer than the authority's
}

// issue makes a certificate and its key, and puts them with the authority's certificate into dir.
func (a *authority) issue(dir string, l leaf, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := newSerial()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: l.commonName}, NotBefore: now.Add(-backdated), NotAfter: now.Add(l.life),
		ExtKeyUsage: l.usage, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	for _, n := range l.names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		write(filepath.Join(dir, "tls.key"), encode("PRIVATE KEY", raw)),
		write(filepath.Join(dir, "tls.crt"), encode("CERTIFICATE", der)),
		write(filepath.Join(dir, "ca.crt"), a.pem),
	)
}

// newSerial is a serial number that nobody guesses: 127 bits, positive, and at most 20 bytes (RFC 5280, 4.1.2.2).
func newSerial() (*big.Int, error) {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return nil, err
	}
	raw[0] = raw[0]&0x3f | 0x40 // positive, and never short
	return new(big.Int).SetBytes(raw), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func decode(text []byte, kind string) []byte {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != kind {
		return nil
	}
	return b.Bytes
}

// write puts a file in place at once, for its owner only.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// checkName tells why a name cannot be in a certificate, "" if it can. One star may stand in front.
func checkName(name string) string {
	if net.ParseIP(name) != nil {
		return ""
	}
	rest := strings.TrimPrefix(name, "*.")
	if rest == "" || len(name) > 253 {
		return "must have 1 to 253 bytes"
	}
	for label := range strings.SplitSeq(rest, ".") {
		if label == "" || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return "must be a DNS name or an IP address"
		}
		for _, r := range label {
			if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
				return "must be a DNS name or an IP address"
			}
		}
	}
	return ""
}
