package checker

import (
	"fmt"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

// Checker judges a history.
type Checker struct {
	Name  string
	Check func(ops []history.Op) Result
	// Ends says that it judges what the queues hold at the end: it says nothing about a run
	// that did not come to its end.
	Ends bool
}

// Result is a judgement.
type Result struct {
	Checker string `json:"checker"`
	Valid   bool   `json:"valid"`
	// Skipped says that it was not asked: the run did not come to its end.
	Skipped bool `json:"skipped,omitempty"`
	// Summary says in one line what was looked at.
	Summary string `json:"summary"`
	// Problems are the first problemsMax violations; Count is the number of all.
	Problems []string `json:"problems,omitempty"`
	Count    int      `json:"count"`
	// Figures are measurements, for people and for comparison between runs.
	Figures []Figure `json:"figures,omitempty"`
}

// Figure is a measurement with its unit in the name.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// problemsMax bounds what a result shows.
const problemsMax = 20

// Run calls the checkers. ended says that the run came to its end.
func Run(checkers []Checker, ops []history.Op, ended bool) []Result {
	results := make([]Result, len(checkers))
	for i, c := range checkers {
		if c.Ends && !ended {
			results[i] = Result{Skipped: true, Summary: "not asked: the run did not come to its end"}
		} else {
			results[i] = c.Check(ops)
		}
		results[i].Checker, results[i].Valid = c.Name, results[i].Count == 0
	}
	return results
}

// problem adds a violation.
func (r *Result) problem(format string, args ...any) {
	r.Count++
	if len(r.Problems) < problemsMax {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

func (r *Result) figure(name string, value float64) {
	r.Figures = append(r.Figures, Figure{name, value})
}

// at says where in the history an operation is.
func at(o history.Op) string {
	return fmt.Sprintf("line %d, %.3f s, process %d.%d at %s", o.Index, o.Time.Seconds(), o.Process, o.Life, o.Node)
}

// message is what a history says about one publish.
type message struct {
	publish  history.Op // its invoke
	end      history.Type
	answered time.Duration
}

// publishes returns all publishes by their value, and the values in their order.
func publishes(ops []history.Op) (byValue map[string]*message, values []string) {
	byValue = map[string]*message{}
	for _, o := range ops {
		if o.F != history.Publish {
			continue
		}
		if o.Type == history.Invoke {
			byValue[o.Value] = &message{publish: o, end: history.Info}
			values = append(values, o.Value)
		} else if m := byValue[o.Value]; m != nil {
			m.end, m.answered = o.Type, o.Time
		}
	}
	return byValue, values
}
