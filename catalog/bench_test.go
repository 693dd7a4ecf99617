package catalog

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

const benchQueues = 10_000

// benchScript is a vhost of 10,000 queues, each bound to a direct, a topic and a fanout
// exchange.
func benchScript(b *testing.B) *script {
	b.Helper()
	s := newScript(b)
	s.ok(declareX("front", exchange.Fanout))
	s.ok(chain("front", "amq.topic"))
	for i := range benchQueues {
		name := fmt.Sprintf("queue-%d", i)
		s.ok(declare(name))
		s.ok(bind("amq.direct", name, fmt.Sprintf("key-%d", i)))
		s.ok(bind("amq.topic", name, fmt.Sprintf("site.%d.*", i)))
		s.ok(bind("amq.fanout", name, ""))
	}
	return s
}

func BenchmarkRoute(b *testing.B) {
	v := benchScript(b).view()
	for _, c := range []struct {
		name, exchange, key string
		want                int
	}{
		{"default", "", "queue-7777", 1},
		{"direct", "amq.direct", "key-7777", 1},
		{"topic", "amq.topic", "site.7777.temperature", 1},
		{"exchange-to-exchange", "front", "site.7777.temperature", 1},
		{"nowhere", "amq.direct", "nobody", 0},
		{"fanout-10000", "amq.fanout", "", benchQueues},
	} {
		b.Run(c.name, func(b *testing.B) {
			var dst []*Queue
			keys := []string{c.key}
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = v.Route("/", c.exchange, keys, nil, dst[:0]); err != nil {
					b.Fatal(err)
				}
			}
			if len(dst) != c.want {
				b.Fatalf("%d queues, want %d", len(dst), c.want)
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	s := benchScript(b)
	for name, make := range map[string]func(i int) []Command{
		"declare+delete+gone": func(i int) []Command {
			return []Command{declare("one-more"), &DeleteQueue{Vhost: "/", Name: "one-more"}, &QueueGone{ID: s.i + 1}}
		},
		"bind+unbind-direct": func(i int) []Command {
			c := bind("amq.direct", "queue-1", "another")
			return []Command{c, &Unbind{c.Binding}}
		},
		"bind+unbind-topic": func(i int) []Command {
			c := bind("amq.topic", "queue-1", "another.#.key")
			return []Command{c, &Unbind{c.Binding}}
		},
		"bind+unbind-fanout": func(i int) []Command {
			c := bind("amq.fanout", "queue-1", "another")
			c.Binding.Arguments = amqp.Table{{Name: "n", Value: int32(1)}}
			return []Command{c, &Unbind{c.Binding}}
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for _, c := range make(i) {
					s.ok(c)
				}
			}
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s := benchScript(b)
	raw := snapshotBytes(b, s.m)
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			snapshotBytes(b, s.m)
		}
		b.ReportMetric(float64(len(raw)), "bytes")
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := readSnapshot(bytes.NewReader(raw)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSnapshotOfMany is what a snapshot costs that is due every 8,192 entries: the machine stands still for "take", while the others run beside
// it. Each queue has one binding.
func BenchmarkSnapshotOfMany(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		s := newScript(b)
		for i := range n {
			name := fmt.Sprintf("queue-%d", i)
			s.ok(declare(name))
			s.ok(bind("amq.topic", name, fmt.Sprintf("site.%d.*", i)))
		}
		raw := snapshotBytes(b, s.m)
		run := func(name string, f func() error) {
			b.Run(fmt.Sprintf("%s/queues=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(raw)), "bytes")
			})
		}
		run("take", func() error {
			_, err := fsm{s.m}.Snapshot()
			return err
		})
		run("write", func() error {
			return (&snapshot{view: s.view(), requests: s.m.requests.save()}).write(io.Discard)
		})
		run("read", func() error {
			_, _, err := readSnapshot(bytes.NewReader(raw))
			return err
		})
	}
}

// BenchmarkCompact is what cutting the log of so many entries costs: nothing is appended meanwhile.
func BenchmarkCompact(b *testing.B) {
	for _, n := range []uint64{8192, 65536} {
		b.Run(fmt.Sprint("entries=", n), func(b *testing.B) {
			bolt, err := openBolt(filepath.Join(b.TempDir(), "log.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer bolt.Close()
			store := &guardedStore{durable: bolt}
			next := uint64(1)
			fill := func() {
				for end := next + n; next < end; {
					var logs []*raft.Log
					for range 256 {
						logs = append(logs, &raft.Log{Index: next, Term: 1, Data: make([]byte, 200)})
						next++
					}
					if err := store.StoreLogs(logs); err != nil {
						b.Fatal(err)
					}
				}
			}
			fill()
			for b.Loop() {
				b.StopTimer()
				first := next - n
				fill()
				b.StartTimer()
				if err := store.DeleteRange(first, first+n-1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
