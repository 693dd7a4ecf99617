package process

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestHealthVerbs asks two of three nodes for their health while all is well, while the third is dead, and in maintenance.
func TestHealthVerbs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	startAll(t, c)
	n := c.Node(0)
	for _, args := range []string{"await_startup", "await_online_nodes 3", "await_online_quorum_plus_one"} {
		mustCtl(t, n, strings.Fields(args)...)
	}
	plainQueue(at(t, n), "three", amqp.Table{"x-queue-type": "quorum"})
	_, port, err := net.SplitHostPort(n.AMQPAddr())
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"ping", "check_running", "is_running", "is_booting", "check_alarms", "check_local_alarms", "check_virtual_hosts", "check_port_connectivity",
		"check_certificate_expiration", "check_if_node_is_ready", "check_if_node_is_quorum_critical", "check_protocol_listener amqp", "check_port_listener " + port,
	} {
		mustCtl(t, n, strings.Fields(args)...) // again, while something is not as it should be yet
	}
	fails := func(text string, args ...string) {
		t.Helper()
		end := time.Now().Add(timeoutReply)
		for {
			code, out, failure := ctl(t, n, args...)
			if code == 69 && strings.Contains(failure, text) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%q: exit code %d: %s %s", args, code, out, failure)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	fails("No listener for protocol mqtt is active", "check_protocol_listener", "mqtt")

	if err := c.Node(2).Kill(); err != nil {
		t.Fatal(err)
	}
	fails("queue 'three' in vhost '/' would lose quorum", "check_if_node_is_quorum_critical")
	if code, _, failure := ctl(t, n, "await_online_quorum_plus_one", "-t", "1"); code != 75 {
		t.Errorf("exit code %d: %s", code, failure)
	}
	start(t, c.Node(2))
	mustCtl(t, n, "await_online_quorum_plus_one", "-t", "20")

	mustCtl(t, n, "drain", n.Name)
	fails("the node is drained", "check_if_node_is_ready")
	fails("No listener for port "+port+" is active", "check_port_listener", port)
	fails("No listener for protocol grpc is active", "check_protocol_listener", "grpc")
	mustCtl(t, n, "check_running")
	mustCtl(t, n, "revive", n.Name)
	mustCtl(t, n, "check_port_listener", port)
	mustCtl(t, n, "check_protocol_listener", "grpc")
}

// TestHealthVerbsWithoutAMajority: a node that has started runs, as RabbitMQ's verbs have it, also when the catalog has lost its majority, which
// other verbs tell; one that is started then has not started until there is a majority again.
func TestHealthVerbsWithoutAMajority(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	startAll(t, c)
	_, n := catalogLeader(t, c) // n follows: it knows a leader for some seconds that is dead
	var down []*cluster.Node
	for i := range 3 {
		if node := c.Node(i); node != n {
			kill(t, node)
			down = append(down, node)
		}
	}
	await(t, timeoutStart, "the catalog has no leader", func() bool {
		code, _, step := readyNow(t, n.HTTP())
		return code == 503 && step == "catalog"
	})
	expect := func(want int, args ...string) {
		t.Helper()
		for end := time.Now().Add(timeoutReply); ; time.Sleep(50 * time.Millisecond) {
			code, out, failure := ctl(t, n, args...)
			if code == want {
				return
			}
			if time.Now().After(end) {
				t.Errorf("%q: exit code %d, want %d: %s %s", args, code, want, out, failure)
				return
			}
		}
	}
	socket := []string{"--url", "unix://" + filepath.Join(n.DataDir(), "control.sock")} // no login, which needs the catalog
	verb := func(args ...string) []string { return append(slices.Clone(socket), args...) }
	if code, out, _ := ctl(t, n, verb("check_if_metadata_store_is_initialized")...); code != 69 {
		t.Errorf("the node has not heard of the catalog's leader, which is dead: exit code %d, %s", code, out)
	}
	for _, args := range []string{"ping", "check_running", "is_running", "await_startup -t 2", "check_local_alarms", "check_virtual_hosts"} {
		expect(0, verb(strings.Fields(args)...)...)
	}
	for _, v := range []string{"check_if_node_is_ready", "check_if_metadata_store_is_initialized", "check_if_metadata_store_is_initialized_with_data"} {
		expect(69, verb(v)...)
	}

	kill(t, n)
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	expect(69, verb("check_running")...)
	// What is missing is said to whoever asks, with the nodes that end it.
	missing := "waiting for the catalog, which needs a majority of its voters running: " + c.Node(0).Name + ", " + c.Node(1).Name + ", " + c.Node(2).Name
	await(t, timeoutStart, "it is said what the start waits for", func() bool {
		_, line, step := readyNow(t, n.HTTP())
		_, _, failure := ctl(t, n, verb("list_queues")...)
		return step == "starting" && strings.Contains(line, missing) && strings.Contains(failure, "node is not ready: starting: "+missing)
	})
	// Whoever runs it can look why.
	if log := mustCtl(t, n, verb("log_tail")...); !strings.Contains(log, "level=") {
		t.Errorf("its log is %q", log)
	}
	mustCtl(t, n, verb("set_log_level", "debug")...)
	if set := mustCtl(t, n, verb("environment")...); !strings.Contains(set, n.DataDir()) {
		t.Errorf("its settings are %q", set)
	}
	if code, _, failure := ctl(t, n, "log_tail"); code == 0 { // without the socket there are no users yet
		t.Errorf("anybody is shown the log: %s", failure)
	}
	if code, out, failure := ctl(t, n, verb("await_startup", "-t", "2")...); code != 75 {
		t.Errorf("exit code %d: %s %s", code, out, failure)
	}
	start(t, down[0])
	expect(0, verb("await_startup", "-t", "30")...)
	expect(0, verb("check_running")...)
	expect(0, verb("check_if_metadata_store_is_initialized")...)
}

// TestCatalogsMajorityIsCritical has an operator ask, of three nodes without a queue, whether another one can be stopped while one is down: nothing
// could be declared after it, and no node would be ready. A drain waits.
func TestCatalogsMajorityIsCritical(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Args = append(cfg.Args, "--await-quorum", "1s") })
	startAll(t, c)
	n, away := c.Node(0), c.Node(2)
	mustCtl(t, n, "await_online_quorum_plus_one", "-t", "20")
	kill(t, away)
	await(t, timeoutReply, "the node cannot be spared", func() bool {
		code, _, failure := ctl(t, n, "check_if_node_is_quorum_critical")
		return code == 69 && strings.Contains(failure, "the catalog would lose quorum")
	})
	if code, _, failure := ctl(t, n, "await_online_quorum_plus_one", "-t", "1"); code != 75 || !strings.Contains(failure, "the catalog has no voter") {
		t.Errorf("exit code %d: %s", code, failure)
	}
	mustCtl(t, n, "drain")
	untilLog(t, n, "queues, or the catalog, lose their quorum with this node")
	mustCtl(t, n, "revive")
	start(t, away)
	mustCtl(t, n, "await_online_quorum_plus_one", "-t", "20")
}

// TestReplicaBeingFilledIsNoQuorum has an operator ask whether a node can be stopped while a queue's third replica is on its way: not before it
// votes, as the two others are what confirms until then.
func TestReplicaBeingFilledIsNoQuorum(t *testing.T) {
	t.Parallel()
	const entries, size = 300, 32 << 10
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Args = append(cfg.Args, "--repair-rate", "1MiB") })
	startAll(t, c)
	untilFlags(t, c, "enabled enabled")
	s := at(t, c.Node(0))
	name := plainQueue(s, "filled", amqp.Table{"x-queue-type": "quorum"})
	for range entries {
		s.fill(name, strings.Repeat("x", size))
	}
	leader, others := leaderOf(t, c, name)
	mustCtl(t, leader, "delete_member", name, others[0].Name)
	await(t, timeoutStart, "it has two replicas", func() bool { return len(quorumStatus(t, leader, name)) == 2 })
	if code, out, failure := ctl(t, leader, "add_member", name, others[0].Name, "-t", "1"); code != 75 { // it goes on by itself
		t.Fatalf("exit code %d: %s %s", code, out, failure)
	}
	code, _, failure := ctl(t, leader, "check_if_node_is_quorum_critical")
	if l := quorumStatus(t, leader, name)[others[0].Name]; l.Membership == "voter" {
		t.Fatalf("the replica was filled before it could be seen: %+v", l)
	}
	if code != 69 || !strings.Contains(failure, "queue 'filled' in vhost '/' would lose quorum") {
		t.Errorf("the leader's node may go while a replica is being filled: %d %s", code, failure)
	}
	mustCtl(t, leader, "await_online_quorum_plus_one", "-t", "60")
}

// TestDamagedReplicasAreNoQuorum has an operator ask whether a node can be stopped while another one, which has just started, has damaged replicas: not while that is so,
// as the queue would have one replica. More are damaged than are renewed at a time, so that some are for seconds.
func TestDamagedReplicasAreNoQuorum(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	untilFlags(t, c, "enabled enabled")
	s := at(t, c.Node(0))
	var queues []string
	for i := range 6 {
		q := plainQueue(s, fmt.Sprint("decays", i), amqp.Table{"x-queue-type": "quorum"})
		s.fill(q, "message-of-"+q+"-"+strings.Repeat("x", 4<<10))
		queues = append(queues, q)
	}
	s.fill(plainQueue(s, "sound", amqp.Table{"x-queue-type": "quorum"}), slices.Repeat([]string{strings.Repeat("x", 64<<10)}, 60)...) // their part of the log is sealed
	victim, asked := c.Node(2), c.Node(1)
	mustCtl(t, asked, "await_online_quorum_plus_one", "-t", "20")
	kill(t, victim)
	for _, q := range queues {
		flip(t, victim, "message-of-"+q+"-")
	}
	start(t, victim)
	seen := 0
	await(t, timeoutStart, "all replicas are renewed", func() bool {
		code, _, failure := ctl(t, asked, "check_if_node_is_quorum_critical")
		log, err := os.ReadFile(victim.LogFile())
		s.noError("read the log", err)
		renewed := true
		for _, q := range queues {
			if regexp.MustCompile(`a damaged replica begins anew.* name=` + q + ` `).Match(log) {
				continue
			}
			renewed, seen = false, seen+1
			if code != exitUnavailable || !strings.Contains(failure, "queue '"+q+"' in vhost '/' would lose quorum") {
				t.Fatalf("the node may go while another one's replica of %s is damaged: %d %s", q, code, failure)
			}
		}
		return renewed
	})
	if seen == 0 {
		t.Error("no replica was damaged when the node was asked")
	}
	mustCtl(t, asked, "await_online_quorum_plus_one", "-t", "60")
}
