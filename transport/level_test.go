package transport

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

// TestLevels links programs of different levels, and refuses the older one once the cluster has left it behind.
func TestLevels(t *testing.T) {
	var d directory
	var active atomic.Int64
	active.Store(1)
	newer := func(c *Config) { c.Level, c.LevelMin = 2, func() int { return int(active.Load()) } }
	older := startMesh(t, &d, "old/1", nil)
	a := startMesh(t, &d, "a/1", newer)
	b := startMesh(t, &d, "b/1", newer)
	want := func(m *Mesh, to NodeID, level int) {
		t.Helper()
		until(t, "the link to "+string(to), func() bool { p := m.Peer(to); return p.Up && p.Level == level })
	}
	for _, m := range []*Mesh{older, a, b} {
		m.SetPeers([]NodeID{"old/1", "a/1", "b/1"})
	}
	want(a, "old/1", 1)
	want(older, "a/1", 1)
	want(a, "b/1", 2)
	if l := a.Peer("a/1").Level; l != 2 {
		t.Errorf("a node knows of itself level %d", l)
	}

	active.Store(2)
	if err := older.Close(); err != nil {
		t.Fatal(err)
	}
	older = startMesh(t, &d, "old/1", nil)
	older.SetPeers([]NodeID{"a/1"})
	refused := func(m *Mesh, to NodeID, text string) {
		t.Helper()
		until(t, "the link to "+string(to), func() bool {
			p := m.Peer(to)
			var r *RemoteError
			return !p.Up && errors.As(p.Err, &r) && r.Code == CodeVersion && strings.Contains(r.Text, text)
		})
	}
	refused(older, "a/1", "the cluster is at level 2, the program of node old/1 knows level 1")
	refused(a, "old/1", "node old/1 speaks protocol 1 to 1, you speak 2 to 2")
	want(a, "b/1", 2)
}
