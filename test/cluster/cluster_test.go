package cluster

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

func TestPortsDiffer(t *testing.T) {
	ports, err := freePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] || p < portMin || p >= portMax {
			t.Errorf("port %d is repeated or out of range", p)
		}
		seen[p] = true
	}
}

func TestProcessFigures(t *testing.T) {
	cpu, err := ProcessCPU(os.Getpid())
	if err != nil || cpu < 0 || cpu > time.Hour {
		t.Errorf("CPU time %v, %v", cpu, err)
	}
	rss, err := ProcessRSS(os.Getpid())
	if err != nil || rss < 1<<20 {
		t.Errorf("memory %d, %v", rss, err)
	}
	if written, err := ProcessWritten(os.Getpid()); err != nil || written < 0 {
		t.Errorf("%d bytes written, %v", written, err)
	}
	if _, err := ProcessCPU(1 << 30); err == nil {
		t.Error("a process that does not exist has used time")
	}
}

func TestFailedStart(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ name, binary string }{
		{"no such binary", dir + "/none"},
		{"a binary that ends at once", "/bin/false"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := Start(ctx, Config{Nodes: 3, Binary: tc.binary, Dir: dir})
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v", tc.name, err)
		}
		cancel()
	}
}

// TestProcessControl drives a process that is no node: what happens to it does
// not depend on the broker.
func TestProcessControl(t *testing.T) {
	c, err := New(Config{Nodes: 1, Binary: "/bin/sh", Dir: t.TempDir(), Wrap: []string{"/bin/sh", "-c", "exec sleep 60"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := c.Node(0)
	if n.Running() || n.Kill() != nil || n.Stop(t.Context()) != nil {
		t.Error("a node that never ran is not down")
	}
	for range 2 {
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
		if err := n.Launch(); err == nil {
			t.Error("started twice")
		}
		if err := n.Move(); err == nil {
			t.Error("moved while running")
		}
		pid := n.PID()
		if err := n.Kill(); err != nil || n.Running() {
			t.Errorf("kill: %v", err)
		}
		if _, err := ProcessCPU(pid); err == nil {
			t.Errorf("process %d is still there", pid)
		}
		if err := n.Move(); err != nil {
			t.Error(err)
		}
	}
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err == nil {
		t.Error("a process that died of a signal has stopped cleanly")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestCrash(t *testing.T) {
	c, err := New(Config{Nodes: 1, Binary: "/bin/sh", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	n := c.Node(0)
	if err := os.MkdirAll(n.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for log, crashed := range map[string]bool{
		"a line\nanother\n":                            false,
		"a line about a panic: it is over\n":           false,
		"a line\npanic: at the disco\n\ngoroutine 1\n": true,
		"a line\nWARNING: DATA RACE\n":                 true,
		"level=ERROR msg=\"panic in the work for one client, which ends for it; please report this\" work=amqp": true,
	} {
		if err := os.WriteFile(n.LogFile(), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.Crashes(); (got != "") != crashed {
			t.Errorf("%q: got %q", log, got)
		}
	}
}
