//go:build !failpoints

package leader

import "github.com/warrenmq/warren/fsm"

// What seeded faults do is not in this build.

func retimed(data []byte) []byte { return data }

func withoutStreams(m *fsm.Machine) func() ([]byte, []fsm.IndexRange) { return m.Capture() }
