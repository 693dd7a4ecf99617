package dlx

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// history builds a history from deaths in the order in which they happened.
func history(deaths ...string) (h []Death, last Reason) {
	for i, s := range deaths {
		q, r, _ := strings.Cut(s, " ")
		last = reason(r)
		h = Record(h, Death{Queue: q, Reason: last, LastMillis: int64(i+1) * 1000, Exchange: fmt.Sprintf("x%d", i)})
	}
	return h, last
}

func reason(word string) Reason {
	for r := Rejected; r <= DeliveryLimit; r++ {
		if r.String() == word {
			return r
		}
	}
	panic("no reason " + word)
}

// show prints a history newest first.
func show(h []Death) string {
	var parts []string
	for _, d := range h {
		parts = append(parts, fmt.Sprintf("%s/%s*%d", d.Queue, d.Reason, d.Count))
	}
	return strings.Join(parts, " ")
}

func TestRecord(t *testing.T) {
	loop := []string{"a expired", "b expired", "c rejected"}
	for range 9 {
		loop = append(loop, "d rejected")
	}
	for _, c := range []struct {
		name   string
		deaths []string
		want   string
	}{
		{"first", []string{"q rejected"}, "q/rejected*1"},
		{"D31 repeated key moves to the front", []string{"q rejected", "d expired", "q rejected"}, "q/rejected*2 d/expired*1"},
		{"D33 newest first", []string{"a expired", "b expired", "c maxlen"}, "c/maxlen*1 b/expired*1 a/expired*1"},
		{"one queue, two reasons", []string{"q expired", "q rejected", "q expired"}, "q/expired*2 q/rejected*1"},
		{"D38 loop of twelve hops", loop, "d/rejected*9 c/rejected*1 b/expired*1 a/expired*1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if h, _ := history(c.deaths...); show(h) != c.want {
				t.Fatalf("got %s, want %s", show(h), c.want)
			}
		})
	}
}

func TestRecordKeepsFirstValues(t *testing.T) {
	h := Record(nil, Death{
		Queue: "q", Reason: Expired, LastMillis: 1000, Exchange: "first", RoutingKeys: []string{"k"},
		OriginalExpiration: "10", HasExpiration: true,
	})
	h = Record(h, Death{Queue: "w", Reason: Expired, LastMillis: 2000})
	before := slices.Clone(h)
	g := Record(h, Death{Queue: "q", Reason: Expired, LastMillis: 9000, Exchange: "later", RoutingKeys: []string{"l"}})
	d := g[0]
	if d.Count != 2 || d.FirstMillis != 1000 || d.LastMillis != 9000 || d.Exchange != "first" ||
		d.RoutingKeys[0] != "k" || d.OriginalExpiration != "10" || !d.HasExpiration {
		t.Fatalf("got %+v", d)
	}
	for i := range h {
		if show(h[i:i+1]) != show(before[i:i+1]) || h[i].LastMillis != before[i].LastMillis {
			t.Fatalf("the given history changed: %+v", h)
		}
	}
}

func TestCycle(t *testing.T) {
	for _, c := range []struct {
		name   string
		deaths []string
		target string
		want   bool
	}{
		{"D45 expired into itself", []string{"q expired"}, "q", true},
		{"D45 other target of a fan-out", []string{"q expired"}, "r", false},
		{"D46 maxlen into itself", []string{"q maxlen"}, "q", true},
		{"rejected into itself", []string{"q rejected"}, "q", false},
		{"D47 retry loop", []string{"q rejected", "w expired", "q rejected", "w expired"}, "q", false},
		{"D48 two TTL queues", []string{"q expired", "w expired"}, "q", true},
		{"D48 two wait queues after a rejection", []string{"q rejected", "w1 expired", "w2 expired"}, "q", false},
		{"D49 an older rejection is hidden", []string{"q rejected", "q expired", "w expired"}, "q", true},
		{"D49 rejected once, then round by itself", []string{"q rejected", "w expired", "q expired", "w expired"}, "q", true},
		{"D49 w is hidden by no rejection of its own", []string{"q rejected", "w expired", "q expired"}, "w", true},
		{"delivery limit is automatic", []string{"q delivery_limit", "w expired"}, "q", true},
		{"present rejection is never checked", []string{"w expired", "q expired", "w rejected"}, "q", false},
		{"the rejection of another queue on the way counts", []string{"q expired", "r rejected", "w expired"}, "q", false},
		{"never seen", []string{"a expired", "b expired"}, "q", false},
		{"names do not matter", []string{"z expired", "a expired"}, "z", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, last := history(c.deaths...)
			if got := Cycle(h, last, c.target); got != c.want {
				t.Fatalf("history %s, reason %s, target %s: got %t, want %t", show(h), last, c.target, got, c.want)
			}
		})
	}
}

func TestHundredRoundsThroughRetryLoop(t *testing.T) {
	var h []Death
	for i := range 100 {
		h = Record(h, Death{Queue: "q", Reason: Rejected, LastMillis: int64(2 * i)})
		if Cycle(h, Rejected, "w") {
			t.Fatalf("round %d: w is a cycle", i)
		}
		h = Record(h, Death{Queue: "w", Reason: Expired, LastMillis: int64(2*i + 1)})
		if Cycle(h, Expired, "q") {
			t.Fatalf("round %d: q is a cycle", i)
		}
	}
	if show(h) != "w/expired*100 q/rejected*100" {
		t.Fatalf("got %s", show(h))
	}
}

// TestCycleFollowsTheRule compares with the rule as it is written: find the first
// record of the target, look for a rejection up to and including it.
func TestCycleFollowsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h []Death
		var last Reason
		for range rapid.IntRange(1, 12).Draw(t, "deaths") {
			last = Reason(rapid.IntRange(int(Rejected), int(DeliveryLimit)).Draw(t, "reason"))
			h = Record(h, Death{Queue: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "queue"), Reason: last})
		}
		target := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "target")
		want := false
		if i := slices.IndexFunc(h, func(d Death) bool { return d.Queue == target }); last != Rejected && i >= 0 {
			want = !slices.ContainsFunc(h[:i+1], func(d Death) bool { return d.Reason == Rejected })
		}
		if got := Cycle(h, last, target); got != want {
			t.Fatalf("history %s, reason %s, target %s: got %t, want %t", show(h), last, target, got, want)
		}
	})
}

func TestWithoutCycles(t *testing.T) {
	h, last := history("q expired", "w expired")
	type target struct {
		id   int
		name string
	}
	kept, cycling := WithoutCycles(h, last, []target{{1, "r"}, {2, "q"}, {3, "s"}, {4, "w"}}, func(t target) string { return t.name })
	if cycling != 2 || len(kept) != 2 || kept[0].id != 1 || kept[1].id != 3 {
		t.Fatalf("kept %v, %d cycling", kept, cycling)
	}
}

// Hops are the deaths by itself since somebody sent the message back; a rejection between them
// neither counts nor begins anew.
func TestHops(t *testing.T) {
	var h []Death
	die := func(queue string, r Reason) {
		h = Record(h, Death{Queue: queue, Reason: r, RoutingKeys: []string{"k"}})
	}
	for _, r := range []Reason{Expired, Rejected, Expired, MaxLen, QueueRemoved, DeliveryLimit} {
		die("q", r)
	}
	if n := Hops(h); n != 4 {
		t.Fatalf("%d hops of %s", n, show(h))
	}
	h = Redriven(Letter{Deaths: h}, nil).Deaths
	if n := Hops(h); n != 0 {
		t.Fatalf("%d hops after a redrive", n)
	}
	die("q", Expired)
	die("w", Expired)
	if n := Hops(h); n != 2 {
		t.Fatalf("%d hops of %s", n, show(h))
	}
}
