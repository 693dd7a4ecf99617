package dlx

import (
	"math"
	"reflect"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

func withDeaths(t *testing.T, v any) amqp.RawProperties {
	t.Helper()
	raw, err := amqp.Rewrite(nil, func(p *amqp.Properties) {
		p.SetHeaders(amqp.Table{{Name: "x-death", Value: v}})
		p.SetExpiration("90")
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A history that was rendered, and came back in a client's message, goes on.
func TestContinuedHistory(t *testing.T) {
	old := []Death{
		{Queue: "wait", Reason: Expired, Count: 4, FirstMillis: 7000, LastMillis: 7000, Exchange: "x", RoutingKeys: []string{"k", "cc"}, OriginalExpiration: "30", HasExpiration: true},
		{Queue: "work", Reason: Rejected, Count: 2, FirstMillis: 5000, LastMillis: 5000, RoutingKeys: []string{"k"}},
	}
	letter := Letter{Exchange: "y", RoutingKeys: []string{"k"}, Properties: withDeaths(t, renderDeaths(old))}
	dying := Dying{Queue: "wait", Reason: Expired, TimeMillis: 9000}
	got, err := Dead(letter, dying, &queue.Settings{DeadLetter: true, ContinueHistory: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []Death{old[0], old[1]}
	want[0].Count, want[0].LastMillis, want[0].OriginalExpiration = 5, 9000, "90"
	want[1].Redriven = true
	want[0].Before, want[1].Before = 4, 2
	if !reflect.DeepEqual(got.Deaths, want) {
		t.Errorf("got  %+v\nwant %+v", got.Deaths, want)
	}
	if n := Hops(got.Deaths); n != 1 {
		t.Errorf("%d hops, with those that a client told of", n)
	}
	if Cycle(got.Deaths, Expired, "work") {
		t.Error("a client's history makes a cycle")
	}
	if !Cycle(got.Deaths, Expired, "wait") {
		t.Error("back into the queue in which it expired is no cycle")
	}
	if got, _ = Dead(letter, dying, &queue.Settings{DeadLetter: true}); len(got.Deaths) != 1 || got.Deaths[0].Count != 1 {
		t.Errorf("continued without being asked: %+v", got.Deaths)
	}
	letter.Deaths = []Death{{Queue: "mine", Reason: MaxLen, Count: 1}}
	if got, _ = Dead(letter, dying, &queue.Settings{DeadLetter: true, ContinueHistory: true}); len(got.Deaths) != 2 || got.Deaths[1].Queue != "mine" {
		t.Errorf("the broker's own history gave way: %+v", got.Deaths)
	}
}

func TestBadClientHistory(t *testing.T) {
	entry := func(kv ...any) amqp.Table {
		t := amqp.Table{{Name: "queue", Value: "q"}, {Name: "reason", Value: "expired"}, {Name: "count", Value: int64(1)}}
		for i := 0; i < len(kv); i += 2 {
			t.Set(kv[i].(string), kv[i+1])
		}
		return t
	}
	var many amqp.Array
	for i := range 2 * clientHistoryMax {
		many = append(many, entry("queue", string(rune('a'+i))))
	}
	for name, tc := range map[string]struct {
		v    any
		want int
	}{
		"text":            {"death", 0},
		"entry of text":   {amqp.Array{"death"}, 0},
		"no queue":        {amqp.Array{entry("queue", "")}, 0},
		"queue of number": {amqp.Array{entry("queue", int32(1))}, 0},
		"unknown reason":  {amqp.Array{entry("reason", "boredom")}, 0},
		"no real death":   {amqp.Array{entry("reason", "transaction"), entry("reason", "redrive")}, 0},
		"no count":        {amqp.Array{entry("count", "1")}, 0},
		"count of zero":   {amqp.Array{entry("count", int64(0))}, 0},
		"greatest count":  {amqp.Array{entry("count", int64(math.MaxInt64))}, 1},
		"far future":      {amqp.Array{entry("time", amqp.Timestamp(math.MaxUint64))}, 1},
		"wrong types":     {amqp.Array{entry("time", "now", "routing-keys", "k", "exchange", true, "original-expiration", int32(5))}, 1},
		"twice":           {amqp.Array{entry(), entry()}, 1},
		"very many":       {many, clientHistoryMax},
	} {
		t.Run(name, func(t *testing.T) {
			got := clientHistory(withDeaths(t, tc.v))
			if len(got) != tc.want {
				t.Errorf("got %+v", got)
			}
			letter := Letter{RoutingKeys: []string{"k"}, Properties: withDeaths(t, tc.v)}
			d, err := Dead(letter, Dying{Queue: "q", Reason: Expired}, &queue.Settings{ContinueHistory: true})
			if err != nil || d.Deaths[0].Queue != "q" || int64(d.Deaths[0].Count) < 1 || d.Deaths[0].FirstMillis < 0 {
				t.Errorf("%+v, %v", d.Deaths, err)
			}
		})
	}
}
