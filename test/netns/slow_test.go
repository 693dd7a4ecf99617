package netns

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/test/cluster"
)

// lag is what quorum_status says of a replica.
type lag struct {
	Node string `json:"Node Name"`
	Lag  any    // a number, "" if nobody knows
}

// lags are the entries that each replica of a queue is behind by, -1 if nobody knows.
func (r *rig) lags(through *cluster.Node, queue string) map[string]int {
	r.Helper()
	var rows []lag
	r.must("quorum_status", json.Unmarshal([]byte(r.ctl(through, "quorum_status", queue, "--formatter", "json")), &rows))
	by := map[string]int{}
	for _, row := range rows {
		by[row.Node] = -1
		if n, ok := row.Lag.(float64); ok {
			by[row.Node] = int(n)
		}
	}
	return by
}

// TestSlowFollower goes through what the runbook says of a follower that cannot keep up: the link of one replica's node passes less than is published.
// Nobody waits for it; the figures that are named there tell which node it is; it catches up by itself when it can. While it cannot, its
// replicas go elsewhere, and a single one is filled anew.
func TestSlowFollower(t *testing.T) {
	t.Parallel()
	const bytesPerSecond, slowest, behind, each = 1 << 20, 128 << 10, 64, 240
	r := founded(t, options{nodes: 4})
	ch := r.dial(r.Node(0))
	for i := range 4 { // some have their replicas on nodes that are well
		r.declare(ch, fmt.Sprint("other", i), nil)
	}
	r.declare(ch, "busy", amqp.Table{"x-queue-leader-locator": "client-local"})
	members := r.members("busy")
	leader := r.Node(0)
	slow := members[slices.IndexFunc(members, func(n string) bool { return n != leader.Name })]
	var others []string
	spare := ""
	for _, n := range r.Nodes() {
		if n.Name != slow {
			others = append(others, n.Name)
		}
		if !slices.Contains(members, n.Name) {
			spare = n.Name
		}
	}
	link := func(l network.Link) {
		r.cut(others, []string{slow}, l)
		r.cut([]string{slow}, others, l)
	}
	sent := 0
	publish := func(count int) (longest time.Duration) {
		body := strings.Repeat("x", 32<<10)
		for range count {
			longest = max(longest, r.send(ch, "busy", body))
		}
		sent += count
		return longest
	}
	// load publishes, and returns what the replicas were behind by then.
	load := func() map[string]int {
		begun := time.Now()
		longest := publish(each)
		lags := r.lags(leader, "busy")
		t.Logf("%s is slow: longest confirm %v, lags %v", slow, longest.Round(time.Millisecond), lags)
		if longest > confirmMax(begun) {
			t.Errorf("a confirm took %v", longest)
		}
		return lags
	}

	link(network.Link{BytesPerSecond: slowest}) // less than is published on the busiest machine
	// So far behind, or further than that its answers come in time.
	if got := load(); got[slow] >= 0 && got[slow] <= behind || got[leader.Name] != 0 {
		t.Errorf("quorum_status says %v, %s is behind", got, slow)
	}
	figure := func() int { // it is not there before the others have been asked once
		n, ok := r.figureIfThere(r.ByName(slow), "warren_replicas_behind")
		if !ok {
			return -1
		}
		return n
	}
	r.until("the figure of replicas that are behind", timeoutReply, func() bool {
		publish(8) // it stays behind; the figure is of some seconds before
		return figure() > 0
	})
	link(network.Link{})
	d := r.until(slow+" catches up", 2*timeoutReply, func() bool {
		return r.lags(leader, "busy")[slow] == 0 && figure() == 0
	})
	t.Logf("%s had caught up %v after its link was well", slow, d.Round(time.Millisecond))

	link(network.Link{BytesPerSecond: bytesPerSecond})
	load()
	r.ctl(leader, "grow", spare, "all")
	r.ctl(leader, "shrink", slow)
	if got := r.members("busy"); slices.Contains(got, slow) || !slices.Contains(got, spare) || len(got) != 3 {
		t.Errorf("members are %q, should be on %s and not on %s", got, spare, slow)
	}
	load()
	link(network.Link{})
	r.ctl(leader, "add_member", "busy", slow)
	r.ctl(leader, "delete_member", "busy", spare)
	r.until(slow+" has what the others have", timeoutReply, func() bool {
		got := r.lags(leader, "busy")
		return len(got) == 3 && got[slow] == 0
	})
	n, err := ch.QueuePurge("busy", false)
	if err != nil || n != sent {
		t.Errorf("%d messages, %v, %d were published", n, err, sent)
	}
}

// TestPartitionsUnderLoad cuts one node after the other off while clients of all of them publish to queues whose messages expire into others.
func TestPartitionsUnderLoad(t *testing.T) {
	t.Parallel()
	const cut = 2 * time.Second
	r := founded(t, options{nodes: 3})
	arrive := r.travel(journey{sources: 9, dead: 2, publishers: 3})
	for i, n := range r.Nodes() {
		time.Sleep(time.Second)
		var others []string
		for _, o := range r.Nodes() {
			if o != n {
				others = append(others, o.Name)
			}
		}
		// Both ways, or one of them.
		if i != 1 {
			r.cut([]string{n.Name}, others, network.Link{Cut: true})
		}
		if i != 2 {
			r.cut(others, []string{n.Name}, network.Link{Cut: true})
		}
		time.Sleep(cut)
		r.lan.Heal()
	}
	time.Sleep(time.Second)
	arrive(2 * timeoutReply)
}
