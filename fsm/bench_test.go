package fsm

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// publishEntry is an entry of n publishes from node 1, first being the sequence
// of the first. Bodies have sizes from low to high.
func publishEntry(first uint64, n, low, high int) []byte {
	random := rand.New(rand.NewPCG(first, 1))
	s := Stream{Origin: Origin{1, 1}, First: first, AnsweredUpTo: first - 1}
	for range n {
		m := Message{Exchange: "orders", RoutingKeys: []string{"orders.new"}, Properties: []byte{0x10, 0, 2}, Body: make([]byte, low+random.IntN(high-low+1))}
		s.Ops = append(s.Ops, Publish{TTLMillis: -1, Message: EncodeMessage(nil, &m), BodyBytes: uint32(len(m.Body))})
	}
	return EncodeEntry(nil, &Entry{Session: 1, Ordinal: 2, TimeMillis: 1_700_000_000_000, Commands: []Command{s}})
}

// patchFirst overwrites a first sequence that was encoded as patchable with another,
// so that a few entries, warm as they are in life, serve a whole benchmark.
func patchFirst(at []byte, first uint64) {
	for k := range 5 {
		at[k] = byte(first>>(7*k))&0x7f | 0x80
	}
	at[4] &= 0x7f
}

const patchable = 1<<34 - 12345

func settleEntry(first queue.MessageID, n int) []byte {
	return EncodeEntry(nil, &Entry{TimeMillis: 1_700_000_000_000, Commands: []Command{Return{Ack, []Run{{first, uint32(n), 0}}}}})
}

// BenchmarkApplyPublishAndAck applies an entry of 256 publishes of 1 KiB and one
// that acknowledges them in one run: one op is 256 messages through the machine.
func BenchmarkApplyPublishAndAck(b *testing.B) { benchmarkPublish(b, true) }

// BenchmarkApplyPublish256 lets the backlog grow.
func BenchmarkApplyPublish256(b *testing.B) { benchmarkPublish(b, false) }

func benchmarkPublish(b *testing.B, ack bool) {
	const n = 256
	data := publishEntry(patchable, n, 1024, 1024)
	at := bytes.Index(data, binary.AppendUvarint(nil, patchable))
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	m, index := New(), uint64(0)
	for seq := uint64(1); b.Loop(); seq += n {
		patchFirst(data[at:], seq)
		index++
		res := m.Apply(index, data)
		if !ack {
			continue
		}
		index++
		m.Apply(index, settleEntry(res.Enqueued.First, n))
	}
	if _, seq, _ := m.Watermark(1); seq != index*n && !ack {
		b.Fatalf("watermark %d after %d entries", seq, index)
	}
}

func BenchmarkApplySettle256(b *testing.B) {
	b.Run("one-run", func(b *testing.B) { benchmarkSettle(b, []Run{{1, 256, 0}}) })
	// Two consumers take turns: the entry has the acknowledgements of both.
	var runs []Run
	for _, first := range []queue.MessageID{1, 2} {
		for id := first; id <= 256; id += 2 {
			runs = append(runs, Run{id, 1, 0})
		}
	}
	b.Run("single-messages", func(b *testing.B) { benchmarkSettle(b, runs) })
}

func benchmarkSettle(b *testing.B, runs []Run) {
	const n, entries = 256, 1024
	full := New()
	for i := range entries {
		full.Apply(uint64(i+1), publishEntry(uint64(i)*n+1, n, 1024, 1024))
	}
	shot := full.Snapshot()
	var settles [][]byte
	for i := range entries {
		moved := slices.Clone(runs)
		for k := range moved {
			moved[k].First += queue.MessageID(i * n)
		}
		settles = append(settles, EncodeEntry(nil, &Entry{Session: full.session, Commands: []Command{Return{Ack, moved}}}))
	}
	b.ReportAllocs()
	m, k := full, 0
	defer func() {
		if got := m.Queue().Len(); got != (entries-k)*n {
			b.Fatalf("%d live after %d entries", got, k)
		}
	}()
	for b.Loop() {
		if k == entries {
			b.StopTimer()
			m, _ = Restore(shot)
			k = 0
			b.StartTimer()
		}
		m.Apply(uint64(entries+k+1), settles[k])
		k++
	}
}

// BenchmarkApplyOne is a queue that stays short: one message in, one out.
func BenchmarkApplyOne(b *testing.B) {
	m := New()
	msg := EncodeMessage(nil, &Message{RoutingKeys: []string{"q"}, Body: make([]byte, 100)})
	b.ReportAllocs()
	var buf []byte
	for seq, index := uint64(1), uint64(1); b.Loop(); seq, index = seq+1, index+2 {
		buf = EncodeEntry(buf[:0], &Entry{Commands: []Command{Stream{Origin: Origin{1, 1}, First: seq, Ops: []Op{Publish{TTLMillis: -1, Message: msg, BodyBytes: 100}}}}})
		m.Apply(index, buf)
		buf = EncodeEntry(buf[:0], &Entry{Commands: []Command{Return{Ack, []Run{{queue.MessageID(seq), 1, 0}}}}})
		m.Apply(index+1, buf)
	}
}

// BenchmarkBacklog measures what a backlog of a million messages takes in memory
// and in a manifest.
func BenchmarkBacklog(b *testing.B) {
	for _, c := range []struct {
		name      string
		batch     int
		low, high int
	}{
		{"batch=256/size=1024", 256, 1024, 1024},
		{"batch=256/size=100-4000", 256, 100, 4000},
		{"batch=1/size=1024", 1, 1024, 1024},
		{"batch=1/size=100-4000", 1, 100, 4000},
	} {
		b.Run(c.name, func(b *testing.B) {
			const n = 1 << 20
			var memory, manifest, capture float64
			for b.Loop() {
				before := heap()
				m := New()
				for i := 0; i < n/c.batch; i++ {
					m.Apply(uint64(i+1), publishEntry(uint64(i*c.batch)+1, c.batch, c.low, c.high))
				}
				memory = float64(heap()-before) / n
				manifest = float64(len(m.Snapshot())) / n
				capture = float64(len(m.Pins()))
				runtime.KeepAlive(m)
			}
			b.ReportMetric(memory, "heap-B/msg")
			b.ReportMetric(manifest, "manifest-B/msg")
			b.ReportMetric(capture, "pins")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func BenchmarkCaptureMillion(b *testing.B) {
	m := New()
	for i := range 4096 {
		m.Apply(uint64(i+1), publishEntry(uint64(i*256)+1, 256, 100, 400))
	}
	b.Run("capture", func(b *testing.B) {
		for b.Loop() {
			m.Capture()
		}
	})
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			m.Capture()()
		}
	})
	shot := m.Snapshot()
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			if _, err := Restore(shot); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("purge", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			x, _ := Restore(shot)
			b.StartTimer()
			x.Apply(1<<40, EncodeEntry(nil, &Entry{Commands: []Command{Close{}}}))
		}
	})
}

// BenchmarkOutboxMillion measures a million dead messages on their way to one
// target: what they take in memory and what the steps cost for each.
func BenchmarkOutboxMillion(b *testing.B) {
	const n, batch = 1 << 20, 256
	for b.Loop() {
		m := New()
		index := uint64(0)
		apply := func(cmds ...Command) {
			index++
			m.Apply(index, EncodeEntry(nil, &Entry{CatalogRev: 1, Commands: cmds}))
		}
		apply(SetSettings{Revision: 1, Settings: queue.Settings{DeadLetter: true, MessageTTLMillis: -1, DeliveryLimit: -1}})
		before := heap()
		for i := range n / batch {
			index++
			m.Apply(index, publishEntry(uint64(i*batch+1), batch, 100, 400))
			apply(Return{Discard, []Run{{queue.MessageID(i*batch + 1), batch, 0}}})
			r := Route{}
			for k := range batch {
				r.Items = append(r.Items, to(OutboxID(i*batch+k+1), 7))
			}
			apply(r)
		}
		b.ReportMetric(float64(heap()-before)/n, "heap-B/item")
		b.ReportMetric(float64(len(m.Snapshot()))/n, "manifest-B/item")
		for i := range n / batch {
			apply(TransferDone{Target: 7, UpTo: uint64(i+1) * batch})
		}
		if m.Outbox().Len() > 0 {
			b.Fatal("the outbox is not empty")
		}
	}
}
