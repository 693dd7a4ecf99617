package alarm

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"math"
	"path"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Memory reads what the process uses and may use. The files of /proc and
// /sys/fs/cgroup are found in Root.
type Memory struct {
	Root fs.FS // of the file system: os.DirFS("/")
}

// Used returns the bytes that the process keeps from others: its resident memory
// without mapped files, less the part of the Go heap that is free but not given
// back to the system yet. ok is false where the system does not tell.
func (m Memory) Used() (bytes uint64, ok bool) {
	status, err := fs.ReadFile(m.Root, "proc/self/status")
	if err != nil {
		return 0, false
	}
	resident, ok := kilobytes(status, "RssAnon:")
	if !ok {
		return 0, false
	}
	free := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(free)
	idle := uint64(0)
	if free[0].Value.Kind() == metrics.KindUint64 {
		idle = free[0].Value.Uint64()
	}
	return resident - min(idle, resident), true
}

// kilobytes finds a line such as "RssAnon:   1234 kB" and returns it in bytes.
func kilobytes(text []byte, name string) (uint64, bool) {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) >= 2 && f[0] == name {
			n, err := strconv.ParseUint(f[1], 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}

// Total returns the bytes the process could use: the machine's memory, or the
// smallest limit of its control groups. ok is false where the system does not tell.
func (m Memory) Total() (bytes uint64, ok bool) {
	total := uint64(math.MaxUint64)
	if text, err := fs.ReadFile(m.Root, "proc/meminfo"); err == nil {
		if n, ok := kilobytes(text, "MemTotal:"); ok {
			total = n
		}
	}
	for _, file := range m.limitFiles() {
		text, err := fs.ReadFile(m.Root, file)
		if err != nil {
			continue // not there: no limit at this level
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err == nil { // else "max"
			total = min(total, n)
		}
	}
	return total, total != math.MaxUint64
}

// limitFiles are where limits of the process's control groups may stand, of both
// versions, in the group itself and in those around it.
func (m Memory) limitFiles() (files []string) {
	text, err := fs.ReadFile(m.Root, "proc/self/cgroup")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	up := func(root, group, file string) {
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			files = append(files, path.Join(root, group, file))
			if group == "/" {
				return
			}
		}
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[1] == "":
			up("sys/fs/cgroup", parts[2], "memory.max")
		case strings.Contains(","+parts[1]+",", ",memory,"):
			up("sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes")
		}
	}
	return files
}

// Gauge decides from readings whether memory is low. Between the watermark and
// ClearShare of it the verdict stays, so that it does not flap.
type Gauge struct {
	Watermark uint64 // bytes
	low       bool
}

// ClearShare is the part of the watermark below which an alarm ends.
const ClearShare = 0.95

// Read takes a reading and returns whether memory is low.
func (g *Gauge) Read(used uint64) bool {
	switch {
	case used > g.Watermark:
		g.low = true
	case float64(used) < ClearShare*float64(g.Watermark):
		g.low = false
	}
	return g.low
}
