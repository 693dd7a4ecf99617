//go:build invariants

package store_test

// mixedSample is small: with invariants the machine looks at all messages after each entry.
const mixedSample = 6_000
