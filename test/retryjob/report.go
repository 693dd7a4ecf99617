package retryjob

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is the outcome of a run. Lost, Duplicated and Unflagged must be 0.
type Report struct {
	Confirmed int // jobs whose first publish was confirmed
	Done      int // jobs
	Parked    int // jobs that are not done
	LostJobs  int // confirmed jobs that are neither
	// Lost counts confirmed publishes and rejected messages that are nowhere;
	// at least LostJobs.
	Lost int
	// Duplicated counts copies made by dead-lettering.
	Duplicated int
	// Unflagged counts second deliveries without the redelivered flag of
	// messages that were not dead-lettered.
	Unflagged int
	// Pause is the longest time in which something was awaited and nothing
	// came, and PauseOf says what.
	Pause   time.Duration
	PauseOf string

	Moves       int  // dead letters that arrived
	Redelivered int  // deliveries with the flag
	Repeats     int  // publishes that clients repeated, not knowing the outcome
	WrongDelays int  // messages whose x-death did not tell the last expiration
	Kills       int  // nodes killed, filled in by the caller
	Counted     bool // the replicated counter of primary was compared, too
	Elapsed     time.Duration
}

// Err returns what the broker did wrong, or nil.
func (r Report) Err() error {
	var errs []error
	add := func(n int, what string) {
		if n != 0 {
			errs = append(errs, fmt.Errorf("%d %s", n, what))
		}
	}
	add(r.Lost, "lost")
	add(r.Duplicated, "duplicated by dead-lettering")
	add(r.Unflagged, "delivered twice without the redelivered flag")
	add(r.WrongDelays, "with a wrong x-death")
	return errors.Join(errs...)
}

// Write prints the report as a table.
func (r Report) Write(w io.Writer) error {
	how := "flags"
	if r.Counted {
		how = "flags and counters"
	}
	var b strings.Builder
	for _, row := range []struct {
		value any
		name  string
	}{
		{r.Confirmed, "published and confirmed"},
		{r.Done, "done"},
		{r.Parked, "parked"},
		{r.Lost, "lost"},
		{r.Duplicated, "duplicated by dead-lettering (by " + how + ")"},
		{r.Pause.Round(time.Millisecond), "longest pause (" + r.PauseOf + ")"},
		{"", ""},
		{r.Moves, "dead letters that arrived"},
		{r.Kills, "nodes killed and restarted"},
		{r.Redelivered, "redelivered, with the flag"},
		{r.Unflagged, "delivered twice without the flag"},
		{r.Repeats, "publishes repeated by clients in doubt"},
		{r.WrongDelays, "wrong x-death"},
		{r.Elapsed.Round(100 * time.Millisecond), "time"},
	} {
		fmt.Fprintf(&b, "%10v  %s\n", row.value, row.name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
