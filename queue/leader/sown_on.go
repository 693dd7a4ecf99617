//go:build failpoints

package leader

import (
	"time"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
)

func init() {
	if failpoint.Sown(failpoint.OldPlan) {
		fsm.SowAnyCatalog()
	}
}

// retimed is an entry with the time of this process's clock: failpoint.LocalClock.
func retimed(data []byte) []byte {
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		return data
	}
	e.TimeMillis = time.Now().UnixMilli()
	return fsm.EncodeEntry(nil, &e)
}

// withoutStreams captures a machine as if no node had ever sent it anything:
// failpoint.ForgetWatermark.
func withoutStreams(m *fsm.Machine) func() ([]byte, []fsm.IndexRange) {
	encode := m.Capture()
	return func() ([]byte, []fsm.IndexRange) {
		manifest, pins := encode()
		return fsm.ForgetStreams(manifest), pins
	}
}
