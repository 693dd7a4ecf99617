//go:build failpoints

package fsm

import "fmt"

// ForgetStreams returns the manifest without its streams of nodes: a fault that tests sow.
func ForgetStreams(manifest []byte) []byte {
	m, err := Restore(manifest)
	if err != nil {
		panic(fmt.Sprintf("fsm: restore a manifest of this process: %v", err))
	}
	m.streams = map[uint32]*stream{}
	return m.Snapshot()
}
