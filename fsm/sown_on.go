//go:build failpoints

package fsm

import "fmt"

// anyCatalog drops the rule of plans that compares catalog revisions.
var anyCatalog bool

// SowAnyCatalog makes Apply take plans from old catalogs: a fault that tests sow. It is called before
// any machine is there.
func SowAnyCatalog() { anyCatalog = true }

// ForgetStreams returns the manifest without its streams of nodes: a fault that tests sow.
func ForgetStreams(manifest []byte) []byte {
	m, err := Restore(manifest)
	if err != nil {
		panic(fmt.Sprintf("fsm: restore a manifest of this process: %v", err))
	}
	m.streams = map[uint32]*stream{}
	return m.Snapshot()
}
