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

// Used returns the bytes that the process keeps from others: what the Go runtime
// holds, less the free part of its heap, or the resident memory without mapped files
// where that is less, because part of it has not been touched.
func (m Memory) Used() (bytes uint64) {
	const (
		total = iota
		released
		idle
	)
	samples := []metrics.Sample{
		total:    {Name: "/memory/classes/total:bytes"},
		released: {Name: "/memory/classes/heap/released:bytes"},
		idle:     {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return samples[i].Value.Uint64()
	}
	less := func(a, b uint64) uint64 { return a - min(a, b) }
	used := less(value(total), value(released)+value(idle))
	status, err := fs.ReadFile(m.Root, "proc/self/status")
	if err != nil {
		return used
	}
	if resident, ok := kilobytes(status, "RssAnon:"); ok {
		used = min(used, less(resident, value(idle)))
	}
	return used
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
