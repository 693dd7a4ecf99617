package ctl

import (
	"strings"
	"testing"
)

// TestDeletedQueuesNeedNoRecovery: a queue that was deleted meanwhile is shown, and is no failure; one that waits for its leader is.
func TestDeletedQueuesNeedNoRecovery(t *testing.T) {
	for state, want := range map[string]int{"recovered": ExitOK, "deleted": ExitOK, "pending": ExitSoftware, "refused": ExitSoftware} {
		code, out, failure := run(t, says(200, `{"queues":[{"vhost":"/","name":"q","state":"`+state+`"}]}`), "recover_queues", "--lost", "n2", "--yes")
		if code != want || !strings.Contains(out, "q\t"+state) {
			t.Errorf("%s: %d %s%s", state, code, out, failure)
		}
	}
}
