package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// machine notes how much of its cores' time is stolen.
type machine struct {
	mu      sync.Mutex
	samples []sample
}

// sample is what /proc/stat has counted until then, in ticks of all cores (proc(5)).
type sample struct {
	at            time.Time
	stolen, total uint64
}

// watch notes a sample a second until ctx is done.
func watch(ctx context.Context) *machine {
	m := &machine{}
	m.note()
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				m.note()
			}
		}
	}()
	return m
}

func (m *machine) note() {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return // then nothing was stolen, and every failure stands
	}
	if s, ok := parse(string(text)); ok {
		s.at = time.Now()
		m.mu.Lock()
		m.samples = append(m.samples, s)
		m.mu.Unlock()
	}
}

// parse reads the first line: cpu user nice system idle iowait irq softirq steal, of which guests' time is a part.
func parse(stat string) (s sample, ok bool) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return sample{}, false
	}
	for i, f := range fields[1:9] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return sample{}, false
		}
		s.total += n
		if i == 7 {
			s.stolen = n
		}
	}
	return s, true
}

// stolen is the share of the cores' time that was stolen between the samples around from and to, 0 where there are none.
func (m *machine) stolen(from, to time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.samples) == 0 {
		return 0
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	for _, s := range m.samples {
		if !s.at.After(from) {
			first = s
		}
		if !s.at.Before(to) {
			last = s
			break
		}
	}
	if last.total <= first.total {
		return 0
	}
	return float64(last.stolen-first.stolen) / float64(last.total-first.total)
}
