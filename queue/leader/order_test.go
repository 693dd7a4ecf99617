package leader

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// TestGetsComeAfterConsumers: a get finds what was left by consumers that were ready when messages came in before it, although the leader may learn of
// both at once.
func TestGetsComeAfterConsumers(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.attach(a, 1, 2)
	for i, body := range []string{"1", "2"} {
		r.batch(a, pub(body))
		if g := r.get(a, uint64(i+1)); g.Found {
			t.Errorf("a get found %q", bodyOf(t, g.Item))
		}
	}
	if got := r.bodies(r.items(a, 2)); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the consumer got %q", got)
	}
	r.batch(a, pub("3"))
	if g := r.get(a, 3); !g.Found || bodyOf(t, g.Item) != "3" || g.Remaining != 0 {
		t.Errorf("a get found %+v of what the consumer has no room for", g)
	}
}

// TestGetsFindNothingThatIsDue: a message with a time to live of 0 is for consumers that are ready.
func TestGetsFindNothingThatIsDue(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	due := pub("due")
	due.TTLMillis = 0
	r.batch(a, due, pub("stays"))
	if g := r.get(a, 1); !g.Found || bodyOf(t, g.Item) != "stays" {
		t.Errorf("a get found %+v", g)
	}
}

// TestGetsComeAfterWhatMakesRoom: a message that goes back to a queue at its limit is the first to go, before a get that was sent after it.
func TestGetsComeAfterWhatMakesRoom(t *testing.T) {
	a := node(1)
	set := plain()
	set.MaxLength = 1
	set.Overflow = queue.DropHead
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1")
	first := r.get(a, 1)
	r.publish(a, "2")
	r.settle(a, fsm.RequeueCounted, first.Item)
	if g := r.get(a, 2); !g.Found || bodyOf(t, g.Item) != "2" || g.Remaining != 0 {
		t.Errorf("a get found %+v", g)
	}
}
