package checker

import (
	"maps"
	"slices"
)

// sortedKeys returns the keys of m in order, so that a verdict is the same each time.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
