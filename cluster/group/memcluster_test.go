package group

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/transport"
)

// memCluster is a set of hosts in one process over memNet and memStore.
type memCluster struct {
	t     testing.TB
	net   *memNet
	ids   []transport.NodeID
	open  opener
	nodes map[transport.NodeID]*clusterNode
	tune  func(*HostConfig)
}

type clusterNode struct {
	id   transport.NodeID
	link *memNode
	det  *detector.Detector
	host *Host
	disk io.Closer

	mu       sync.Mutex
	machines map[transport.GroupID]*ledger
}

func testLogger() *slog.Logger {
	level := slog.LevelError
	if os.Getenv("GROUP_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func newMemCluster(t testing.TB, size int, tune func(*HostConfig)) *memCluster {
	return newClusterOver(t, memStorage(t), size, tune)
}

func newClusterOver(t testing.TB, open opener, size int, tune func(*HostConfig)) *memCluster {
	c := &memCluster{t: t, net: newMemNet(), tune: tune, open: open, nodes: make(map[transport.NodeID]*clusterNode)}
	for i := range size {
		id := transport.NodeID(fmt.Sprintf("n%d", i))
		c.ids = append(c.ids, id)
	}
	for _, id := range c.ids {
		c.boot(id)
	}
	return c
}

// boot starts a node over its store.
func (c *memCluster) boot(id transport.NodeID) *clusterNode {
	c.t.Helper()
	n := &clusterNode{id: id, link: c.net.join(id), machines: make(map[transport.GroupID]*ledger)}
	log := testLogger().With("on", id)
	var err error
	n.det, err = detector.New(detector.Config{Local: id, Net: n.link, Logger: log})
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := HostConfig{Local: id, Mesh: n.link, Detector: n.det, Logger: log}
	cfg.Store, n.disk = c.open(id)
	if c.tune != nil {
		c.tune(&cfg)
	}
	n.host = NewHost(cfg)
	n.det.SetPeers(c.ids)
	c.nodes[id] = n
	c.net.change(func() {})
	return n
}

// kill takes a node off the network, as SIGKILL would, and frees its resources.
func (c *memCluster) kill(id transport.NodeID) {
	n := c.nodes[id]
	c.net.change(func() { n.link.down = true })
	delete(c.nodes, id)
	n.close(c.t)
}

func (n *clusterNode) close(t testing.TB) {
	if err := n.host.Close(); err != nil {
		t.Errorf("close host %s: %v", n.id, err)
	}
	n.det.Close()
	if err := n.disk.Close(); err != nil {
		t.Errorf("close store of %s: %v", n.id, err)
	}
}

func (c *memCluster) close() {
	for _, n := range c.nodes {
		n.close(c.t)
	}
}

func (n *clusterNode) start(t testing.TB, s Spec) *Group {
	t.Helper()
	m := &ledger{}
	g, err := n.host.Start(s, m, nil)
	if err != nil {
		t.Fatalf("start group %d on %s: %v", s.ID, n.id, err)
	}
	n.mu.Lock()
	if n.machines[s.ID] == nil {
		n.machines[s.ID] = m
	}
	n.mu.Unlock()
	return g
}

// found starts a group on all nodes.
func (c *memCluster) found(s Spec) {
	c.t.Helper()
	s.Members, s.Bootstrap = c.ids, true
	for _, id := range c.ids {
		if n, ok := c.nodes[id]; ok {
			n.start(c.t, s)
		}
	}
}

// leader returns the group's replica that leads in the newest term and that a majority
// of the running nodes follows, or nil.
func (c *memCluster) leader(id transport.GroupID) *Group {
	var best *Group
	var bestTerm uint64
	for _, n := range c.nodes {
		g, ok := n.host.Group(id)
		if !ok || !g.IsLeader() {
			continue
		}
		if _, term, _ := g.Leader(); best == nil || term > bestTerm {
			best, bestTerm = g, term
		}
	}
	return best
}

// waitFor polls a condition; in a bubble it costs no real time.
func waitFor(t testing.TB, limit time.Duration, what string, cond func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !cond() {
		if time.Since(began) > limit {
			t.Fatalf("after %v: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

func (c *memCluster) waitLeader(id transport.GroupID, limit time.Duration, not ...transport.NodeID) *Group {
	c.t.Helper()
	var g *Group
	waitFor(c.t, limit, fmt.Sprintf("no leader for group %d", id), func() bool {
		g = c.leader(id)
		return g != nil && !slices.Contains(not, g.host.cfg.Local)
	})
	return g
}

// propose commits one command and returns its outcome.
func propose(g *Group, text string) (any, error) {
	type outcome struct {
		v   any
		err error
	}
	done := make(chan outcome, 1)
	g.Propose([]byte(text), func(v any, err error) { done <- outcome{v, err} })
	o := <-done
	return o.v, o.err
}

// commitMore commits n numbered entries more and returns want with them.
func commitMore(t testing.TB, g *Group, want []string, n int) []string {
	t.Helper()
	for range n {
		want = append(want, fmt.Sprint("entry ", len(want)))
		if _, err := propose(g, want[len(want)-1]); err != nil {
			t.Fatal(err)
		}
	}
	return want
}

func difference(got, want []string) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	part := func(s []string) []string { return s[min(at, len(s)):min(at+3, len(s))] }
	return fmt.Sprintf("has %d items, want %d; from item %d on %v, want %v", len(got), len(want), at, part(got), part(want))
}

// agree waits until every running node has applied exactly want.
func (c *memCluster) agree(id transport.GroupID, want []string) {
	c.t.Helper()
	for _, n := range c.nodes {
		n.mu.Lock()
		m := n.machines[id]
		n.mu.Unlock()
		began := time.Now()
		for !slices.Equal(m.all(), want) {
			if time.Since(began) > 30*time.Second {
				c.t.Fatalf("node %s: %s", n.id, difference(m.all(), want))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

const queueA transport.GroupID = 100

// bubble runs a test over an in-memory cluster in virtual time.
func bubble(t *testing.T, size int, tune func(*HostConfig), f func(t *testing.T, c *memCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, size, tune)
		defer c.close()
		f(t, c)
	})
}
