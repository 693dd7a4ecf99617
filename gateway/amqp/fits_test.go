package amqp

import (
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// TestHeaderThatDoesNotFit: a message whose header is larger than the client's frames closes the channel that it is for, goes back, and the
// connection stays.
func TestHeaderThatDoesNotFit(t *testing.T) {
	r := startServer(t)
	from := r.channel(t)
	if _, err := from.QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	large := amqp091.Publishing{Headers: amqp091.Table{"h": strings.Repeat("h", 20_000)}, Body: []byte("body")}
	if err := from.PublishWithContext(t.Context(), "", "q", false, false, large); err != nil {
		t.Fatal(err)
	}
	conn, err := amqp091.DialConfig(r.url(), amqp091.Config{FrameSize: 8192})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, end := range []struct {
		name string
		do   func(ch *amqp091.Channel) error
	}{
		{"consume", func(ch *amqp091.Channel) error {
			_, err := ch.Consume("q", "", false, false, false, false, nil)
			return err
		}},
		{"get", func(ch *amqp091.Channel) error {
			_, _, _ = ch.Get("q", false) // the end of the channel says why
			return nil
		}},
		{"get without acks", func(ch *amqp091.Channel) error {
			_, _, _ = ch.Get("q", true)
			return nil
		}},
	} {
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(end.name, err)
		}
		closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
		if err := end.do(ch); err != nil {
			t.Fatal(end.name, err)
		}
		why := receive(t, closed, end.name)
		if why.Code != amqp091.PreconditionFailed || !strings.Contains(why.Reason, "does not fit frame_max 8192") {
			t.Errorf("%s: %v", end.name, why)
		}
		eventually(t, end.name, func() bool { ready, unacked := r.b.counts("q"); return ready == 1 && unacked == 0 })
	}
	if d, ok, err := from.Get("q", true); err != nil || !ok || string(d.Body) != "body" {
		t.Errorf("%v, %v", ok, err)
	}
}
