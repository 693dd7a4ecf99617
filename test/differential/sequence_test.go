package main

import (
	"reflect"
	"testing"
)

// TestSequences: a seed is enough to repeat a sequence, and each method can be carried out.
func TestSequences(t *testing.T) {
	used := map[string]bool{}
	for seed := range uint64(200) {
		m := &mixes[seed%uint64(len(mixes))]
		ops := m.sequence(seed, 60)
		if !reflect.DeepEqual(ops, m.sequence(seed, 60)) {
			t.Fatalf("seed %d makes two sequences", seed)
		}
		for _, o := range ops {
			used[o.kind] = true
			if methods[o.kind] == nil {
				t.Fatalf("seed %d: no method %s", seed, o.kind)
			}
		}
	}
	if want := len(kinds) + len(policyKinds); len(used) != want || len(methods) != want {
		t.Errorf("%d methods are used, of %d; %d can be carried out", len(used), want, len(methods))
	}
}
