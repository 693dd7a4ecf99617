package scale

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

var measure = flag.Bool("scale.measure", false, "measure the constants of the model on this machine")

// TestMeasure prints what DefaultCosts has constants of.
func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("it measures for a minute; -scale.measure")
	}
	t.Run("pings", func(t *testing.T) {
		for _, n := range []int{5, 10, 20} {
			r := rigOf(t, n, rigParts{detector: true})
			m, took := r.over(4 * time.Second)
			pings := 4 * float64(n*(n-1)) * took.Seconds()
			t.Logf("%d nodes: %.1f µs and %.0f bytes a ping with its answer, %.2f writes", n, m.cpu.Seconds()/pings*1e6, float64(m.bytes)/pings, float64(m.writes)/pings)
		}
	})
	t.Run("catalog", func(t *testing.T) {
		for _, n := range []int{3, 5, 10} {
			r := rigOf(t, n, rigParts{detector: true, catalog: true})
			idle, took := r.over(3 * time.Second)
			before := r.read()
			const entries = 200
			for i := range entries {
				declare(t, r, r.nodes[i%n], i)
			}
			m, busy := r.read().since(before)
			cpu := m.cpu.Seconds() - idle.cpu.Seconds()/took.Seconds()*busy.Seconds()
			t.Logf("%d nodes: idle %.1f ms/s; %.0f µs a declaration alone, %.0f for each follower, %.0f bytes", n, idle.cpu.Seconds()/took.Seconds()*1e3,
				cpu/entries*1e6, cpu/entries/float64(n-1)*1e6, float64(m.bytes)/entries)
		}
	})
	t.Run("groups", func(t *testing.T) { measureGroups(t, group.Profile{}) })
	// Ten times the heartbeats: the difference is what one costs when there are many.
	t.Run("groups, quick", func(t *testing.T) {
		measureGroups(t, group.Profile{Heartbeat: 3 * time.Second, Election: 3 * time.Second, Lease: 1500 * time.Millisecond, Commit: 500 * time.Millisecond, AppendEntriesMax: 64})
	})
	t.Run("machine", func(t *testing.T) {
		runs, err := runCatalog(10, []int{1000, 10_000, 100_000, 1_000_000})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			t.Logf("%+v", r)
		}
	})
}

func declare(t *testing.T, r *rig, at *rigNode, i int) {
	t.Helper()
	_, err := at.cat.Propose(t.Context(), &catalog.DeclareQueue{Queue: catalog.Queue{
		Vhost: "/", Name: queueName(i), Durable: true, Kind: catalog.Replicated, Members: r.ids[:3], Preferred: r.ids[0],
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func rigOf(t *testing.T, n int, parts rigParts) *rig {
	t.Helper()
	r, err := newRig(t.TempDir(), n, parts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(500 * time.Millisecond) // what comes up has settled
	return r
}

// noMachine is a machine that does nothing.
type noMachine struct{}

func (noMachine) Apply(group.Entry) any { return nil }
func (noMachine) Snapshot() (func() ([]byte, []store.Range), error) {
	return func() ([]byte, []store.Range) { return nil, nil }, nil
}
func (noMachine) Restore([]byte) error { return nil }

func startGroups(t *testing.T, r *rig, groups int) {
	t.Helper()
	for g := range groups {
		for _, nd := range r.nodes {
			if _, err := nd.host.Start(group.Spec{
				ID: transport.GroupID(100 + g), Members: r.ids[:3], Preferred: r.ids[g%3], Bootstrap: true,
			}, noMachine{}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.await(func() bool { return r.led() == groups }); err != nil {
		t.Fatal(err)
	}
}

// led counts the groups that say they lead, over all nodes.
func (r *rig) led() (n int) {
	for _, nd := range r.nodes {
		if !nd.stopped {
			n += nd.host.Stats().Leading
		}
	}
	return n
}

func measureGroups(t *testing.T, p group.Profile) {
	const groups = 300
	r := rigOf(t, 3, rigParts{detector: true, host: true, profile: p})
	bare, took := r.over(3 * time.Second)
	bareRate := bare.cpu.Seconds() / took.Seconds()
	memory := heapBytes()
	before := r.read()
	startGroups(t, r, groups)
	m, took := r.read().since(before)
	t.Logf("start: %.0f µs a replica, with election", (m.cpu.Seconds()-bareRate*took.Seconds())/(3*groups)*1e6)
	var s runtime.MemStats
	after := heapBytes()
	runtime.ReadMemStats(&s)
	t.Logf("memory: %.1f KiB heap a replica, %.1f goroutines, stacks %.1f KiB", float64(after-memory)/3/groups/1024, float64(runtime.NumGoroutine())/3/groups, float64(s.StackInuse)/3/groups/1024)
	time.Sleep(5 * time.Second)
	m, took = r.over(15 * time.Second)
	secs := took.Seconds()
	frames := (float64(m.frames) - float64(bare.frames)/3*secs) / 2 // both ends count
	t.Logf("idle: %.1f ms/s, %.0f frames/s with their answers, %.2f a second for each group and follower; %.0f µs and %.0f bytes each",
		(m.cpu.Seconds()/secs-bareRate)*1e3, frames/secs, frames/2/secs/groups/2, (m.cpu.Seconds()-bareRate*secs)/(frames/2)*1e6, float64(m.bytes-bare.bytes*5)/(frames/2))
	before = r.read()
	began := time.Now()
	if err := r.nodes[2].mesh.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.await(func() bool { return r.nodes[0].host.Stats().Leading+r.nodes[1].host.Stats().Leading == groups }); err != nil {
		t.Fatal(err)
	}
	m, took = r.read().since(before)
	t.Logf("elections: %d in %v, %.0f µs each", groups/3, time.Since(began), (m.cpu.Seconds()-bareRate*took.Seconds())/(groups/3)*1e6)
}

// TestGossip: real memberlists send what their settings say, also about a crash.
func TestGossip(t *testing.T) {
	sizes := []int{5, 10}
	if *measure {
		sizes = append(sizes, 20, 50)
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := runGossip(n, 3*time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				packets, pulls := gossipFormula(n)
				t.Logf("%+v; formula: %.2f packets, %.4f pulls, news at most %d packets", g, packets, pulls, 3*newsFormula(n))
				if g.tooFewMade || !g.everyoneKnew {
					t.Error("not all knew all")
				}
				if g.Packets < 0.95*packets || g.Packets > 1.1*packets {
					t.Errorf("%.2f packets a second, formula %.2f", g.Packets, packets)
				}
				if g.Pulls < 0.8*pulls || g.Pulls > 1.2*pulls {
					t.Errorf("%.4f pulls a second, formula %.4f", g.Pulls, pulls)
				}
			})
		})
	}
}

// TestDetectors: real detectors find the nodes that are gone, all of them and no others.
func TestDetectors(t *testing.T) {
	for _, c := range []struct {
		nodes, failed int
		killed        bool
		within        time.Duration
	}{
		{5, 1, true, 100 * time.Millisecond},
		{5, 1, false, 2500 * time.Millisecond},
		{20, 1, true, 100 * time.Millisecond},
		{20, 6, true, 200 * time.Millisecond},
		{20, 6, false, 3 * time.Second},
		{50, 16, true, 300 * time.Millisecond},
	} {
		if c.nodes > 20 && !*measure {
			continue
		}
		t.Run(fmt.Sprintf("%d of %d, killed %v", c.failed, c.nodes, c.killed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, err := runDetectors(c.nodes, c.failed, c.killed, DefaultCosts().OneWay)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%+v", d)
				if d.Wrong > 0 || d.Missing > 0 || d.Last > c.within {
					t.Errorf("%+v, want all verdicts within %v", d, c.within)
				}
			})
		})
	}
}
