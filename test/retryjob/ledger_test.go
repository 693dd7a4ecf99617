package retryjob

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLedger gives the ledger the histories that it has to tell apart. Each
// begins with job 0 published and confirmed as hop 0.
func TestLedger(t *testing.T) {
	retry := func(l *Ledger) hopID { // job 0 fails once and waits
		l.deliver(0, false)
		id := l.publish(0, 2, true, false)
		l.confirm(id)
		l.finish(0, false)
		return id
	}
	for _, tc := range []struct {
		name                        string
		happens                     func(*Ledger)
		lost, duplicated, unflagged int
		done, parked                int
	}{
		{"done at once", func(l *Ledger) { l.deliver(0, false); l.finish(0, true) }, 0, 0, 0, 1, 0},
		{"never delivered", func(*Ledger) {}, 1, 0, 0, 0, 0},
		{"delivered and forgotten", func(l *Ledger) { l.deliver(0, false) }, 1, 0, 0, 0, 0},
		{"retried, then done", func(l *Ledger) {
			id := retry(l)
			l.deliver(id, false)
			l.finish(id, true)
		}, 0, 0, 0, 1, 0},
		{"lost in the wait queue", func(l *Ledger) { retry(l) }, 1, 0, 0, 0, 0},
		{"lost in the wait queue, rescued by a repeat", func(l *Ledger) {
			retry(l)
			id := l.publish(0, 2, true, true)
			l.deliver(id, false)
			l.finish(id, true)
		}, 1, 0, 0, 1, 0},
		{"an unconfirmed repeat that is gone", func(l *Ledger) {
			l.publish(0, 1, false, true)
			l.deliver(0, false)
			l.finish(0, true)
		}, 0, 0, 0, 1, 0},
		{"moved twice", func(l *Ledger) {
			id := retry(l)
			l.deliver(id, false)
			l.finish(id, true)
			if l.deliver(id, false) {
				t.Error("a finished hop is open again")
			}
		}, 0, 1, 0, 1, 0},
		{"redelivered after the move", func(l *Ledger) {
			id := retry(l)
			l.deliver(id, false)
			l.deliver(id, true)
			l.finish(id, true)
		}, 0, 0, 0, 1, 0},
		{"delivered twice without the flag", func(l *Ledger) {
			l.deliver(0, false)
			l.deliver(0, false)
			l.finish(0, true)
		}, 0, 0, 1, 1, 0},
		{"parked", func(l *Ledger) { l.deliver(0, false); l.reject(0); l.park(0) }, 0, 0, 0, 0, 1},
		{"rejected twice, parked once", func(l *Ledger) {
			l.deliver(0, false)
			l.reject(0)
			l.deliver(0, true)
			l.reject(0)
			l.park(0)
		}, 0, 0, 0, 0, 1},
		{"parked twice", func(l *Ledger) { l.deliver(0, false); l.reject(0); l.park(0); l.park(0) }, 0, 1, 0, 0, 1},
		{"rejected and gone", func(l *Ledger) { l.deliver(0, false); l.reject(0) }, 1, 0, 0, 0, 0},
		{"parked although retried", func(l *Ledger) {
			id := retry(l)
			l.park(0)
			l.deliver(id, false)
			l.finish(id, true)
		}, 0, 1, 0, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(1)
			l.confirm(l.publish(0, 1, false, false))
			tc.happens(l)
			r := l.report()
			got := [5]int{r.Lost, r.Duplicated, r.Unflagged, r.Done, r.Parked}
			if want := [5]int{tc.lost, tc.duplicated, tc.unflagged, tc.done, tc.parked}; got != want {
				t.Errorf("lost, duplicated, unflagged, done, parked: got %v, want %v", got, want)
			}
			if bad := tc.lost+tc.duplicated+tc.unflagged > 0; bad != (r.Err() != nil) {
				t.Errorf("verdict %v", r.Err())
			}
		})
	}
}

func TestMovedToPrimary(t *testing.T) {
	l := newLedger(1)
	l.deliver(l.publish(0, 1, false, false), false)
	moved := l.publish(0, 2, true, false)
	l.deliver(moved, false)
	l.deliver(moved, true)
	l.publish(0, 2, true, true) // never arrived
	if got := l.movedToPrimary(); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(1)
		l.await("a", 2)
		time.Sleep(30 * time.Millisecond)
		l.came("a")
		l.await("a", -1)
		time.Sleep(60 * time.Millisecond) // nothing is awaited
		l.await("a", 1)
		l.came("a")
		if r := l.report(); r.Pause != 30*time.Millisecond || r.PauseOf != "a" {
			t.Errorf("longest pause %v of %q", r.Pause, r.PauseOf)
		}
	})
}

func TestDelaysTriple(t *testing.T) {
	cfg := Config{Delay: 10 * time.Millisecond}
	for attempt, want := range []time.Duration{0, 10, 30, 90, 270} {
		if got := cfg.delay(attempt); got != want*time.Millisecond {
			t.Errorf("attempt %d: %v", attempt, got)
		}
	}
}

func TestReportTable(t *testing.T) {
	var b bytes.Buffer
	r := Report{Confirmed: 10000, Done: 6000, Parked: 4000, Pause: 412 * time.Millisecond, PauseOf: confirmsWait}
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10000  published and confirmed", "6000  done", "0  lost", "0  duplicated by dead-lettering", "412ms  longest pause (confirms of wait)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
