package bootstrap

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// restoring makes the folders of restored nodes.
type restoring struct {
	t    *testing.T
	as   Restored
	base string
}

func newRestoring(t *testing.T, names ...string) *restoring {
	r := &restoring{t: t, as: Restored{ClusterID: newUUID(), Level: 2}, base: t.TempDir()}
	for _, n := range names {
		r.as.Members = append(r.as.Members, NodeID(n+"/"+newUUID()))
	}
	return r
}

func (r *restoring) dir(name string) string { return filepath.Join(r.base, name) }

// restore makes the folder of a node, which is empty, as any restore of the same backup would.
func (r *restoring) restore(name string) {
	r.t.Helper()
	as := r.as
	as.Node = name
	i := slices.IndexFunc(as.Members, func(m NodeID) bool { return nameOf(m) == name })
	as.Storage = string(as.Members[i][len(name)+1:])
	folder, err := BeginRestore(r.dir(name), as)
	if err == nil {
		err = errors.Join(folder.Commit(), folder.Close())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestRestoredBeginOnce crashes one node of three that were restored at each step of their beginning, and starts it again: with its folder, or with one
// that was restored anew. All that belong to the cluster agree on the folders that it began with, and one that was restored later
// belongs to it only if it is one of them.
func TestRestoredBeginOnce(t *testing.T) {
	for _, again := range []bool{false, true} {
		crashes, late := 0, 0
		for at := 1; ; at++ {
			crashed, refused := beginOnce(t, at, again)
			if !crashed {
				break
			}
			crashes++
			if refused {
				late++
			}
		}
		t.Logf("restored again %v: %d steps crashed, %d came too late", again, crashes, late)
		if crashes < 15 || (late > 0) != again {
			t.Errorf("%d steps, %d came too late", crashes, late)
		}
	}
}

func beginOnce(t *testing.T, at int, again bool) (crashed, refused bool) {
	names := []string{"n1", "n2", "n3"}
	r := newRestoring(t, names...)
	w := &world{t: t, crashAt: at, hosts: make(map[string]*host)}
	all := map[string]*host{}
	for _, n := range names {
		r.restore(n)
		all[n] = w.start(n, r.dir(n), 0)
	}
	begun := func() (hosts []*host) {
		for _, h := range all {
			if h.id.ClusterID() != "" {
				hosts = append(hosts, h)
			}
		}
		return hosts
	}
	var victim *host
	for deadline := time.Now().Add(30 * time.Second); victim == nil && len(begun()) < len(names); time.Sleep(100 * time.Microsecond) {
		w.mu.Lock()
		victim = w.crashed
		w.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("no cluster and no crash at step %d", at)
		}
	}
	w.mu.Lock()
	victim, w.crashAt = w.crashed, -1
	w.mu.Unlock()
	if victim != nil {
		victim.end()
		if again {
			if err := os.RemoveAll(victim.dir); err != nil {
				t.Fatal(err)
			}
			r.restore(victim.name)
		}
		victim = w.start(victim.name, victim.dir, 0)
		all[victim.name] = victim
	}
	var first *pledge
	for _, n := range names {
		h := all[n]
		select {
		case m, ok := <-h.done:
			if !ok && errors.Is(h.err, ErrRestoredLater) && h == victim && again {
				refused = true
				continue
			}
			if !ok || m.ClusterID != r.as.ClusterID || len(m.Founding) != len(names) {
				t.Fatalf("crash at step %d, restored again %v: %s is in %+v (%v)", at, again, n, m, h.err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("crash at step %d, restored again %v: %s waits for ever", at, again, n)
		}
		if c := h.id.status(0).Cluster; first == nil {
			first = c
		} else if !first.equal(c) {
			t.Fatalf("crash at step %d, restored again %v: two beginnings: %v, %v", at, again, first.Copies, c.Copies)
		}
		if s := h.id.status(0); s.Cluster.copyOf(h.id.NodeID()) != s.Copy {
			t.Fatalf("crash at step %d: %s is in the cluster with another folder", at, n)
		}
	}
	for _, h := range all {
		h.end()
	}
	return victim != nil, refused
}

// TestRestoredWaits: restored nodes begin with each other only, and say whom they miss.
func TestRestoredWaits(t *testing.T) {
	r := newRestoring(t, "n1", "n2")
	r.restore("n1")
	i := mustOpen(t, r.dir("n1"), "n1")
	defer mustClose(t, i)
	run := &runner{cfg: Config{Identity: i}, self: i.NodeID()}
	want, folder := i.restored()
	n2, n3 := want.Members[1], NodeID("n3/"+newUUID())
	foreign := &pledge{ClusterID: newUUID(), Members: []NodeID{n3}}
	joined := &pledge{ClusterID: want.ClusterID}
	unlike := "node 'n2' is restored for cluster " + foreign.ClusterID + ", and this one for " + want.ClusterID + ": restore all from the same backup with the same options"
	for name, x := range map[string]struct {
		status status
		want   string
	}{
		"nobody":                  {status{}, "the restored cluster begins with all its nodes, missing are: n2"},
		"an empty one of n2":      {status{Node: NodeID("n2/" + newUUID())}, "the restored cluster begins with all its nodes, missing are: n2"},
		"n2 of other options":     {status{Node: n2, Restored: foreign, Copy: newUUID()}, unlike},
		"n2 of another backup":    {status{Node: NodeID("n2/" + newUUID()), Restored: foreign, Copy: newUUID()}, unlike},
		"n3 of another backup":    {status{Node: n3, Restored: foreign, Copy: newUUID()}, "the restored cluster begins with all its nodes, missing are: n2"},
		"one of the old cluster":  {status{Node: n3, Cluster: foreign}, "node 'n3' belongs to cluster " + foreign.ClusterID + ", and this one is restored for " + want.ClusterID + ": configure the addresses of one"},
		"one that joined it only": {status{Node: n3, Cluster: joined}, "node 'n3' has joined the restored cluster, and none that it began with answers"},
	} {
		answers := []answer{{peer: Peer{Node: x.status.Node}, status: &x.status}}
		begun, why := run.begunAmong(answers, want)
		if why == "" && begun == nil {
			_, _, why = run.allRestored(answers, want, folder)
		}
		if why != x.want {
			t.Errorf("%s: waits because %q, want %q", name, why, x.want)
		}
	}
	copies, others, why := run.allRestored([]answer{{peer: Peer{Node: n2}, status: &status{Node: n2, Restored: want, Copy: "c"}}}, want, folder)
	if why != "" || len(others) != 1 || !slices.Equal(copies, []string{folder, "c"}) {
		t.Errorf("%v, %v, %q", copies, others, why)
	}
}
