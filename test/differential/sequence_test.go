package main

import (
	"reflect"
	"testing"
)

// TestSequences: a seed is enough to repeat a sequence, and each method can be carried out.
func TestSequences(t *testing.T) {
	used := map[string]bool{}
	for seed := range uint64(200) {
		ops := sequence(seed, 60)
		if !reflect.DeepEqual(ops, sequence(seed, 60)) {
			t.Fatalf("seed %d makes two sequences", seed)
		}
		for _, o := range ops {
			used[o.kind] = true
			if methods[o.kind] == nil {
				t.Fatalf("seed %d: no method %s", seed, o.kind)
			}
		}
	}
	if len(used) != len(kinds) || len(methods) != len(kinds) {
		t.Errorf("%d methods are used, of %d; %d can be carried out", len(used), len(kinds), len(methods))
	}
}
