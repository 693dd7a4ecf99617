package process

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/pki"
)

// TestMadeCertificates: three nodes speak TLS with each other and with clients by what `warren certificates` has made, and a
// user logs in with the certificate that it made for him. Made anew, it goes on.
func TestMadeCertificates(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	makeThem := func() {
		if code, text := runBinary(t, "certificates", "--out", dir, "--user", "orders", "--name", "warren.test"); code != 0 {
			t.Fatalf("exit code %d: %s", code, text)
		}
	}
	makeThem()
	ports, err := cluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	amqps := fmt.Sprintf("127.0.0.1:%d", ports[0])
	c := newCluster(t, 3, func(cfg *cluster.Config) {
		cfg.Args = append([]string{"--cluster-tls", "on"}, certificateArgs(filepath.Join(dir, "nodes"))...)
		cfg.Places = func(node string) (cluster.Place, error) {
			return cluster.Place{Args: func(cluster.Addrs) ([]string, error) {
				if node != "node1" {
					return nil, nil
				}
				f := pki.In(filepath.Join(dir, "clients"))
				return []string{
					"--amqps-addr", amqps, "--tls-client-auth", "verify", "--tls-login-from", "common_name",
					"--tls-cert-file", f.Cert, "--tls-key-file", f.Key, "--tls-ca-file", f.CA,
				}, nil
			}}, nil
		}
	})
	startAll(t, c)
	for _, verb := range [][]string{{"add_user", "orders", "x"}, {"set_permissions", "orders", ".*", ".*", ".*"}} {
		mustCtl(t, c.Node(0), verb...)
	}
	login := func() (*amqp.Connection, error) {
		u := pki.In(filepath.Join(dir, "users", "orders"))
		pair, err := tls.LoadX509KeyPair(u.Cert, u.Key)
		if err != nil {
			t.Fatal(err)
		}
		ca, err := os.ReadFile(u.CA)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		return connectWith("amqps://"+amqps+"/", amqp.Config{
			SASL:            []amqp.Authentication{&amqp.ExternalAuth{}},
			TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "warren.test", Certificates: []tls.Certificate{pair}},
			Heartbeat:       10 * time.Second,
		})
	}
	for range 2 { // the second time with a new certificate, which the server's old one and its new one take
		conn, err := login()
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, conn) // by all three nodes
		_ = conn.Close()
		makeThem()
	}
	if code, text := runBinary(t, "certificates", "--out", dir, "--days", "0"); code != 2 {
		t.Errorf("no days: exit code %d: %s", code, text)
	}
	if code, text := runBinary(t, "certificates", "--out", "/proc/nowhere"); code != 1 {
		t.Errorf("no folder: exit code %d: %s", code, text)
	}
}
