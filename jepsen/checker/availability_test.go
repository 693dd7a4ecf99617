package checker

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

// confirms is a history with publishes that are confirmed within a tenth of a second from each of
// these seconds on until the next but one, and one try in a pause.
func confirms(between []history.Op, seconds ...float64) []history.Op {
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	ops := slices.Clone(between)
	for i := 0; i+1 < len(seconds); i += 2 {
		for s := seconds[i]; s <= seconds[i+1]; s += 0.1 {
			p := published("q", "0.1.1", history.OK)
			p[0].Time, p[1].Time = at(s), at(s+0.05)
			ops = append(ops, p...)
		}
		try := published("q", "0.1.1", history.Info)
		try[0].Time, try[1].Time = at(seconds[i+1]+0.2), at(seconds[i+1]+8)
		ops = append(ops, try...)
	}
	slices.SortStableFunc(ops, func(a, b history.Op) int { return cmp.Compare(a.Time, b.Time) })
	// Lines are numbered by time; an end follows its beginning.
	begun := map[string]int{}
	for i := range ops {
		ops[i].Index = i + 1
		key := ops[i].F + ops[i].Value
		if ops[i].Type == history.Invoke {
			begun[key] = ops[i].Index
		} else {
			ops[i].Of = begun[key]
		}
	}
	return ops
}

func faulty(kind string, from, to float64) []history.Op {
	op := history.Op{Process: history.Nemesis, Type: history.Invoke, F: history.Fault, Value: kind, Time: time.Duration(from * float64(time.Second))}
	end := op
	end.Type, end.Time = history.OK, time.Duration(to*float64(time.Second))
	return []history.Op{op, end}
}

func TestAvailability(t *testing.T) {
	limits := Limits{Calm: time.Second, Slack: 2, Faults: map[string]Pause{
		"kill": {Limit: time.Second, After: 3 * time.Second}, "pause": {Limit: 5 * time.Second, After: time.Second}, "power": {After: 3 * time.Second},
	}}
	for name, tc := range map[string]struct {
		ops  []history.Op
		want string
	}{
		"no pause":                                 {confirms(nil, 0, 9), ""},
		"a pause without a fault":                  {confirms(nil, 0, 2, 5, 9), "nothing was confirmed from 2.20 s to 5.05 s, more than 2.00 s (no fault)"},
		"within the slack":                         {confirms(nil, 0, 2, 3.8, 9), ""},
		"a slow failover":                          {confirms(faulty("kill", 2, 9), 0, 2, 6, 9), "more than 2.00 s (kill)"},
		"a fast one":                               {confirms(faulty("kill", 2, 9), 0, 2, 3.5, 9), ""},
		"a node that starts":                       {confirms(faulty("kill", 2, 4), 0, 5, 9, 12), "more than 2.00 s (kill)"},
		"a frozen node takes longer":               {confirms(faulty("pause", 2, 14), 0, 2, 9, 15), ""},
		"and too long":                             {confirms(faulty("pause", 2, 20), 0, 2, 16, 20), "more than 10.00 s (pause)"},
		"all nodes away":                           {confirms(faulty("power", 2, 20), 0, 2, 23, 25), ""},
		"all nodes away, and then":                 {confirms(faulty("power", 2, 10), 0, 2, 20, 25), "from 13.00 s to 20.05 s"},
		"two at a time":                            {confirms(append(faulty("kill", 2, 20), faulty("pause", 2.1, 20)...), 0, 2, 21, 25), ""},
		"two at a time, then one":                  {confirms(append(faulty("kill", 2, 30), faulty("pause", 2.1, 4)...), 0, 2, 16, 25), "from 5.00 s to 16.05 s"},
		"one that nobody knows":                    {confirms(faulty("other", 2, 9), 0, 2, 8, 12), ""},
		"nobody publishes for a while":             {confirms(nil, 0, 2, 2.2, 2.3), ""},
		"nothing confirmed":                        {lines(published("q", "0.1.1", history.Info)...), "ever confirmed"},
		"the pause goes on when the fault is over": {confirms(faulty("kill", 2, 3), 0, 2.5, 9, 12), "from 2.70 s to 9.05 s"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Availability(limits), tc.ops, tc.want) })
	}
}

// TestAvailabilityByFault: the pause is counted for the fault that it falls into.
func TestAvailabilityByFault(t *testing.T) {
	r := availability(confirms(faulty("kill", 2, 9), 0, 2, 6, 9), &Limits{})
	for _, f := range r.Figures {
		if f.Name == "longest pause with kill s" && f.Value > 3.9 && f.Value < 4.2 {
			return
		}
	}
	t.Errorf("figures %v", r.Figures)
}
