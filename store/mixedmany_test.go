//go:build !invariants

package store_test

const mixedSample = 60_000
