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
		raw, err := AppendHeaders(nil, own, deaths[:n], false)
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
	if short, ok := Shorten(whole, len(render(1))-1); ok || !slices.Equal(short, whole) {
		t.Error("the newest death was left out")
	}
	if short, ok := Shorten(own, len(own)-1); ok || !slices.Equal(short, own) {
		t.Error("there are no deaths to leave out")
	}
	if short, ok := Shorten(own, len(own)); !ok || !slices.Equal(short, own) {
		t.Error("it fits")
	}
}
