package checker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

// Limits are how long nothing may be confirmed.
type Limits struct {
	// Calm is the limit while no fault is there, Faults those under one fault of a kind, by name. Of
	// a kind that is not there nothing is said.
	Calm   time.Duration
	Faults map[string]Pause
	// Slack multiplies the limits, for machines that others use, too; 0 is 1.
	Slack float64
}

// Pause is what one fault may do to confirms.
type Pause struct {
	// Limit is how long they may stay away; 0: as long as the fault lasts.
	Limit time.Duration
	// After is how long the fault counts as there after it was healed: nodes have to start, links
	// to come back. It is not multiplied.
	After time.Duration
}

// Availability measures how long no publish was confirmed, by the faults that were there
// meanwhile (a pause in which two were counts for both together), and how long confirms took. It finds
// pauses that are longer than the limit. Of the time in which two faults were there together nothing
// is said: they may have left no majority.
func Availability(limits Limits) Checker {
	return Checker{Name: "availability", Check: func(ops []history.Op) Result { return availability(ops, &limits) }}
}

// stretch is a part of a run in which confirms are asked for, without a moment in which they are not.
type stretch struct {
	from, to time.Duration
	limit    time.Duration
	faults   []string
}

// stretches cuts what is not judged out of the time between two confirms.
func (l *Limits) stretches(spans []faultSpan, from, to time.Duration) (list []stretch) {
	marks := []time.Duration{from, to}
	for i := range spans {
		spans[i].until = spans[i].end + l.Faults[spans[i].name].After
		for _, t := range []time.Duration{spans[i].begin, spans[i].until} {
			if t > from && t < to {
				marks = append(marks, t)
			}
		}
	}
	slices.Sort(marks)
	open := false // the stretch before ends where this part begins
	for i := 1; i < len(marks); i++ {
		a, b := marks[i-1], marks[i]
		limit, there := l.Calm, []string(nil)
		judged := true
		for _, f := range spans {
			if f.begin < b && f.until > a {
				p := l.Faults[f.name]
				limit, judged = max(limit, p.Limit), judged && p.Limit > 0
				there = append(there, f.name)
			}
		}
		switch {
		case !judged || len(there) > 1:
			open = false
			continue
		case !open:
			list = append(list, stretch{from: a})
		}
		last := &list[len(list)-1]
		last.to, last.limit, last.faults, open = b, max(last.limit, limit), append(last.faults, there...), true
	}
	return list
}

// tooLong returns the stretches without a confirm that are longer than they may be.
func (l *Limits) tooLong(spans []faultSpan, from, to time.Duration) []stretch {
	return slices.DeleteFunc(l.stretches(spans, from, to), func(s stretch) bool {
		return float64(s.to-s.from) <= cmp.Or(l.Slack, 1)*float64(s.limit)
	})
}

// faultSpan is a fault in a history.
type faultSpan struct {
	name       string
	begin, end time.Duration
	until      time.Duration // of stretches
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
			spans = append(spans, faultSpan{name: o.Value, begin: o.Time, end: ops[len(ops)-1].Time})
		} else if i, known := open[o.Of]; known {
			spans[i].end = o.Time
		}
	}
	return spans
}

func availability(ops []history.Op, limits *Limits) (r Result) {
	var tries, confirms []time.Duration
	var took []time.Duration
	begun := map[int]time.Duration{}
	var lastTry time.Duration
	for _, o := range ops {
		switch {
		case o.F != history.Publish:
		case o.Type == history.Invoke:
			begun[o.Index] = o.Time
			lastTry = o.Time
			tries = append(tries, o.Time)
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
		var during []string
		for _, f := range spans {
			if f.begin < next && f.end > t {
				during = append(during, f.name)
			}
		}
		slices.Sort(during)
		name := cmp.Or(strings.Join(slices.Compact(during), "+"), "no fault")
		longest[name] = max(longest[name], gap)
		asked, _ := slices.BinarySearch(tries, t) // nobody waits for a confirm before somebody publishes
		if asked == len(tries) || tries[asked] >= next {
			continue
		}
		for _, s := range limits.tooLong(spans, tries[asked], next) {
			r.problem("nothing was confirmed from %.2f s to %.2f s, more than %.2f s (%s)", s.from.Seconds(), s.to.Seconds(),
				cmp.Or(limits.Slack, 1)*s.limit.Seconds(), cmp.Or(strings.Join(slices.Compact(s.faults), ", "), "no fault"))
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
