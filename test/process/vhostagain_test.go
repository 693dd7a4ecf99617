package process

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestVhostAgainIsEmpty deletes a virtual host whose dead letters are on their way and makes one of the same name, with a queue of
// the name that they went to. Nothing of the former one arrives there.
func TestVhostAgainIsEmpty(t *testing.T) {
	t.Parallel()
	const vhost, messages = "again", 10000
	c := startCluster(t, 3)
	begin := func() *amqp.Channel {
		t.Helper()
		mustCtl(t, c.Node(0), "add_vhost", vhost)
		mustCtl(t, c.Node(0), "set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
		conn, err := connect(c.Node(0).URL() + vhost)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		ch, err := conn.Channel()
		if err == nil {
			_, err = ch.QueueDeclare("dead", true, false, false, false, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return ch
	}
	ch := begin()
	if _, err := ch.QueueDeclare("work", true, false, false, false, deadTo("dead", amqp.Table{"x-max-length": 0})); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	var last *amqp.DeferredConfirmation
	for range messages {
		var err error
		if last, err = ch.PublishWithDeferredConfirm("", "work", false, false, message("former")); err != nil {
			t.Fatal(err)
		}
	}
	confirmed(t, last)
	mustCtl(t, c.Node(0), "delete_vhost", vhost)
	ch = begin()
	await(t, timeoutReply, "the former queues are gone", func() bool {
		list, err := c.Node(0).Queues(t.Context())
		return err == nil && len(list) == 1
	})
	if q, err := ch.QueueDeclarePassive("dead", true, false, false, false, nil); err != nil || q.Messages > 0 {
		t.Errorf("%d messages of the former vhost (%v)", q.Messages, err)
	}
}
