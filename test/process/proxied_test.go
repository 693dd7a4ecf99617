package process

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// dialFrom opens an AMQP connection from one of this machine's addresses, after the bytes of a header.
func dialFrom(source, addr, user, header string) (*amqp.Connection, error) {
	return amqp.DialConfig("amqp://"+user+"@"+addr+"/", amqp.Config{Heartbeat: 10 * time.Second, Dial: func(string, string) (net.Conn, error) {
		d := net.Dialer{Timeout: timeoutReply, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		nc, err := d.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		_ = nc.SetDeadline(time.Now().Add(timeoutReply))
		if _, err := nc.Write([]byte(header)); err != nil {
			return nil, err
		}
		return nc, nil
	}})
}

// peers are the client addresses of a node's connections.
func peers(t *testing.T, n *cluster.Node) (all []string) {
	t.Helper()
	for _, c := range look(t, n, "/api/connections").([]any) {
		all = append(all, fmt.Sprint(field(c, "peer_host")))
	}
	return all
}

// TestProxyProtocol: connections from a proxy are those of the clients that it names; what it may not name, and connections without its header, are refused. Others
// are served as ever.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	needWarren(t)
	const proxy = "127.0.0.1"
	c := newCluster(t, 1, func(cfg *cluster.Config) {
		cfg.Args = append(cfg.Args, "--proxy-protocol", proxy+",127.0.4.0/24")
	})
	startAll(t, c)
	n := c.Node(0)
	mustCtl(t, n, "add_user", "ann", "secret")
	mustCtl(t, n, "set_permissions", "ann", ".*", ".*", ".*")
	for name, tc := range map[string]struct{ source, user, header, peer, refused string }{
		"version 1":             {proxy, "ann:secret", "PROXY TCP4 203.0.113.7 10.0.0.1 4711 5672\r\n", "203.0.113.7", ""},
		"version 1, IPv6":       {proxy, "ann:secret", "PROXY TCP6 2001:db8::7 2001:db8::1 4711 5672\r\n", "2001:db8::7", ""},
		"version 2":             {"127.0.4.7", "ann:secret", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xcb\x00\x71\x08\x0a\x00\x00\x01\x12\x67\x16\x28", "203.0.113.8", ""},
		"of the proxy's own":    {proxy, "ann:secret", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", proxy, ""},
		"from this machine":     {proxy, "guest:guest", "PROXY TCP4 127.0.0.9 127.0.0.1 4711 5672\r\n", "127.0.0.9", ""},
		"directly":              {"127.0.0.8", "guest:guest", "", "127.0.0.8", ""},
		"guest, from elsewhere": {proxy, "guest:guest", "PROXY TCP4 203.0.113.7 10.0.0.1 4711 5672\r\n", "", "403"},
		"without a header":      {proxy, "ann:secret", "", "", "EOF"},
		"for nobody it knows":   {proxy, "ann:secret", "PROXY UNKNOWN\r\n", proxy, ""},
		"nonsense":              {proxy, "ann:secret", "PROXY TCP4 somewhere\r\n", "", "EOF"},
		"a socket of Unix":      {proxy, "ann:secret", "\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8" + strings.Repeat("\x00", 216), "", "EOF"},
		"not from a proxy":      {"127.0.0.8", "ann:secret", "PROXY TCP4 203.0.113.7 10.0.0.1 4711 5672\r\n", "", "501"}, // it reads "AMQP"
	} {
		conn, err := dialFrom(tc.source, n.AMQPAddr(), tc.user, tc.header)
		if tc.refused != "" {
			if err == nil {
				t.Errorf("%s: was served", name)
				conn.Close()
			} else if !strings.Contains(err.Error(), tc.refused) && !strings.Contains(err.Error(), "reset") {
				t.Errorf("%s: %v, want %s", name, err, tc.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := peers(t, n); len(got) != 1 || got[0] != tc.peer {
			t.Errorf("%s: connections are from %v, want %s", name, got, tc.peer)
		}
		conn.Close()
		await(t, timeoutReply, "the connection is gone", func() bool { return len(peers(t, n)) == 0 })
	}

	// Who does not send a header is in nobody's way, and not there for long.
	silent, err := net.Dial("tcp4", n.AMQPAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	conn, err := dialFrom("127.0.0.8", n.AMQPAddr(), "ann:secret", "")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	_ = silent.SetReadDeadline(time.Now().Add(timeoutReply))
	if b, err := silent.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes for a proxy that says nothing", b)
	}
}

// TestBehindHAProxy: a node behind HAProxy with either version of the protocol, and its checks whether the node is there.
func TestBehindHAProxy(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Args = append(cfg.Args, "--proxy-protocol", "on") })
	startAll(t, c)
	n := c.Node(0)
	ports, err := cluster.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	settings := "defaults\n mode tcp\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n"
	for i, how := range []string{"send-proxy", "send-proxy-v2"} {
		settings += fmt.Sprintf("listen version%d\n bind 127.0.0.1:%d\n server node %s %s check check-send-proxy inter 100ms\n", i+1, ports[i], n.AMQPAddr(), how)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	runHAProxy(t, file)
	for i, port := range ports {
		source := fmt.Sprint("127.0.5.", i+1)
		var conn *amqp.Connection
		await(t, timeoutStart, "HAProxy serves", func() (ok bool) {
			conn, err = dialFrom(source, fmt.Sprint("127.0.0.1:", port), "guest:guest", "")
			return err == nil
		})
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ch.QueueDeclare("through", true, false, false, false, nil); err != nil {
			t.Errorf("version %d: %v", i+1, err)
		}
		if got := peers(t, n); len(got) != i+1 || !strings.Contains(strings.Join(got, " "), source) {
			t.Errorf("version %d: connections are from %v", i+1, got)
		}
	}
	time.Sleep(time.Second) // ten checks of each
	log, err := os.ReadFile(n.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "peer=") {
			t.Errorf("a check, or a client, made the node say: %s", line)
		}
	}
}

// TestProxyProtocolBeforeTLS: the header comes before the handshake of TLS.
func TestProxyProtocolBeforeTLS(t *testing.T) {
	t.Parallel()
	r := newSecureRig(t, "--proxy-protocol", "on")
	mustCtl(t, r.node, "add_user", "ann", "secret")
	mustCtl(t, r.node, "set_permissions", "ann", ".*", ".*", ".*")
	secure := clientTLS(t, r.server, nil)
	secure.ServerName = "127.0.0.1"
	for header, want := range map[string]string{"PROXY TCP4 203.0.113.9 10.0.0.1 4711 5671\r\n": "203.0.113.9", "": ""} {
		nc, err := net.Dial("tcp4", r.amqps)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(timeoutReply))
		if _, err := nc.Write([]byte(header)); err != nil {
			t.Fatal(err)
		}
		conn, err := amqp.Open(tls.Client(nc, secure), amqp.Config{Vhost: "/", SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "ann", Password: "secret"}}})
		if (err == nil) != (want != "") {
			t.Errorf("header %q: %v", header, err)
		}
		if err != nil {
			continue
		}
		if got := peers(t, r.node); len(got) != 1 || got[0] != want {
			t.Errorf("connections are from %v, want %s", got, want)
		}
		conn.Close()
	}
}

// runHAProxy runs HAProxy until the test ends.
func runHAProxy(t *testing.T, file string) {
	t.Helper()
	cmd := exec.Command("/usr/sbin/haproxy", "-db", "-f", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			t.Log("haproxy: ", lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
}
