package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/warrenmq/warren/deploy/k8s/test/rig"
)

// authority signs certificates for one run.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
	made int64
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{key: key, cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

// issue returns the data of a Secret with a new certificate for names. The authorities that are trusted are in ca.
func (a *authority) issue(ca []byte, names ...string) (map[string][]byte, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	a.made++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano() + a.made), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"ca.crt":  ca,
	}, template.SerialNumber, nil
}

// Secrets that the manifests name, and the names in their certificates.
const (
	secretNodes   = "warren-cluster-tls"
	secretClients = "warren-tls"
	secretUser    = "warren-default-user"
	secretGossip  = "warren-gossip"
	nameNodes     = "warren-node"
	nameClients   = "warren"
	portCluster   = "5681"
	portAMQPS     = "5671"
)

// security has the authorities, and which certificates should be in use.
type security struct {
	nodes   *authority
	clients *authority          // nil if clients come without TLS
	serial  map[string]*big.Int // by Secret
}

// certificates makes the Secrets anew, with certificates of the present authorities, and returns which.
func (t *test) certificates(ctx context.Context) (names []string, err error) {
	parts := map[string]struct {
		from *authority
		dns  string
	}{secretNodes: {t.tls.nodes, nameNodes}}
	if t.tls.clients != nil {
		parts[secretClients] = struct {
			from *authority
			dns  string
		}{t.tls.clients, nameClients}
	}
	for name, part := range parts {
		data, serial, err := part.from.issue(part.from.pem, part.dns)
		if err != nil {
			return nil, err
		}
		t.tls.serial[name] = serial
		if err := t.secret(ctx, name, corev1.SecretTypeTLS, data); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// secret makes or replaces a Secret.
func (t *test) secret(ctx context.Context, name string, kind corev1.SecretType, data map[string][]byte) error {
	secrets := t.rig.Client.CoreV1().Secrets(rig.Namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind, Data: data}
	if _, err := secrets.Get(ctx, name, metav1.GetOptions{}); err == nil {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	}
	_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
	return err
}

// certificate renews the certificates, then moves the nodes to another authority in three steps, all without a restart.
func (t *test) certificate(ctx context.Context) error {
	before, err := t.rig.UIDs(ctx)
	if err != nil {
		return err
	}
	names, err := t.certificates(ctx)
	if err != nil {
		return err
	}
	if err := t.inUse(ctx, names...); err != nil {
		return err
	}
	t.log.Info("certificates", "step", "renewed")
	old := t.tls.nodes
	if t.tls.nodes, err = newAuthority("the nodes' next authority"); err != nil {
		return err
	}
	both := slices.Concat(old.pem, t.tls.nodes.pem)
	for _, step := range []struct {
		name   string
		from   *authority
		trusts []byte
	}{{"both authorities are trusted", old, both}, {"certificates of the new authority", t.tls.nodes, both}, {"the old authority is gone", t.tls.nodes, t.tls.nodes.pem}} {
		data, serial, err := step.from.issue(step.trusts, nameNodes)
		if err != nil {
			return err
		}
		t.tls.serial[secretNodes] = serial
		if err := t.secret(ctx, secretNodes, corev1.SecretTypeTLS, data); err != nil {
			return err
		}
		// A node that shows the certificate of this step has read its authorities too: they are one Secret.
		if err := t.inUse(ctx, secretNodes); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		t.log.Info("certificates", "step", step.name)
	}
	if err := sleep(ctx, 15*time.Second); err != nil { // links are made anew, one after the other
		return err
	}
	return t.same(ctx, before)
}

// same fails if a pod of before is another one now.
func (t *test) same(ctx context.Context, before map[string]types.UID) error {
	after, err := t.rig.UIDs(ctx)
	for name, uid := range before {
		if err == nil && after[name] != uid {
			err = fmt.Errorf("%s is another pod than before", name)
		}
	}
	return err
}

// inUse waits until all pods show the newest certificates of the Secrets. The kubelet takes up to a minute and a half to bring them.
func (t *test) inUse(ctx context.Context, secrets ...string) error {
	return t.rig.Until(ctx, readyWait, func(ctx context.Context) error {
		pods, err := t.rig.Client.CoreV1().Pods(rig.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			for _, name := range secrets {
				port := portCluster
				if name == secretClients {
					port = portAMQPS
				}
				serial, err := shown(ctx, net.JoinHostPort(p.Status.PodIP, port))
				if err != nil {
					return err
				}
				if serial.Cmp(t.tls.serial[name]) != 0 {
					return fmt.Errorf("%s shows another certificate on port %s than that of %s", p.Name, port, name)
				}
			}
		}
		return nil
	})
}

// shown returns the serial number of the certificate that a server shows. The server may refuse the client after that.
func shown(ctx context.Context, addr string) (*big.Int, error) {
	var serial *big.Int
	dialer := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"},
		VerifyConnection: func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber
			return nil
		},
	}}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err == nil {
		conn.Close()
	}
	if serial != nil {
		return serial, nil
	}
	return nil, err
}
