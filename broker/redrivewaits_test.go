package broker

import (
	"testing"
	"time"
)

// The stop of a redrive does not wait for a target that does not answer: it tells at once what is
// under way to whom. The redrive ends when that is known, and the next one can begin then.
func TestRedriveStopsWithoutAnAnswer(t *testing.T) {
	b, c := deadLetterRig(t)
	c.kill("a", "a1", "a2")
	c.kill("b", "b1")
	c.await("the dead letters", func() bool { return len(c.bodies(b, "dlq")) == 3 })
	target := b.queues.get(b.cat.View().Queue("/", "a").ID)
	target.lead(2, "", false) // nobody leads it
	if _, err := b.StartRedrive(t.Context(), User{Name: "guest"}, "/", "dlq", Redrive{}); err != nil {
		t.Fatal(err)
	}
	status := func() RedriveStatus {
		st, err := b.RedriveStatus(t.Context(), User{Name: "guest"}, "/", "dlq")
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	c.await("the target's silence", func() bool {
		st := status()
		return st.Moved == 1 && len(st.WaitsFor) == 1 && st.WaitsFor[0].State == "unreachable"
	})
	// Until it is known whether they come back the queue is not empty, although no list shows a message.
	q := b.cat.View().Queue("/", "dlq")
	counts, err := b.status(t.Context(), q, false)
	if err != nil {
		t.Fatal(err)
	}
	refused := c.conn.notEmpty(q, counts)
	if want := "queue 'dlq' in vhost '/' not empty: messages on their way out of it, which may come back: 2"; kindOfRefusal(refused) != PreconditionFailed || refused.Error() != want {
		t.Errorf("deleted if it is empty: %v, want %s", refused, want)
	}
	asked := time.Now()
	st, err := b.StopRedrive(t.Context(), User{Name: "guest"}, "/", "dlq")
	if took := time.Since(asked); err != nil || took > 4*time.Second {
		t.Fatalf("stopped after %v: %v", took, err)
	}
	if st.State != "stopping" || st.UnderWay != 2 || len(st.WaitsFor) != 1 || st.WaitsFor[0].Queue != "a" || st.WaitsFor[0].VHost != "/" ||
		st.WaitsFor[0].Messages != 2 || st.WaitsFor[0].State != "unreachable" || st.WaitsFor[0].Since == 0 {
		t.Fatalf("%+v", st)
	}
	if _, err := b.StartRedrive(t.Context(), User{Name: "guest"}, "/", "dlq", Redrive{}); kindOfRefusal(err) != PreconditionFailed {
		t.Errorf("another one meanwhile: %v", err)
	}
	target.lead(3, testNode, true)
	st = c.redriven(b, "dlq")
	if st.State != "stopped" || st.Moved+st.Returned != 3 || st.UnderWay != 0 || st.WaitsFor != nil {
		t.Fatalf("%+v", st)
	}
	if here, there := len(c.bodies(b, "dlq")), len(c.bodies(b, "a")); here != int(st.Returned) || here+there != 2 {
		t.Errorf("%d came back, %d arrived; %+v", here, there, st)
	}
	if st = c.redrive(b, "dlq", Redrive{}); st.Number != 2 || st.State != "done" {
		t.Errorf("the next one: %+v", st)
	}
}
