package amqp

import (
	"bytes"
	"io"
	"testing"
)

// loop replays a stream for ever.
type loop struct {
	stream []byte
	at     int
}

func (l *loop) Read(b []byte) (int, error) {
	n := copy(b, l.stream[l.at:])
	l.at = (l.at + n) % len(l.stream)
	return n, nil
}

var publishFixture = &BasicPublish{Exchange: "orders", RoutingKey: "eu.created", Mandatory: true}

func deliverFixture() *BasicDeliver {
	return &BasicDeliver{ConsumerTag: "amq.ctag-0123456789abcdef", DeliveryTag: 77, Exchange: "orders", RoutingKey: "eu.created"}
}

func propertiesFixture() RawProperties {
	p := new(Properties)
	p.SetContentType("application/json")
	p.SetHeaders(Table{{Name: "tenant", Value: "blue"}, {Name: "attempt", Value: int32(1)}})
	p.SetDeliveryMode(2)
	p.SetExpiration("60000")
	p.SetMessageID("0123456789abcdef")
	return p.AppendTo(nil)
}

func BenchmarkDecode(b *testing.B) {
	for _, m := range []Method{publishFixture, deliverFixture(), &BasicAck{DeliveryTag: 9}, &QueueDeclare{Queue: "q", Arguments: everyType()}} {
		payload := m.AppendTo(nil)
		b.Run(m.Name(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeInto(b *testing.B) {
	for _, m := range []Method{publishFixture, deliverFixture(), &BasicAck{DeliveryTag: 9}} {
		payload := m.AppendTo(nil)
		reused := newMethod(b, m.ID())
		b.Run(m.Name(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := reused.Decode(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendFrame(b *testing.B) {
	dst := make([]byte, 0, 4096)
	b.Run("basic.publish", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m := BasicPublish{Exchange: "orders", RoutingKey: "eu.created"}
			dst = m.AppendFrame(dst[:0], 1)
		}
	})
	b.Run("basic.deliver", func(b *testing.B) {
		tag := uint64(0)
		b.ReportAllocs()
		for b.Loop() {
			tag++
			m := BasicDeliver{ConsumerTag: "amq.ctag-0123456789abcdef", DeliveryTag: tag, Exchange: "orders", RoutingKey: "eu.created"}
			dst = m.AppendFrame(dst[:0], 1)
		}
	})
	b.Run("basic.ack", func(b *testing.B) {
		tag := uint64(0)
		b.ReportAllocs()
		for b.Loop() {
			tag++
			m := BasicAck{DeliveryTag: tag}
			dst = m.AppendFrame(dst[:0], 1)
		}
	})
}

// BenchmarkPublishPath reads method, header and body of a publish with 1 KiB, the
// way a gateway does.
func BenchmarkPublishPath(b *testing.B) {
	stream := AppendMethodFrame(nil, 1, publishFixture)
	stream = AppendContent(stream, 1, ClassBasic, propertiesFixture(), make([]byte, 1024), 131072)
	fr := NewFrameReader(&loop{stream: bytes.Repeat(stream, 50)})
	fr.SetMax(131072)
	var m BasicPublish
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		f, err := fr.Next()
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Decode(f.Payload); err != nil {
			b.Fatal(err)
		}
		if f, err = fr.Next(); err != nil {
			b.Fatal(err)
		}
		h, err := ParseContentHeader(f.Payload)
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Properties.Validate(); err != nil {
			b.Fatal(err)
		}
		if _, ok := h.Properties.Header("CC"); ok {
			b.Fatal("unexpected CC")
		}
		if _, err = fr.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDeliverPath writes method, header and body of a delivery with 1 KiB.
func BenchmarkDeliverPath(b *testing.B) {
	raw, body := propertiesFixture(), make([]byte, 1024)
	dst := make([]byte, 0, 4096)
	tag := uint64(0)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		tag++
		m := BasicDeliver{ConsumerTag: "amq.ctag-0123456789abcdef", DeliveryTag: tag, Exchange: "orders", RoutingKey: "eu.created"}
		dst = m.AppendFrame(dst[:0], 1)
		dst = AppendContent(dst, 1, ClassBasic, raw, body, 131072)
	}
}

func BenchmarkAckPath(b *testing.B) {
	fr := NewFrameReader(&loop{stream: bytes.Repeat(AppendMethodFrame(nil, 1, &BasicAck{DeliveryTag: 1 << 40}), 100)})
	var m BasicAck
	b.ReportAllocs()
	for b.Loop() {
		f, err := fr.Next()
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Decode(f.Payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProperties(b *testing.B) {
	raw := propertiesFixture()
	b.Run("validate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := raw.Validate(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("priority", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := raw.Priority(); ok {
				b.Fatal("unexpected priority")
			}
		}
	})
	b.Run("expiration", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if v, ok := raw.Expiration(); !ok || v != "60000" {
				b.Fatal("wrong expiration")
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeProperties(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rewrite", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Rewrite(raw, func(p *Properties) { p.Remove(PropExpiration) }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("without", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(raw.Without(PropExpiration)) == len(raw) {
				b.Fatal("nothing removed")
			}
		}
	})
}

func BenchmarkTable(b *testing.B) {
	tab := everyType()
	raw := AppendTable(nil, tab)
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeTable(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append", func(b *testing.B) {
		dst := make([]byte, 0, len(raw))
		b.ReportAllocs()
		for b.Loop() {
			dst = AppendTable(dst[:0], tab)
		}
	})
}

// TestHotPathsDoNotAllocate pins what the benchmarks show: publishes, deliveries and
// acknowledgements pass without a heap allocation.
func TestHotPathsDoNotAllocate(t *testing.T) {
	publish, ack := publishFixture.AppendTo(nil), (&BasicAck{DeliveryTag: 1}).AppendTo(nil)
	raw, body := propertiesFixture(), make([]byte, 1024)
	header := AppendContentHeader(nil, 1, ClassBasic, raw, 9)[frameHeadBytes:]
	header = header[:len(header)-1]
	dst := make([]byte, 0, 8192)
	stream := &loop{stream: AppendContent(AppendMethodFrame(nil, 1, publishFixture), 1, ClassBasic, raw, body, 4096)}
	fr := NewFrameReader(stream)
	var p BasicPublish
	var a BasicAck
	for range 100 { // let the reader find its buffer size
		if _, err := fr.Next(); err != nil {
			t.Fatal(err)
		}
	}
	paths := map[string]func() error{
		"read a frame": func() error { _, err := fr.Next(); return err },
		"publish":      func() error { return p.Decode(publish) },
		"ack":          func() error { return a.Decode(ack) },
		"content header": func() error {
			h, err := ParseContentHeader(header)
			if err != nil {
				return err
			}
			if _, ok := h.Properties.DeliveryMode(); !ok {
				return io.ErrUnexpectedEOF
			}
			h.Properties.Header("CC")
			return h.Properties.Validate()
		},
		"deliver": func() error {
			m := BasicDeliver{ConsumerTag: "t", DeliveryTag: 1, Exchange: "e", RoutingKey: "k"}
			dst = m.AppendFrame(dst[:0], 1)
			dst = AppendContent(dst, 1, ClassBasic, raw, body, 4096)
			return nil
		},
		"confirm": func() error {
			m := BasicAck{DeliveryTag: 1}
			dst = m.AppendFrame(dst[:0], 1)
			return nil
		},
	}
	for name, path := range paths {
		var failed error
		if n := testing.AllocsPerRun(100, func() {
			if err := path(); err != nil {
				failed = err
			}
		}); n != 0 || failed != nil {
			t.Errorf("%s: got %v allocations, %v; want none", name, n, failed)
		}
	}
}
