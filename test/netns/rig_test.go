package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/dns"
)

// Bounds of waits for what must come.
const (
	timeoutStart = 2 * time.Minute
	timeoutReply = 30 * time.Second
)

// service is the name of the nodes' headless service, as the manifests have it, and nodesName its whole name.
const (
	service   = "warren-nodes"
	nodesName = service + ".shop.svc.cluster.test"
)

// binary is the node's program.
var binary string

// TestMain compiles the node outside of the network namespace and runs the tests in it.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if network.Inside() {
			binary = os.Getenv(cluster.BinaryEnv)
			cluster.WatchStalls()
			return m.Run()
		}
		if os.Getenv("GORACE") == "" {
			os.Setenv("GORACE", "atexit_sleep_ms=10") // else each process with the race detector ends a second late
		}
		dir, err := os.MkdirTemp("", "warren-netns-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if binary, err = cluster.Build(context.Background(), dir); err == nil {
			err = os.Setenv(cluster.BinaryEnv, binary)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if code, entered := network.Enter(); entered {
			return code
		}
		return m.Run() // each test says that it cannot run
	}())
}

// lans counts the networks of this process.
var lans atomic.Uint32

// rig is a cluster whose nodes have addresses of their own.
type rig struct {
	*testing.T
	*cluster.Cluster
	lan *network.Lan
	dns *dns.Server
	// fresh is the newest number that was given to a host.
	fresh int
}

// options change a rig before it is made.
type options struct {
	nodes int
	// more hosts, without a node.
	others []string
	v6     bool // addresses of IPv6 in place of IPv4
	// join is what nodes are told, "": the name of the service. LAN in it stands for the network's number.
	join string
	// args of each node.
	args func(node string) []string
}

// newRig makes the network and prepares the nodes. Nothing runs yet, and no name is known.
func newRig(t *testing.T, o options) *rig {
	t.Helper()
	if !network.Inside() {
		if os.Geteuid() == 0 || os.Getenv("CI") != "" {
			t.Fatal("no network namespace could be made")
		}
		t.Skip("network namespaces need root here")
	}
	r := &rig{T: t, fresh: o.nodes + len(o.others)}
	hosts := slices.Clone(o.others)
	for i := range o.nodes {
		hosts = append(hosts, fmt.Sprint("node", i+1))
	}
	var err error
	number := byte(lans.Add(1))
	o.join = strings.ReplaceAll(o.join, "LAN", fmt.Sprintf("%x", number))
	r.lan, err = network.OpenLan(network.LanConfig{
		Nodes: hosts, Number: number, IPv6: o.v6,
		// As in a pod.
		ResolvConf: func(clients string) string {
			return "nameserver " + clients + "\nsearch shop.svc.cluster.test svc.cluster.test cluster.test\noptions ndots:5\n"
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.noError("close the network", r.lan.Close()) })
	if r.dns, err = dns.Listen(r.lan.ClientsAddress(), "53"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.noError("close the DNS server", r.dns.Close()) })
	if o.join == "" {
		o.join = service + ":5682"
	}
	r.Cluster = r.cluster(cluster.Config{Nodes: o.nodes, Join: o.join}, func(node string) string { return node }, o.args)
	return r
}

// cluster prepares nodes on hosts of the network.
func (r *rig) cluster(cfg cluster.Config, host func(node string) string, args func(node string) []string) *cluster.Cluster {
	r.Helper()
	cfg.Binary, cfg.Dir = binary, r.TempDir()
	cfg.Places = func(node string) (cluster.Place, error) {
		p, err := r.lan.Place(host(node))
		return cluster.Place{Host: p.Host, Run: p.Run, Args: func(cluster.Addrs) ([]string, error) {
			if args == nil {
				return nil, nil
			}
			return args(node), nil
		}}, err
	}
	c, err := cluster.New(cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		r.noError("end the nodes", c.Close())
		if crashes := c.Crashes(); crashes != "" {
			r.Error(crashes)
		}
		if r.Failed() {
			r.Log(c.Logs())
		}
	})
	return c
}

func (r *rig) noError(what string, err error) {
	r.Helper()
	if err != nil {
		r.Errorf("%s: %v", what, err)
	}
}

func (r *rig) must(what string, err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// ip is the address of a host.
func (r *rig) ip(host string) netip.Addr {
	r.Helper()
	p, err := r.lan.Place(host)
	r.must("place", err)
	return netip.MustParseAddr(p.Host)
}

// ips are the addresses of all nodes.
func (r *rig) ips() (list []netip.Addr) {
	for _, n := range r.Nodes() {
		list = append(list, r.ip(n.Name))
	}
	return list
}

// publish sets the records of the service.
func (r *rig) publish(a dns.Answer) { r.dns.Set(nodesName, a) }

// publishAll sets the records of the service to the present addresses of all nodes.
func (r *rig) publishAll() { r.publish(dns.Answer{Addrs: r.ips(), TTL: 1}) }

// publishAllAfter has them set to the present addresses later.
func (r *rig) publishAllAfter(d time.Duration) *time.Timer {
	present := dns.Answer{Addrs: r.ips(), TTL: 1}
	return time.AfterFunc(d, func() { r.publish(present) })
}

// move gives a host that runs nothing an address that nobody had.
func (r *rig) move(nodes ...*cluster.Node) {
	r.Helper()
	numbers := map[string]int{}
	for _, n := range nodes {
		r.fresh++
		numbers[n.Name] = r.fresh
	}
	r.renumber(numbers)
}

func (r *rig) renumber(numbers map[string]int) {
	r.Helper()
	r.must("renumber", r.lan.Renumber(numbers))
	for name := range numbers {
		if n := r.ByName(name); n != nil {
			r.must("move", n.Move())
		}
	}
}

// cut drops what the hosts of a say to those of b.
func (r *rig) cut(a, b []string, state network.Link) {
	r.Helper()
	var pairs []network.Pair
	for _, from := range a {
		for _, to := range b {
			pairs = append(pairs, network.Pair{From: from, To: to})
		}
	}
	r.must("cut", r.lan.Harm(pairs, state))
}

// part drops what the two sides say to each other.
func (r *rig) part(a, b []string) {
	r.Helper()
	r.cut(a, b, network.Link{Cut: true})
	r.cut(b, a, network.Link{Cut: true})
}

// launchAll starts all nodes that do not run and does not wait.
func (r *rig) launchAll() {
	r.Helper()
	for _, n := range r.Nodes() {
		if !n.Running() {
			r.must("launch", n.Launch())
		}
	}
}

// readyAll starts all nodes that do not run and waits until all are ready.
func (r *rig) readyAll() time.Duration {
	r.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), timeoutStart)
	defer cancel()
	r.must("start", r.StartAll(ctx))
	return time.Since(begun)
}

// user makes an administrator who may come from other machines, which guest may not.
func (r *rig) user(c *cluster.Cluster) {
	r.Helper()
	n := c.Node(0)
	for _, args := range [][]string{
		{"add_user", "app", "app"}, {"set_user_tags", "app", "administrator"}, {"set_permissions", "app", ".*", ".*", ".*"},
	} {
		cmd := exec.Command(binary, append([]string{"ctl", "--local"}, args...)...)
		cmd.Env = append(os.Environ(), "WARREN_DATA_DIR="+n.DataDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Fatalf("ctl %q: %v\n%s", args, err, out)
		}
	}
}

// ctl asks a node as the user app.
func (r *rig) ctl(n *cluster.Node, args ...string) string {
	r.Helper()
	out, err := r.tryCtl(n, args...)
	r.must(fmt.Sprintf("ctl %q", args), err)
	return out
}

func (r *rig) tryCtl(n *cluster.Node, args ...string) (string, error) {
	cmd := exec.Command(binary, append([]string{"ctl", "--url", n.HTTP(), "--user", "app", "--password", "app", "-t", "60"}, args...)...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, failed.Bytes())
	}
	return out.String(), nil
}

// status is what a node says of its cluster.
type status struct {
	ID           string   `json:"cluster_name"`
	DiskNodes    []string `json:"disk_nodes"`
	RunningNodes []string `json:"running_nodes"`
	Warren       struct {
		Leader string   `json:"catalog_leader"`
		Voters []string `json:"catalog_voters"`
	} `json:"warren"`
}

func (r *rig) status(n *cluster.Node) (s status) {
	r.Helper()
	r.must("cluster_status", json.Unmarshal([]byte(r.ctl(n, "cluster_status", "--formatter", "json")), &s))
	return s
}

// clusterID is the cluster that a node's folder belongs to, "" if none.
func clusterID(n *cluster.Node) (string, error) {
	raw, err := os.ReadFile(filepath.Join(n.DataDir(), "node.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var f struct {
		Cluster struct {
			ID string `json:"id"`
		} `json:"cluster"`
	}
	return f.Cluster.ID, json.Unmarshal(raw, &f)
}

// clusters are the different clusters that the folders of nodes belong to.
func (r *rig) clusters(nodes ...*cluster.Node) (ids []string) {
	r.Helper()
	for _, n := range nodes {
		id, err := clusterID(n)
		r.must("read node.json", err)
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// until waits for a condition outside this process.
func (r *rig) until(what string, wait time.Duration, done func() bool) time.Duration {
	r.Helper()
	begun := time.Now()
	for !done() {
		if time.Since(begun) > wait {
			r.Fatalf("not within %v: %s", wait, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(begun)
}

// ready is the status of a node's /readyz, 0 if it does not answer.
func ready(n *cluster.Node) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := n.Fetch(ctx, "/readyz")
	return err == nil
}

// figure is a figure of a node's metrics.
func (r *rig) figure(n *cluster.Node, name string) int {
	r.Helper()
	v, ok := r.figureIfThere(n, name)
	if !ok {
		r.Fatalf("%s has no %s", n.Name, name)
	}
	return v
}

func (r *rig) figureIfThere(n *cluster.Node, name string) (v int, ok bool) {
	r.Helper()
	var page []byte
	r.until("metrics of "+n.Name, timeoutReply, func() (ok bool) {
		var err error
		page, err = n.Fetch(r.Context(), "/metrics")
		return err == nil
	})
	for line := range strings.Lines(string(page)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			r.must("metrics", err)
			return int(v), true
		}
	}
	return 0, false
}

func url(n *cluster.Node) string { return "amqp://app:app@" + n.AMQPAddr() + "/" }

func urls(c *cluster.Cluster) (list []string) {
	for _, n := range c.Nodes() {
		list = append(list, url(n))
	}
	return list
}

// dial connects to a node.
func (r *rig) dial(n *cluster.Node) *amqp.Channel {
	r.Helper()
	var socket net.Conn
	conn, err := amqp.DialConfig(url(n), amqp.Config{Heartbeat: 10 * time.Second, Dial: func(network, addr string) (nc net.Conn, err error) {
		socket, err = amqp.DefaultDial(5*time.Second)(network, addr)
		return socket, err
	}})
	r.must("connect to "+n.Name, err)
	r.Cleanup(func() {
		// A connection that is not read, or not answered, cannot be closed as the protocol has it.
		defer time.AfterFunc(timeoutReply, func() { socket.Close() }).Stop()
		conn.Close()
	})
	ch, err := conn.Channel()
	r.must("channel", err)
	r.must("confirms", ch.Confirm(false))
	return ch
}

func (r *rig) declare(ch *amqp.Channel, name string, args amqp.Table) {
	r.Helper()
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	r.must("declare "+name, err)
}

// send publishes bodies and waits for the confirms; it returns the time of the slowest.
func (r *rig) send(ch *amqp.Channel, queue string, bodies ...string) time.Duration {
	r.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), timeoutReply)
	defer cancel()
	for _, body := range bodies {
		c, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent})
		r.must("publish", err)
		ok, err := c.WaitContext(ctx)
		if err != nil || !ok {
			r.Fatalf("confirm of %q: %t, %v", body, ok, err)
		}
	}
	return time.Since(begun)
}

// take takes everything out of a queue, n messages at least.
func (r *rig) take(ch *amqp.Channel, queue string, n int) (got []string) {
	r.Helper()
	r.until(fmt.Sprintf("%d messages in %s", n, queue), timeoutReply, func() bool {
		d, ok, err := ch.Get(queue, true)
		r.must("get", err)
		if ok {
			got = append(got, string(d.Body))
		}
		return !ok && len(got) >= n
	})
	return got
}

// holds takes everything out of a queue and compares.
func (r *rig) holds(ch *amqp.Channel, queue string, bodies ...string) {
	r.Helper()
	if got := r.take(ch, queue, len(bodies)); !slices.Equal(got, bodies) {
		r.Fatalf("%s held %q, want %q", queue, got, bodies)
	}
}

// work sends and takes through each node, with a dead letter each.
func (r *rig) work(c *cluster.Cluster) {
	r.Helper()
	for i, n := range c.Nodes() {
		ch := r.dial(n)
		dead, q := fmt.Sprint("dead-", i), fmt.Sprint("work-", i)
		r.declare(ch, dead, nil)
		r.declare(ch, q, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
		r.send(ch, q, "one", "two")
		for range 2 {
			r.until("a message through "+n.Name, timeoutReply, func() bool {
				d, ok, err := ch.Get(q, false)
				r.must("get", err)
				if ok {
					r.must("reject", d.Reject(false))
				}
				return ok
			})
		}
		r.holds(ch, dead, "one", "two")
		r.must("close", ch.Close())
	}
}
