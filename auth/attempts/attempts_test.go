package attempts

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTable(t *testing.T) {
	cfg := Config{Free: 2, Delay: time.Second, DelayMax: 5 * time.Second, Forget: time.Minute, Entries: 3}
	table, now := New(cfg), time.Unix(1000, 0)
	fail := func(address, user string) { table.Done(HTTP, address, user, false, now) }
	wait := func(want time.Duration, address, user string) {
		t.Helper()
		if got := table.Wait(HTTP, address, user, now); got != want {
			t.Errorf("%s as %s waits %s, want %s", address, user, got, want)
		}
	}
	fail("10.0.0.1", "u")
	wait(0, "10.0.0.1", "u")
	fail("10.0.0.1", "u")
	wait(time.Second, "10.0.0.1", "u")
	wait(time.Second, "::ffff:10.0.0.1", "u")
	wait(0, "10.0.0.2", "u") // the right password of somebody else
	wait(0, "10.0.0.1", "v")
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		fail("10.0.0.1", "u")
		wait(want, "10.0.0.1", "u")
	}
	now = now.Add(5 * time.Second)
	wait(0, "10.0.0.1", "u")
	table.Done(AMQP, "10.0.0.1", "u", true, now)
	fail("10.0.0.1", "u")
	wait(0, "10.0.0.1", "u")

	// One network of IPv6 is one address.
	fail("2001:db8::1", "u")
	fail("2001:db8::2", "u")
	wait(time.Second, "2001:db8::3", "u")
	wait(0, "2001:db8:0:1::3", "u")

	now = now.Add(cfg.Forget)
	wait(0, "2001:db8::3", "u")
	for i := range 9 {
		fail("10.0.0.9", fmt.Sprint("user", i))
	}
	if got := fmt.Sprint(table.Sources(now)); len(table.Sources(now)) != cfg.Entries || table.Sources(now)[0].User != "user8" {
		t.Errorf("remembered %s", got)
	}
	if c := table.Counts(); c[AMQP] != (Counts{Accepted: 1}) || c[HTTP].Failed != 18 || c[HTTP].Held == 0 {
		t.Errorf("counts %+v", c)
	}
	table.Reset()
	if len(table.Sources(now)) != 0 || table.Counts()[HTTP] != (Counts{}) {
		t.Error("not reset")
	}
	off := New(Config{Entries: 3})
	for range 99 {
		off.Done(AMQP, "a", "u", false, now)
	}
	if off.Wait(AMQP, "a", "u", now) != 0 {
		t.Error("a table that holds nobody up does")
	}
}

// TestGuesses bounds how many passwords can be tried of one user from one address, whatever the rhythm, and that nobody waits who did not
// fail.
func TestGuesses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := Config{
			Free: rapid.IntRange(1, 5).Draw(rt, "free"), Delay: time.Second, DelayMax: rapid.SampledFrom([]time.Duration{time.Second, 8 * time.Second, time.Minute}).Draw(rt, "max"),
			Forget: 2 * time.Minute, Entries: 100,
		}
		table, start := New(cfg), time.Unix(0, 0)
		now, tried := start, 0
		for range rapid.IntRange(1, 300).Draw(rt, "tries") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
			if table.Wait(AMQP, "a", "u", now) == 0 {
				tried++
				table.Done(AMQP, "a", "u", false, now)
			}
			if table.Wait(AMQP, "a", "w", now) != 0 || table.Wait(AMQP, "b", "u", now) != 0 {
				rt.Fatal("somebody waits who did not fail")
			}
		}
		// After the free ones each costs at least Delay, and in the long run DelayMax.
		if most := cfg.Free + 1 + int(math.Ceil(now.Sub(start).Seconds()/cfg.Delay.Seconds())); tried > most {
			rt.Fatalf("%d tries in %s, at most %d", tried, now.Sub(start), most)
		}
		if table.order.Len() != len(table.byKey) || table.order.Len() > cfg.Entries {
			rt.Fatalf("%d in order, %d by key", table.order.Len(), len(table.byKey))
		}
	})
}
