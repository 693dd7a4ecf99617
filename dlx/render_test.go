package dlx

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// wantHeaders renders a message's history, which must not be empty, into its
// properties: x-death, x-first-death-* and x-last-death-*, with the expiration
// removed; with total also x-death-total, the sum of the counts. A client's own headers of these names give way. On an error, about raw
// properties that do not decode, the result carries the death headers alone.
func wantHeaders(raw amqp.RawProperties, deaths []Death, through string, total bool) (amqp.RawProperties, error) {
	edit := func(p *amqp.Properties) {
		headers, _ := p.Headers()
		headers = slices.Clone(headers)
		headers.Set(headerDeaths, renderDeaths(deaths))
		// The history begins with this death, or the first one's headers are
		// already there: they came with the properties from the queue before.
		if _, ok := headers.Get("x-first-death-reason"); !ok || len(deaths) == 1 && deaths[0].Count == 1 {
			setDeath(&headers, "x-first-death-", oldest(deaths))
		}
		setDeath(&headers, "x-last-death-", &deaths[0])
		headers.Set("x-last-death-exchange", through)
		if total {
			headers.Set("x-death-total", deathTotal(deaths))
		}
		p.SetHeaders(headers)
		p.Remove(amqp.PropExpiration)
	}
	out, err := amqp.Rewrite(raw, edit)
	if err != nil {
		fresh, _ := amqp.Rewrite(nil, edit)
		return fresh, fmt.Errorf("render deaths: %w", err)
	}
	return out, nil
}

func setDeath(headers *amqp.Table, prefix string, d *Death) {
	headers.Set(prefix+"queue", d.Queue)
	headers.Set(prefix+"reason", d.Reason.String())
	headers.Set(prefix+"exchange", d.Exchange)
}

func renderDeaths(deaths []Death) amqp.Array {
	list := make(amqp.Array, len(deaths))
	for i := range deaths {
		d := &deaths[i]
		t := make(amqp.Table, 0, 7)
		if d.HasExpiration {
			t = append(t, amqp.Field{Name: "original-expiration", Value: d.OriginalExpiration})
		}
		keys := make(amqp.Array, len(d.RoutingKeys))
		for k, key := range d.RoutingKeys {
			keys[k] = key
		}
		list[i] = append(t,
			amqp.Field{Name: "count", Value: int64(d.Count)},
			amqp.Field{Name: "reason", Value: d.Reason.String()},
			amqp.Field{Name: "queue", Value: d.Queue},
			amqp.Field{Name: "time", Value: amqp.Timestamp(max(d.FirstMillis, 0) / 1000)},
			amqp.Field{Name: "exchange", Value: d.Exchange},
			amqp.Field{Name: "routing-keys", Value: keys},
		)
	}
	return list
}

// histories are of all shapes that rendering tells apart.
func histories() [][]Death {
	first := Death{Queue: "q", Reason: Rejected, Count: 1, FirstMillis: 1_700_000_001_999, Exchange: "in", RoutingKeys: []string{"a", "cc"}}
	again := first
	again.Count = 3
	expired := Death{Queue: "w", Reason: Expired, Count: 2, FirstMillis: -5, HasExpiration: true, OriginalExpiration: "2500"}
	return [][]Death{{first}, {again}, {expired}, {again, expired}, {expired, first, again}}
}

// FuzzRenderedAsByTables compares what is written in place with headers that were decoded, changed and
// encoded again, byte by byte.
func FuzzRenderedAsByTables(f *testing.F) {
	own := func(fields ...amqp.Field) []byte {
		raw, err := amqp.Rewrite(nil, func(p *amqp.Properties) {
			p.SetHeaders(fields)
			p.SetContentType("text/plain")
			p.SetExpiration("77")
			p.SetPriority(3)
			p.SetClusterID("c")
		})
		if err != nil {
			f.Fatal(err)
		}
		return raw
	}
	f.Add([]byte(nil))
	f.Add([]byte{0, 0})
	f.Add([]byte{0x20, 0, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 1, 2, 3})
	f.Add([]byte{0x20, 0, 0, 0, 0, 8, 1, 'a', 't', 2, 1, 'a', 't', 2}) // names twice, an odd boolean
	f.Add(own())
	f.Add(own(amqp.Field{Name: "mine", Value: int32(4)}, amqp.Field{Name: "nested", Value: amqp.Table{{Name: "l", Value: amqp.Array{nil, int8(1)}}}}))
	for _, deaths := range histories() {
		for _, total := range []bool{false, true} {
			raw, err := wantHeaders(own(amqp.Field{Name: "x", Value: "y"}), deaths, "in", total)
			if err != nil {
				f.Fatal(err)
			}
			f.Add([]byte(raw))
		}
	}
	f.Add(own(amqp.Field{Name: "x-last-death-queue", Value: int32(1)}, amqp.Field{Name: "x-death", Value: "boo"}, amqp.Field{Name: "x-death", Value: "twice"}))
	f.Add(own(amqp.Field{Name: "x-first-death-reason", Value: "r"}, amqp.Field{Name: "x-death-total", Value: "t"}))
	f.Add(own(amqp.Field{Name: "x-first-death-queue", Value: "r"}, amqp.Field{Name: "x-deaths", Value: "t"}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		for _, deaths := range histories() {
			for _, total := range []bool{false, true} {
				want, wantErr := wantHeaders(raw, deaths, "dlx", total)
				got, err := AppendHeaders([]byte("abc"), raw, deaths, "dlx", total)
				if (err == nil) != (wantErr == nil) {
					t.Fatalf("error %v, want %v", err, wantErr)
				}
				if !bytes.Equal(got, append([]byte("abc"), want...)) {
					t.Fatalf("%x with %v:\ngot  %x\nwant %x", raw, deaths, got[3:], want)
				}
			}
		}
		if !bytes.Equal(raw, before) {
			t.Fatal("the given properties changed")
		}
	})
}

func BenchmarkDead(b *testing.B) {
	raw, err := amqp.Rewrite(nil, func(p *amqp.Properties) {
		p.SetDeliveryMode(2)
		p.SetHeaders(amqp.Table{{Name: "mine", Value: int32(4)}})
	})
	if err != nil {
		b.Fatal(err)
	}
	set := &queue.Settings{DeadLetter: true, DeadLetterExchange: "dlx", DeadLetterRoutingKey: "dead", DeadLetterKeySet: true}
	m := Letter{Exchange: "in", RoutingKeys: []string{"a"}, Properties: raw}
	room := make([]byte, 0, 4096)
	b.Run("room given", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DeadIn(room, m, Dying{Queue: "q", Reason: Rejected, TimeMillis: 1_700_000_001_999}, set); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("by tables", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wantHeaders(raw, histories()[0], "in", false); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A message that dies for the first time costs its record and its new key, nothing for the headers.
func TestRenderingHardlyAllocates(t *testing.T) {
	l := letter(t, func(p *amqp.Properties) { p.SetHeaders(amqp.Table{{Name: "mine", Value: int32(4)}}) })
	set, room := dlxSettings("dead"), make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := DeadIn(room, l, Dying{Queue: "q", Reason: Rejected, TimeMillis: 1_700_000_001_999}, set); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations, want 2", n)
	}
}
