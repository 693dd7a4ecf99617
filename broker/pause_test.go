package broker

import (
	"errors"
	"testing"
)

// TestPauseQueue: from the answer on nothing is handed out, lists and events say so, twice is once, and an exclusive queue is refused.
func TestPauseQueue(t *testing.T) {
	b := newBroker(t)
	atNewestLevel(t, b)
	c := dial(t, b)
	for _, durable := range []bool{true, false} {
		name := map[bool]string{true: "stays", false: "fleeting"}[durable]
		if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: name, Durable: durable}); err != nil {
			t.Fatal(err)
		}
		c.put(name, "one", nil)
		mark := b.Mark()
		turn := func(paused bool, action, state string) {
			t.Helper()
			for range 2 {
				if err := b.PauseQueue(t.Context(), User{Name: "guest"}, "/", name, paused); err != nil {
					t.Fatal(err)
				}
			}
			list, now, _ := b.ChangesSince(mark, 9)
			if mark = now; len(list) != 1 || list[0] != (Change{"queue", action, "/", name}) {
				t.Errorf("told: %+v", list)
			}
			if q, err := b.FindQueue(t.Context(), "/", name); err != nil || q.Shown() != state || q.Ready != 1 {
				t.Errorf("%+v, %v: want %s", q, err, state)
			}
		}
		turn(true, "paused", "paused")
		if d := c.get(name); d != nil {
			t.Errorf("%s gives %q", name, d.Body)
		}
		turn(false, "resumed", "running")
		if d := c.get(name); d == nil {
			t.Errorf("%s, resumed, gives nothing", name)
		}
	}
	if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "own", Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Kind{"own": ResourceLocked, "none": NotFound} {
		err := b.PauseQueue(t.Context(), User{Name: "guest"}, "/", name, true)
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
