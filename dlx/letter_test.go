package dlx

import (
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// dlxSettings dead-letter to "dlx", with a key if one is given.
func dlxSettings(key ...string) *queue.Settings {
	s := &queue.Settings{DeadLetter: true, DeadLetterExchange: "dlx"}
	if len(key) > 0 {
		s.DeadLetterRoutingKey, s.DeadLetterKeySet = key[0], true
	}
	return s
}

func letter(t *testing.T, edit func(*amqp.Properties)) Letter {
	t.Helper()
	raw, err := amqp.Rewrite(nil, edit)
	if err != nil {
		t.Fatal(err)
	}
	return Letter{Exchange: "in", RoutingKeys: []string{"a", "cc", "bcc"}, BCC: 1, Properties: raw}
}

func dead(t *testing.T, l Letter, queueName string, r Reason, timeMillis int64, s *queue.Settings) Letter {
	t.Helper()
	before := slices.Clone(l.Properties)
	out, err := Dead(l, Dying{Queue: queueName, Reason: r, TimeMillis: timeMillis}, s)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, l.Properties) {
		t.Fatal("the given properties changed")
	}
	return out
}

func headers(t *testing.T, l Letter) amqp.Table {
	t.Helper()
	h, ok, err := amqp.RawProperties(l.Properties).Headers()
	if err != nil || !ok {
		t.Fatalf("headers: %v, present %t", err, ok)
	}
	return h
}

func wantHeader(t *testing.T, h amqp.Table, name string, want any) {
	t.Helper()
	if got, ok := h.Get(name); !ok || !amqp.EqualValues(got, want) {
		t.Fatalf("header %s: got %#v, want %#v", name, got, want)
	}
}

func TestFirstDeathRendersExactly(t *testing.T) {
	l := letter(t, func(p *amqp.Properties) {
		p.SetExpiration("2500")
		p.SetContentType("text/plain")
		p.SetHeaders(amqp.Table{{Name: "mine", Value: int32(4)}})
	})
	out := dead(t, l, "q", Expired, 1_700_000_001_999, dlxSettings())
	h := headers(t, out)
	wantHeader(t, h, "x-death", amqp.Array{amqp.Table{
		{Name: "original-expiration", Value: "2500"},
		{Name: "count", Value: int64(1)},
		{Name: "reason", Value: "expired"},
		{Name: "queue", Value: "q"},
		{Name: "time", Value: amqp.Timestamp(1_700_000_001)},
		{Name: "exchange", Value: "in"},
		{Name: "routing-keys", Value: amqp.Array{"a", "cc"}},
	}})
	wantHeader(t, h, "mine", int32(4))
	for name, want := range map[string]string{"queue": "q", "reason": "expired", "exchange": "in"} {
		wantHeader(t, h, "x-first-death-"+name, want)
		wantHeader(t, h, "x-last-death-"+name, want)
	}
	if len(h) != 8 {
		t.Fatalf("%d headers: %v", len(h), h)
	}
	raw := amqp.RawProperties(out.Properties)
	if _, ok := raw.Expiration(); ok {
		t.Fatal("expiration is still there")
	}
	if v, _ := raw.ContentType(); v != "text/plain" {
		t.Fatalf("content type %q", v)
	}
	if out.Exchange != "dlx" || !slices.Equal(out.RoutingKeys, []string{"a", "cc", "bcc"}) || out.BCC != 1 {
		t.Fatalf("leaves for %q by %q, %d BCC", out.Exchange, out.RoutingKeys, out.BCC)
	}
}

func TestConfiguredKeyReplacesAllKeys(t *testing.T) {
	for _, key := range []string{"dead", ""} {
		out := dead(t, letter(t, func(*amqp.Properties) {}), "q", Rejected, 1, dlxSettings(key))
		if !slices.Equal(out.RoutingKeys, []string{key}) || out.BCC != 0 {
			t.Fatalf("key %q: leaves by %q, %d BCC", key, out.RoutingKeys, out.BCC)
		}
	}
}

func TestFirstDeathHeadersStayAndLastChange(t *testing.T) {
	l := letter(t, func(p *amqp.Properties) { p.SetHeaders(amqp.Table{{Name: "CC", Value: "stays"}}) })
	l = dead(t, l, "q", Rejected, 5000, dlxSettings("k1"))
	wantHeader(t, headers(t, l), "CC", "stays") // RabbitMQ removes it beside a key up to 3.12, and keeps it from 3.13 on
	l = dead(t, l, "w", Expired, 5000, dlxSettings("k2"))
	l = dead(t, l, "q", Rejected, 5000, dlxSettings("k1"))
	h := headers(t, l)
	wantHeader(t, h, "x-first-death-queue", "q")
	wantHeader(t, h, "x-first-death-reason", "rejected")
	wantHeader(t, h, "x-first-death-exchange", "in")
	wantHeader(t, h, "x-last-death-queue", "q")
	wantHeader(t, h, "x-last-death-reason", "rejected")
	wantHeader(t, h, "x-last-death-exchange", "dlx") // the record has the first one, "in"
	l = dead(t, l, "w", MaxLen, 9000, dlxSettings())
	h = headers(t, l)
	wantHeader(t, h, "x-first-death-queue", "q")
	wantHeader(t, h, "x-last-death-queue", "w")
	wantHeader(t, h, "x-last-death-reason", "maxlen")
	wantHeader(t, h, "x-last-death-exchange", "dlx")
	if show(l.Deaths) != "w/maxlen*1 q/rejected*2 w/expired*1" {
		t.Fatalf("history %s", show(l.Deaths))
	}
	if l.Deaths[1].RoutingKeys[0] != "a" || l.Deaths[2].RoutingKeys[0] != "k1" {
		t.Fatalf("records keep keys %v and %v", l.Deaths[1].RoutingKeys, l.Deaths[2].RoutingKeys)
	}
}

// Only the record of the death that removed the expiration tells it (D34, D35).
func TestOriginalExpirationOnlyWhereItWas(t *testing.T) {
	l := letter(t, func(p *amqp.Properties) { p.SetExpiration("7") })
	l = dead(t, l, "q", Rejected, 1000, dlxSettings())
	l = dead(t, l, "w", Expired, 2000, dlxSettings())
	deaths, _ := headers(t, l).Get("x-death")
	newest, older := deaths.(amqp.Array)[0].(amqp.Table), deaths.(amqp.Array)[1].(amqp.Table)
	if _, ok := newest.Get("original-expiration"); ok {
		t.Fatal("the second death has an expiration")
	}
	if v, _ := older.Get("original-expiration"); v != "7" {
		t.Fatalf("original-expiration %v", v)
	}
	if a, _ := older.Get("time"); a.(amqp.Timestamp) != 1 {
		t.Fatalf("time %v", a)
	}
}

// A message that a client publishes again has no history of the server's, whatever
// headers it copied (D36, D37).
func TestClientHeadersGiveWay(t *testing.T) {
	for name, value := range map[string]any{"string": "boo", "number": int32(3), "own history": amqp.Array{amqp.Table{{Name: "count", Value: int64(12)}}}} {
		t.Run(name, func(t *testing.T) {
			l := letter(t, func(p *amqp.Properties) {
				p.SetHeaders(amqp.Table{
					{Name: "x-death", Value: value},
					{Name: "x-first-death-queue", Value: "old"},
					{Name: "x-first-death-reason", Value: "expired"},
					{Name: "x-last-death-queue", Value: int32(1)},
				})
			})
			h := headers(t, dead(t, l, "q", Rejected, 1000, dlxSettings()))
			deaths, _ := h.Get("x-death")
			list, ok := deaths.(amqp.Array)
			if !ok || len(list) != 1 {
				t.Fatalf("x-death %v", deaths)
			}
			if n, _ := list[0].(amqp.Table).Get("count"); n != int64(1) {
				t.Fatalf("count %v", n)
			}
			wantHeader(t, h, "x-first-death-queue", "q")
			wantHeader(t, h, "x-first-death-reason", "rejected")
			wantHeader(t, h, "x-last-death-queue", "q")
		})
	}
}

func TestDamagedPropertiesAreReplaced(t *testing.T) {
	l := Letter{Exchange: "in", RoutingKeys: []string{"a"}, Properties: []byte{0xff, 0xff, 1, 2, 3}}
	out, err := Dead(l, Dying{Queue: "q", Reason: Rejected, TimeMillis: 1}, dlxSettings())
	if err == nil || !strings.Contains(err.Error(), "render deaths") {
		t.Fatalf("error %v", err)
	}
	wantHeader(t, headers(t, out), "x-last-death-queue", "q")
	if _, err := amqp.DecodeProperties(out.Properties); err != nil {
		t.Fatal(err)
	}
}
