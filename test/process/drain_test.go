package process

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/travel"
)

// localCtl runs `warren ctl --local` beside a node, without a password.
func localCtl(t *testing.T, n *cluster.Node, args ...string) (out string, err error) {
	t.Helper()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"ctl", "--local", "--password", "wrong"}, args...)...)
	cmd.Env = append(os.Environ(), "WARREN_DATA_DIR="+n.DataDir())
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err = cmd.Run()
	return b.String(), err
}

// TestDrainRevive drains a node of three under load and revives it: its queues and clients go elsewhere and nothing is lost; nothing comes
// back before it is revived, and then all does. A restart ends maintenance too.
func TestDrainRevive(t *testing.T) {
	t.Parallel()
	const queues = 12
	c := startCluster(t, 3)
	victim, other := c.Node(0), c.Node(1)
	plainQueue(at(t, other), "dead", nil)
	var names []string
	for i := range queues {
		names = append(names, plainQueue(at(t, c.Node(i%3)), fmt.Sprint("drained", i), amqp.Table{
			"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
		}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	var all []*travel.Publisher
	travelled := time.Now()
	for i, urls := range [][]string{c.URLs(), {other.URL()}} {
		p := &travel.Publisher{
			Name: fmt.Sprint("p", i), Queues: names, Every: 20 * time.Millisecond, URLs: func() []string { return urls },
		}
		all = append(all, p)
		work.Go(func() { p.Run(ctx) })
	}
	time.Sleep(500 * time.Millisecond)

	out := mustCtl(t, other, "drain", victim.Name, "--for", "20s", "--strict")
	t.Log(out)
	if !strings.Contains(out, "clients sent away") {
		t.Errorf("%q", out)
	}
	drained := func(state string, leads int) {
		t.Helper()
		await(t, timeoutReply, "a drained node says so", func() bool {
			code, line, step := readyNow(t, victim.HTTP())
			return code == 503 && step == "draining" && line == "the node is drained"
		})
		if conn, err := net.Dial("tcp", victim.AMQPAddr()); err == nil {
			conn.Close()
			t.Error("a drained node accepts clients")
		}
		if n := figure(t, victim, "rabbitmq_queues"); n != leads {
			t.Errorf("a drained node leads %d queues", n)
		}
		if n := figure(t, victim, `warren_node_state{state="`+state+`"}`); n != 1 {
			t.Errorf("state %s: %d", state, n)
		}
	}
	drained("drained", 0)
	names = append(names, plainQueue(at(t, other), "late", nil))
	if leader, _ := leaderOf(t, c, "late"); leader == victim {
		t.Error("a new queue went to the node that drains")
	}
	mustCtl(t, victim, "drain") // again: nothing to do
	drained("drained", 0)

	socket := filepath.Join(victim.DataDir(), "control.sock")
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("control socket: %v, %v", info, err)
	}
	if out, err := localCtl(t, victim, "revive"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	await(t, timeoutReply, "it is ready", func() bool {
		code, _, _ := readyNow(t, victim.HTTP())
		return code == 200
	})
	at(t, victim).publish("", "late", message("through the revived node"))
	await(t, timeoutStart, "its queues are back", func() bool { return figure(t, victim, "rabbitmq_queues") >= queues/3 })

	if out, err := localCtl(t, victim, "drain", "--for", "20s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	drained("drained", 0)
	stopNode(t, victim)
	start(t, victim)
	await(t, timeoutReply, "a restart ends maintenance", func() bool {
		code, _, _ := readyNow(t, victim.HTTP())
		return code == 200
	})
	if code, _, failure := ctl(t, other, "drain", "nobody"); code != 65 {
		t.Errorf("drain of a node that is none: %d, %s", code, failure)
	}
	cancel()
	work.Wait()
	checkTravellers(t, c, travelled, all, []string{"dead"}, slices.DeleteFunc(names, func(n string) bool { return n == "late" }))
}

// TestReviveBreaksADrainOff: a node that is being drained by mistake is revived at once, and the clients that it has not sent away yet stay.
func TestReviveBreaksADrainOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Args = []string{"--lame-duck", "25s", "--stop-timeout", "60s"} })
	startAll(t, c)
	n := c.Node(0)
	s := at(t, n)
	name := plainQueue(s, "stays", nil)
	drained := make(chan string, 1)
	go func() {
		code, _, failure := ctl(t, n, "drain")
		drained <- fmt.Sprint(code, failure)
	}()
	await(t, timeoutReply, "it drains", func() bool { return figure(t, n, `warren_node_state{state="draining"}`) == 1 })
	begun := time.Now()
	mustCtl(t, n, "revive")
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if got := <-drained; !strings.Contains(got, "the drain was broken off: the node is revived") {
		t.Errorf("who drains is told %q", got)
	}
	if code, line, _ := readyNow(t, n.HTTP()); code != 200 {
		t.Errorf("ready: %d %s", code, line)
	}
	s.publish("", name, message("through the same connection"))
	at(t, n).ready(name, 1)
	kill(t, n) // else it would be a lame duck once more
}

// TestDrainTellsWhatStays: with nobody to take over, a drain ends all the same and says what stays.
func TestDrainTellsWhatStays(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	n := c.Node(0)
	plainQueue(at(t, n), "alone", nil)
	code, out, failure := ctl(t, n, "drain", "--strict")
	if code != 70 || !strings.Contains(failure, "1 queues are still led there, so is the catalog") {
		t.Errorf("--strict: %d %q %q", code, out, failure)
	}
	if out := mustCtl(t, n, "drain"); !strings.Contains(out, "1 queues are still led there, so is the catalog") {
		t.Errorf("%q", out)
	}
	mustCtl(t, n, "revive")
	mustCtl(t, n, "revive")
	at(t, n).publish("", "alone", message("after"))
}
