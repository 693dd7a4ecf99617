package netns

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// unheardMax is how long a queue may be without a leader whose node only its voters do not hear: two seconds until they miss it, and what a busy
// machine adds. Raft's own timers take one to two minutes.
const unheardMax = 15 * time.Second

// TestLeaderThatItsVotersDoNotHear cuts the leader of a queue of four nodes off from both other replicas, and from nobody else: most nodes hear it, and the two
// elect another one.
func TestLeaderThatItsVotersDoNotHear(t *testing.T) {
	t.Parallel()
	r := founded(t, options{nodes: 4})
	ctx := t.Context()
	queue := "q"
	r.declare(r.dial(r.Node(0)), queue, nil)
	leader, err := r.Leader(ctx, queue)
	r.must("leader", err)
	others := slices.DeleteFunc(r.members(queue), func(name string) bool { return name == leader.Name })
	ch := r.dial(r.ByName(others[0]))
	r.send(ch, queue, "before")
	r.part([]string{leader.Name}, others)
	took := r.send(ch, queue, "during")
	t.Logf("%s, which %v did not hear, was replaced after %v", leader.Name, others, took.Round(time.Millisecond))
	if took > unheardMax {
		t.Errorf("no confirm for %v", took)
	}
	r.lan.Heal()
	r.readyAll()
	for i, n := range r.Nodes() {
		r.send(r.dial(n), queue, fmt.Sprint("after-", i))
	}
	r.holds(ch, queue, "before", "during", "after-0", "after-1", "after-2", "after-3")
}
