package dlx

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// TestShorten leaves out the oldest deaths, as few as it takes, and nothing else.
func TestShorten(t *testing.T) {
	own, err := amqp.Rewrite(nil, func(p *amqp.Properties) {
		p.SetHeaders(amqp.Table{{Name: "own", Value: "kept"}})
		p.SetMessageID("id")
	})
	if err != nil {
		t.Fatal(err)
	}
	deaths := make([]Death, 9)
	for i := range deaths {
		deaths[i] = Death{Queue: string(rune('a' + i)), Reason: Rejected, Count: 1, Exchange: "in", RoutingKeys: []string{"key"}}
	}
	render := func(n int) amqp.RawProperties {
		raw, err := AppendHeaders(nil, own, deaths[:n], "in", false)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	// The first death's headers are as long for each of them.
	whole := render(len(deaths))
	for n := 1; n <= len(deaths); n++ {
		size := len(render(n))
		for _, room := range []int{size, size + 1} {
			short, ok := Shorten(whole, room)
			if !ok || len(short) != size {
				t.Fatalf("%d bytes: %t, %d, want %d", room, ok, len(short), size)
			}
			p, err := amqp.DecodeProperties(short)
			headers, _ := p.Headers()
			list, _ := headers.Get(headerDeaths)
			newest, _ := list.(amqp.Array)[0].(amqp.Table).Get("queue")
			mine, _ := headers.Get("own")
			first, _ := headers.Get("x-first-death-queue")
			id, _ := p.MessageID()
			if err != nil || len(list.(amqp.Array)) != n || newest != "a" || mine != "kept" || first != "i" || id != "id" {
				t.Errorf("%d bytes: %v, %v", room, err, headers)
			}
		}
	}
	if short, ok := Shorten(own, len(own)-1); ok || !slices.Equal(short, own) {
		t.Error("there are no deaths to leave out")
	}
	if short, ok := Shorten(own, len(own)); !ok || !slices.Equal(short, own) {
		t.Error("it fits")
	}
}

// TestShortenTheNewest: where not even one death has room, less and less is said of it, down to the message as it was published.
func TestShortenTheNewest(t *testing.T) {
	own, err := amqp.Rewrite(nil, func(p *amqp.Properties) { p.SetHeaders(amqp.Table{{Name: "own", Value: "kept"}}) })
	if err != nil {
		t.Fatal(err)
	}
	d := Death{Queue: "q", Reason: Rejected, Count: 3, Exchange: "in", RoutingKeys: []string{"key", "cc", "another cc"}}
	raw, err := AppendHeaders(nil, own, []Death{d}, "in", true)
	if err != nil {
		t.Fatal(err)
	}
	for size, seen := len(raw)-1, 0; size >= len(own); size-- {
		short, ok := Shorten(raw, size)
		p, err := amqp.DecodeProperties(short)
		if !ok || len(short) > size || err != nil {
			t.Fatalf("%d bytes: %t, %d, %v", size, ok, len(short), err)
		}
		headers, _ := p.Headers()
		_, first := headers.Get("x-first-death-queue")
		_, last := headers.Get("x-last-death-exchange")
		_, total := headers.Get("x-death-total")
		v, deaths := headers.Get(headerDeaths)
		stage := 2
		switch {
		case deaths && first && last && total:
			stage = 0
		case deaths && !first && !last && total:
			stage = 1
		case deaths || first || last || total:
			t.Fatalf("%d bytes: %v", size, headers)
		}
		if deaths {
			entry, _ := v.(amqp.Array)[0].(amqp.Table)
			keys, _ := entry.Get("routing-keys")
			if count, _ := entry.Get("count"); count != int64(3) || len(keys.(amqp.Array)) != 1 {
				t.Fatalf("%d bytes: %v", size, headers)
			}
		}
		if mine, _ := headers.Get("own"); mine != "kept" || stage < seen {
			t.Fatalf("%d bytes: stage %d after %d, %v", size, stage, seen, headers)
		}
		seen = stage
	}
	if short, ok := Shorten(raw, len(own)-1); ok || !slices.Equal(short, raw) {
		t.Error("there is nothing left to leave out")
	}
}
