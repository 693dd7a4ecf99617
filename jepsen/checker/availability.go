package checker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

// Availability measures how long no publish was confirmed, by the faults that were there
// meanwhile (a pause in which two were counts for both together), and how long confirms took. It finds pauses of more than limit while no fault was there.
func Availability(limit time.Duration) Checker {
	return Checker{Name: "availability", Check: func(ops []history.Op) Result { return availability(ops, limit) }}
}

// faultSpan is a fault in a history.
type faultSpan struct {
	name       string
	begin, end time.Duration
}

// faults returns the faults of a history; one that was not healed lasts to the end.
func faults(ops []history.Op) []faultSpan {
	var spans []faultSpan
	open := map[int]int{}
	for _, o := range ops {
		if o.F != history.Fault {
			continue
		}
		if o.Type == history.Invoke {
			open[o.Index] = len(spans)
			spans = append(spans, faultSpan{o.Value, o.Time, ops[len(ops)-1].Time})
		} else if i, known := open[o.Of]; known {
			spans[i].end = o.Time
		}
	}
	return spans
}

func availability(ops []history.Op, limit time.Duration) (r Result) {
	var confirms []time.Duration
	var took []time.Duration
	begun := map[int]time.Duration{}
	var lastTry time.Duration
	for _, o := range ops {
		switch {
		case o.F != history.Publish:
		case o.Type == history.Invoke:
			begun[o.Index] = o.Time
			lastTry = o.Time
		case o.Type == history.OK:
			confirms = append(confirms, o.Time)
			took = append(took, o.Time-begun[o.Of])
		}
	}
	if len(confirms) == 0 {
		if lastTry > 0 {
			r.problem("nothing was ever confirmed")
		}
		r.Summary = "no publishes"
		return r
	}
	spans := faults(ops)
	longest := map[string]time.Duration{}
	var all time.Duration
	for i, t := range confirms {
		next := max(lastTry, t)
		if i+1 < len(confirms) {
			next = confirms[i+1]
		}
		gap := next - t
		all = max(all, gap)
		calm := t // since when no fault was there
		var during []string
		for _, f := range spans {
			if f.begin < next && f.end > t {
				during = append(during, f.name)
				calm = max(calm, f.end)
			}
		}
		slices.Sort(during)
		name := cmp.Or(strings.Join(slices.Compact(during), "+"), "no fault")
		longest[name] = max(longest[name], gap)
		if next-calm > limit {
			r.problem("nothing was confirmed from %.1f s to %.1f s, and no fault was there from %.1f s on", t.Seconds(), next.Seconds(), calm.Seconds())
		}
	}
	slices.Sort(took)
	quantile := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Microseconds()) / 1000 }
	r.Summary = sprintf("%d confirms; longest pause %.2f s; confirm p50 %.1f ms, p99 %.1f ms", len(confirms), all.Seconds(), quantile(0.5), quantile(0.99))
	r.figure("confirm p50 ms", quantile(0.5))
	r.figure("confirm p99 ms", quantile(0.99))
	r.figure("longest pause s", all.Seconds())
	var names []string
	for name := range longest {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		r.figure("longest pause with "+name+" s", longest[name].Seconds())
	}
	return r
}
