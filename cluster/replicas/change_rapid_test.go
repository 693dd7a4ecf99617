package replicas

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/catalog"
)

// TestChangesOfOneQueue adds and removes members at random while nodes come and go and plans end or do not. What is taken changes one member,
// is quorate before and after, and ends as asked; what is refused changes nothing, and is refused for a reason that holds.
func TestChangesOfOneQueue(t *testing.T) {
	nodes := []catalog.NodeID{"n1/a", "n2/b", "n3/c", "n4/d", "n5/e"}
	r := newRig(t, nodes[1:]...)
	number := 0
	rapid.Check(t, func(t *rapid.T) {
		number++
		name := fmt.Sprintf("q%d", number)
		r.down = map[catalog.NodeID]bool{}
		r.declare(name, nodes[:rapid.IntRange(1, 4).Draw(t, "members")]...)
		t.Repeat(map[string]func(*rapid.T){
			"node": func(t *rapid.T) {
				id := rapid.SampledFrom(nodes).Draw(t, "node")
				r.down[id] = !r.down[id]
			},
			"end": func(t *rapid.T) {
				if r.queue(name).Wanted == nil {
					t.Skip()
				}
				r.reached(name)
			},
			"change": func(t *rapid.T) {
				id, member := rapid.SampledFrom(nodes).Draw(t, "node"), rapid.Bool().Draw(t, "member")
				r.changes(t, name, id, member)
			},
		})
	})
}

// running tells whether most of some members run.
func (r *rig) running(members []catalog.NodeID) bool {
	run := 0
	for _, m := range members {
		if !r.down[m] {
			run++
		}
	}
	return run > len(members)/2
}

// changes asks for one change and checks what comes of it.
func (r *rig) changes(t *rapid.T, name string, id catalog.NodeID, member bool) {
	before := r.queue(name)
	change := r.op.Remove
	if member {
		change = r.op.Add
	}
	_, err := change(t.Context(), "/", name, string(id[:2]))
	after := r.queue(name)
	had := slices.Contains(target(before), id)
	e, refusal := errors.AsType[*Error](err)
	switch {
	case err != nil && (!refusal || after.Settings != before.Settings):
		t.Fatalf("refused, and changed: %v", err)
	case err == nil && had == member:
		if after.Settings != before.Settings {
			t.Fatal("nothing was to be done, and was")
		}
	case err == nil:
		rest := slices.DeleteFunc(slices.Clone(after.Wanted), func(n catalog.NodeID) bool { return n == id })
		old := slices.DeleteFunc(slices.Clone(target(before)), func(n catalog.NodeID) bool { return n == id })
		if slices.Contains(after.Wanted, id) != member || !slices.Equal(rest, old) || len(after.Wanted) == 0 || !slices.Contains(after.Wanted, after.WantedPreferred) {
			t.Fatalf("%s: %v became %v, led by %s", id, target(before), after.Wanted, after.WantedPreferred)
		}
		if member && r.down[id] || !member && !r.running(after.Wanted) || before.Wanted == nil && !r.running(before.Members) {
			t.Fatalf("%s: %v became %v while %v are down", id, target(before), after.Wanted, r.down)
		}
		if before.Wanted != nil && (member || before.Generation(id) != before.Settings) {
			t.Fatalf("%s: a change was under way", id)
		}
	case !slices.Contains(map[Reason][]bool{
		NotRunning: {member && r.down[id]}, LastMember: {!member && len(target(before)) == 1}, Busy: {before.Wanted != nil},
		NoQuorum: {!r.running(before.Members) || !r.running(slices.DeleteFunc(slices.Clone(target(before)), func(n catalog.NodeID) bool { return n == id }))},
	}[e.Reason], true):
		t.Fatalf("%s: refused for no reason that holds: %v; %v, wanted %v, down %v", id, err, before.Members, before.Wanted, r.down)
	}
}
