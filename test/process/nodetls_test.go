package process

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/pki"
	"github.com/warrenmq/warren/test/travel"
)

// nodeName is what certificates of nodes carry by default.
const nodeName = "warren-node"

// nodesRig is three nodes that have certificates for each other.
type nodesRig struct {
	*testing.T
	*cluster.Cluster
	ca   *pki.Authority
	base string
}

func newNodesRig(t *testing.T, mode string) *nodesRig {
	t.Helper()
	r := &nodesRig{T: t, ca: newAuthority(t, "nodes"), base: t.TempDir()}
	r.Cluster = newCluster(t, 3, func(cfg *cluster.Config) {
		cfg.Places = func(node string) (cluster.Place, error) {
			return cluster.Place{Args: func(cluster.Addrs) ([]string, error) {
				return append([]string{"--cluster-tls", mode}, certificateArgs(r.dir(node))...), nil
			}}, nil
		}
	})
	for _, n := range r.Nodes() {
		r.give(n, r.ca, r.ca)
	}
	return r
}

func (r *nodesRig) dir(node string) string { return filepath.Join(r.base, node) }

func certificateArgs(dir string) []string {
	f := pki.In(dir)
	return []string{"--cluster-tls-cert-file", f.Cert, "--cluster-tls-key-file", f.Key, "--cluster-tls-ca-file", f.CA}
}

// give writes a new certificate for a node, of one authority, and the authorities that it trusts.
func (r *nodesRig) give(n *cluster.Node, from *pki.Authority, trusts ...*pki.Authority) {
	r.Helper()
	r.write(r.dir(n.Name), issue(r.T, from, pki.Leaf{DNS: []string{nodeName}}), trusts...)
}

func (r *nodesRig) write(dir string, p pki.Pair, trusts ...*pki.Authority) {
	r.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.Fatal(err)
	}
	if _, err := pki.Write(dir, p, trusts...); err != nil {
		r.Fatal(err)
	}
}

// said counts how often a text is in a node's log.
func said(t *testing.T, n *cluster.Node, text string) int {
	t.Helper()
	return bytes.Count(logOf(t, n), []byte(text))
}

func logOf(t *testing.T, n *cluster.Node) []byte {
	t.Helper()
	log, err := os.ReadFile(n.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// launch starts a node with more arguments, without waiting.
func launch(t *testing.T, n *cluster.Node, args ...string) {
	t.Helper()
	if err := n.Launch(args...); err != nil {
		t.Fatal(err)
	}
}

// whenReady waits for a node that was launched.
func whenReady(t *testing.T, n *cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestNodesByTLS takes one of three nodes away and starts it with certificates that are not good enough: the others refuse it,
// and go on with their work. When its files are replaced it is let in without a restart.
func TestNodesByTLS(t *testing.T) {
	t.Parallel()
	r := newNodesRig(t, "on")
	startAll(t, r.Cluster)
	first, last := r.Node(0), r.Node(2)
	conn, err := connect(first.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	roundTrip(t, conn)
	for _, n := range r.Nodes() {
		if said(t, n, "can be reached from other machines") > 0 {
			t.Error("a loopback address is warned of")
		}
	}
	other, dir := newAuthority(t, "other"), filepath.Join(r.base, "bad")
	expired := pki.Leaf{DNS: []string{nodeName}, From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(-time.Hour)}
	for _, tc := range []struct {
		name   string
		pair   pki.Pair
		trusts *pki.Authority
		args   []string
	}{
		{name: "of another authority", pair: issue(t, other, pki.Leaf{DNS: []string{nodeName}}), trusts: other},
		{name: "without the name", pair: issue(t, r.ca, pki.Leaf{DNS: []string{"app"}}), trusts: r.ca, args: []string{"--cluster-tls-name", "app"}},
		{name: "without TLS", pair: issue(t, r.ca, pki.Leaf{}), trusts: r.ca, args: []string{"--cluster-tls", "off"}},
		{name: "expired", pair: issue(t, r.ca, expired), trusts: r.ca},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kill(t, last)
			r.write(dir, tc.pair, tc.trusts)
			const refused = "refused a connection to the cluster address"
			before := said(t, first, refused)
			launch(t, last, append(certificateArgs(dir), tc.args...)...)
			eventually(t, func() error {
				if said(t, first, refused) == before {
					return errors.New("nobody was refused")
				}
				return nil
			})
			roundTrip(t, conn)
			if _, err := last.Fetch(t.Context(), "/readyz"); err == nil {
				t.Error("the node is ready")
			}
		})
	}
	t.Run("renewed", func(t *testing.T) {
		r.write(dir, issue(t, r.ca, pki.Leaf{DNS: []string{nodeName}}), r.ca)
		if err := last.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		whenReady(t, last)
	})
}

// TestTurnOnTLS restarts three nodes one by one, twice, while clients publish: first to take TLS, then to insist on it.
func TestTurnOnTLS(t *testing.T) {
	t.Parallel()
	r := newNodesRig(t, "off")
	startAll(t, r.Cluster)
	s := at(t, r.Node(0))
	plainQueue(s, "dead", nil)
	var names []string
	for i := range 6 {
		names = append(names, plainQueue(at(t, r.Node(i%3)), fmt.Sprint("tls", i), amqp.Table{
			"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
		}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*travel.Publisher
	travelled := time.Now()
	var work sync.WaitGroup
	for i := range 3 {
		p := &travel.Publisher{
			Name: fmt.Sprint("p", i), Queues: append(slices.Clone(names[i:]), names[:i]...), Every: 25 * time.Millisecond, URLs: r.URLs, First: i,
		}
		all = append(all, p)
		work.Go(func() { p.Run(ctx) })
	}
	for _, mode := range []string{"accept", "on"} {
		for _, n := range r.Nodes() {
			time.Sleep(500 * time.Millisecond)
			stopNode(t, n)
			launch(t, n, "--cluster-tls", mode)
			whenReady(t, n)
		}
	}
	time.Sleep(500 * time.Millisecond)
	cancel()
	work.Wait()
	for _, n := range r.Nodes() {
		if n := said(t, n, "refused a connection to the cluster address"); n > 0 {
			t.Errorf("%d connections were refused on the way", n)
		}
	}
	checkTravellers(t, r.Cluster, travelled, all, []string{"dead"}, names)
}

// TestCertificatesRotate replaces the certificates of three nodes, then their authority by way of both, while clients work.
// Connections of clients stay, links between nodes are made anew, queues are declared and deleted all the time, and in the end the old authority is worth nothing.
func TestCertificatesRotate(t *testing.T) {
	t.Parallel()
	r := newNodesRig(t, "on")
	startAll(t, r.Cluster)
	s := at(t, r.Node(0))
	q := plainQueue(s, "rotating", nil)
	l := startLoad(t, q, r.Node(1).URL(), []string{r.Node(2).URL()}, 200)
	declared := declaring(t, r.Nodes())
	next := newAuthority(t, "next")
	for i, step := range []struct {
		name   string
		from   *pki.Authority
		trusts []*pki.Authority
	}{
		{"new certificates", r.ca, []*pki.Authority{r.ca}},
		{"both authorities", r.ca, []*pki.Authority{r.ca, next}},
		{"certificates of the new one", next, []*pki.Authority{r.ca, next}},
		{"only the new one", next, []*pki.Authority{next}},
	} {
		before := map[*cluster.Node]int{}
		const renewed = "certificates were replaced"
		for _, n := range r.Nodes() {
			before[n] = said(t, n, renewed)
			r.give(n, step.from, step.trusts...)
			if err := n.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range r.Nodes() {
			eventually(t, func() error {
				if got := said(t, n, renewed) - before[n]; got < 2 {
					return fmt.Errorf("%s: %s has made %d links anew", step.name, n.Name, got)
				}
				if got := figure(t, n, `warren_certificate_reloads_total{use="nodes"}`); got < i+1 {
					return fmt.Errorf("%s: %s has taken %d", step.name, n.Name, got)
				}
				return nil
			})
		}
	}
	t.Logf("%d queues were declared and deleted", declared())
	confirms, deliveries := l.finish()
	t.Logf("longest pauses: confirms %v, deliveries %v", confirms, deliveries)
	if most := confirmMax() + 2*cluster.Stalled(l.begun); confirms > most {
		t.Errorf("no confirm for %v, want %v at most", confirms, most)
	}
	for _, n := range r.Nodes() {
		// A handshake that was too slow, or given up by the other side, is no verdict on a certificate.
		for _, bad := range []string{`refused a connection to the cluster address.*tls: `, "new certificates are not used"} {
			if line := regexp.MustCompile(bad).Find(logOf(t, n)); line != nil {
				t.Errorf("%s says %s", n.Name, line)
			}
		}
	}
	// The old authority's certificates are refused, the new one's are shown.
	files := writePair(t, issue(t, r.ca, pki.Leaf{DNS: []string{nodeName}}))
	good := writePair(t, issue(t, next, pki.Leaf{DNS: []string{nodeName}}))
	for _, n := range r.Nodes() {
		for _, tc := range []struct {
			files pki.Paths
			ok    bool
		}{{files, false}, {good, true}} {
			cfg := clientTLS(t, next, &tc.files)
			cfg.ServerName, cfg.NextProtos = nodeName, []string{"h2"}
			err := readByte(n.ClusterAddr(), cfg)
			if (err == nil) != tc.ok {
				t.Errorf("%s: %v", n.Name, err)
			}
		}
	}
}

// declaring has a client of each node declare a queue and delete it, which always succeeds, until what it returns is called: that tells how often.
func declaring(t *testing.T, nodes []*cluster.Node) (end func() (times int64)) {
	t.Helper()
	var times atomic.Int64
	var work sync.WaitGroup
	done := make(chan struct{})
	for _, n := range nodes {
		ch := at(t, n).ch
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
				}
				_, err := ch.QueueDeclare("declared at "+n.Name, true, false, false, false, nil)
				if err == nil {
					_, err = ch.QueueDelete("declared at "+n.Name, false, false, false)
				}
				if err != nil {
					t.Errorf("%s: %v", n.Name, err)
					return
				}
				times.Add(1)
			}
		})
	}
	end = sync.OnceValue(func() int64 {
		close(done)
		work.Wait()
		return times.Load()
	})
	t.Cleanup(func() { end() })
	return end
}

// readByte reads one byte over TLS: a server of HTTP/2 speaks first.
func readByte(addr string, cfg *tls.Config) error {
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeoutReply)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// TestCertificatesExpireWhileRunning lets the certificates of all three nodes expire under load, and replaces them one node after the other, by ones that
// are of no use at first. Links that are open stay: also those of a node that has a good certificate before the others have. Nothing needs a restart.
func TestCertificatesExpireWhileRunning(t *testing.T) {
	t.Parallel()
	r := newNodesRig(t, "on")
	startAll(t, r.Cluster)
	q := plainQueue(at(t, r.Node(0)), "expiring", nil)
	l := startLoad(t, q, r.Node(1).URL(), []string{r.Node(2).URL()}, 100)
	take := func(n *cluster.Node, leaf pki.Leaf) {
		t.Helper()
		leaf.DNS = []string{nodeName}
		reloads := figure(t, n, `warren_certificate_reloads_total{use="nodes"}`)
		r.write(r.dir(n.Name), issue(t, r.ca, leaf), r.ca)
		eventually(t, func() error {
			if err := n.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			if figure(t, n, `warren_certificate_reloads_total{use="nodes"}`) == reloads {
				return errors.New(n.Name + " has not taken its certificate")
			}
			return nil
		})
	}
	end := time.Now().Add(12 * time.Second)
	for _, n := range r.Nodes() {
		take(n, pki.Leaf{To: end})
	}
	time.Sleep(time.Until(end.Add(time.Second)))
	l.progress(200) // on links that are open
	links := func(n *cluster.Node) int { return said(t, n, "link to peer is down") }
	before := links(r.Node(0))
	const refused = "new certificates are not used"
	other := newAuthority(t, "other")
	for _, bad := range []pki.Pair{
		issue(t, r.ca, pki.Leaf{DNS: []string{nodeName}, From: time.Now().Add(time.Hour)}),
		issue(t, r.ca, pki.Leaf{DNS: []string{nodeName}, From: end.Add(-time.Hour), To: end}),
		issue(t, other, pki.Leaf{DNS: []string{nodeName}}),
		{Cert: issue(t, r.ca, pki.Leaf{DNS: []string{nodeName}}).Cert, Key: issue(t, r.ca, pki.Leaf{}).Key},
	} {
		was := said(t, r.Node(0), refused)
		r.write(r.dir(r.Node(0).Name), bad, r.ca)
		if err := r.Node(0).Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if said(t, r.Node(0), refused) == was {
				return errors.New("a bad certificate is not refused")
			}
			return nil
		})
	}
	take(r.Node(0), pki.Leaf{})
	time.Sleep(4 * time.Second) // in which its links would be made anew
	if now := links(r.Node(0)); now != before {
		t.Errorf("%d links of the node with the good certificate are down", now-before)
	}
	conn, err := connect(r.Node(0).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	roundTrip(t, conn)
	take(r.Node(1), pki.Leaf{})
	take(r.Node(2), pki.Leaf{})
	for _, n := range r.Nodes() {
		eventually(t, func() error {
			if said(t, n, "certificates were replaced") < 4 {
				return errors.New(n.Name + " has not made its links anew")
			}
			return nil
		})
	}
	confirms, _ := l.finish()
	l.pauses("no confirm", confirms, 0)
}
