package process

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestDeletedByForce: a queue on a node that is away for good, whose messages are to be dead-lettered before it goes and have no way, is deleted by force and
// by nothing else; its name begins anew at once, and the node that is back after all has nothing of it.
func TestDeletedByForce(t *testing.T) {
	t.Parallel()
	c := stoppableCluster(t)
	gone, asked := c.Node(0), c.Node(1)
	s := at(t, gone)
	args := amqp.Table{
		"x-dead-letter-exchange": "nowhere", "x-dead-letter-on-removal": true, "x-dead-letter-strategy": "at-least-once",
		"x-quorum-initial-group-size": 1, "x-queue-leader-locator": "client-local",
	}
	s.fill(plainQueue(s, "kept", args), "old")
	refused := func(want string, flags ...string) {
		t.Helper()
		code, _, why := ctl(t, asked, append([]string{"delete_queue", "kept"}, flags...)...)
		if code != 70 || !strings.Contains(why, want) {
			t.Errorf("%q: exit code %d, %s", flags, code, why)
		}
	}
	refused("purge this one first")
	refused("purge this one first", "--force")
	kill(t, gone)
	refused("delete it by force")
	mustCtl(t, asked, "delete_queue", "kept", "--force")
	other := at(t, asked)
	other.fill(plainQueue(other, "kept", nil), "new")
	start(t, gone)
	await(t, timeoutReply, "the replica goes", func() bool {
		list, err := gone.ReplicaStates(t.Context())
		replicas := 0
		for _, r := range list {
			if r.Name == "kept" {
				replicas++
			}
		}
		return err == nil && replicas == 1 // of the new queue
	})
	at(t, gone).holds("kept", "new")
}
