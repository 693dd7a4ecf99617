package alarm

import (
	"os"
	"runtime/debug"
	"testing"
	"testing/fstest"
	"time"
)

func TestBoard(t *testing.T) {
	now := time.Unix(1000, 0)
	b := NewBoard(func() time.Time { return now })
	check := func(when, want string) {
		t.Helper()
		if got := b.All().Reason(); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	check("at first", "")
	if !b.SetLocal(DiskLow, true) || b.SetLocal(DiskLow, true) || b.Local() != DiskLow {
		t.Error("changes are not told")
	}
	check("own disk", "low on disk")
	b.Heard("n2", MemoryLow)
	check("both", "low on memory & disk")
	b.SetLocal(DiskLow, false)
	check("another's memory", "low on memory")
	b.Heard("n3", MemoryLow)
	b.Heard("n2", 0)
	check("one of two clears", "low on memory")
	b.Forget("n3")
	check("the other dies", "")
	b.Heard("n2", DiskLow)
	now = now.Add(Stale)
	check("an old word", "low on disk")
	if b.Of("n2") != DiskLow || b.Of("n3") != 0 {
		t.Errorf("n2 is short of %b, n3 of %b", b.Of("n2"), b.Of("n3"))
	}
	now = now.Add(time.Millisecond)
	if b.Of("n2") != 0 {
		t.Error("a stale word counts")
	}
	check("a stale word", "")
}

func TestMessages(t *testing.T) {
	for s := range known + 1 {
		if got, err := Decode(Encode(s)); err != nil || got != s {
			t.Errorf("%b became %b, %v", s, got, err)
		}
	}
	if s, err := Decode([]byte{version, 0xff}); err != nil || s != known {
		t.Errorf("unknown resources: %b, %v", s, err)
	}
	for _, bad := range [][]byte{nil, {1}, {2, 1}, {1, 1, 1}} {
		if _, err := Decode(bad); err == nil {
			t.Errorf("%v was read", bad)
		}
	}
}

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func TestTotal(t *testing.T) {
	machine := file("MemTotal:  1024 kB\nMemFree: 1 kB\n")
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  uint64
		ok    bool
	}{
		"nothing is told": {fstest.MapFS{}, 0, false},
		"machine":         {fstest.MapFS{"proc/meminfo": machine}, 1 << 20, true},
		"group without a limit": {fstest.MapFS{
			"proc/meminfo": machine, "proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("max\n"),
		}, 1 << 20, true},
		"limit of a group around it": {fstest.MapFS{
			"proc/meminfo": machine, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("500000\n"),
		}, 500000, true},
		"container": {fstest.MapFS{
			"proc/meminfo": machine, "proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("400000\n"),
		}, 400000, true},
		"version 1": {fstest.MapFS{
			"proc/meminfo": machine, "proc/self/cgroup": file("5:cpu:/\n4:memory:/x\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("300000\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, 300000, true},
		"garbage": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("\n::\nx")}, 1 << 20, true},
	} {
		if got, ok := (Memory{c.files}).Total(); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %d, %v, want %d", name, got, ok, c.want)
		}
	}
}

func TestUsed(t *testing.T) {
	m := Memory{os.DirFS("/")}
	debug.FreeOSMemory() // of an earlier run
	before := m.Used()
	keep := make([]byte, 64<<20)
	for i := range keep {
		keep[i] = 1
	}
	after := m.Used()
	if after < before+32<<20 {
		t.Errorf("64 MiB more: %d after %d bytes (%d)", after, before, keep[0])
	}
	if total, ok := m.Total(); ok && total < after {
		t.Errorf("uses %d bytes of %d", after, total)
	}
}

func TestGauge(t *testing.T) {
	g := Gauge{Watermark: 1000}
	for i, c := range []struct {
		used uint64
		low  bool
	}{{1000, false}, {1001, true}, {1000, true}, {950, true}, {949, false}, {999, false}, {2000, true}, {0, false}} {
		if got := g.Read(c.used); got != c.low {
			t.Errorf("reading %d, %d bytes: %v", i, c.used, got)
		}
	}
}
