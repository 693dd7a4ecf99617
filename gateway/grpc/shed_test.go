package grpc

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"google.golang.org/grpc"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/gateway/unread"
)

var errGone = errors.New("the client has gone")

// lastWords is the stream of a client that goes while it is being sent something.
type lastWords struct {
	grpc.BidiStreamingServer[warrenv1.ConsumeRequest, warrenv1.ConsumeResponse]

	sent *warrenv1.ConsumeResponse
}

func (l *lastWords) Send(r *warrenv1.ConsumeResponse) error {
	l.sent = r
	return errGone
}

// TestSentDeliveriesAreLetGo: what a client holds unsettled keeps nothing of its message but in the response that is being sent, for a body may be a part of a
// stretch of the log. What has not been sent is kept whole.
func TestSentDeliveriesAreLetGo(t *testing.T) {
	t.Parallel()
	stretch := bytes.Repeat([]byte("x"), deliveryBytesMax)
	stream := &lastWords{}
	gauge := unread.New(1<<30, func(bool) {})
	x := &consumeStream{
		session: &session{s: New(Config{Logger: slog.New(slog.DiscardHandler), Unread: gauge}, nil), ctx: context.Background()},
		stream:  stream, wake: make(chan struct{}, 1),
	}
	for _, size := range []int{3, deliveryBytesMax, 5} { // the second one ends the response
		x.Deliver(&broker.Delivery{Exchange: "e", Key: "k", Body: stretch[:size], WindowBytes: size})
	}
	if more, err := x.sendSome(); more || !errors.Is(err, errGone) {
		t.Fatalf("more %v, %v", more, err)
	}
	list := stream.sent.GetDeliveries()
	if len(list) != 2 || len(list[0].GetMessage().GetBody()) != 3 || len(list[1].GetMessage().GetBody()) != deliveryBytesMax || list[1].GetMessage().GetRoutingKey() != "k" {
		t.Fatalf("%d deliveries were sent, or not those that came", len(list))
	}
	held := x.unsettled.TakeRange(1, x.number, nil)
	if len(held) != 2 {
		t.Fatalf("%d deliveries are unsettled", len(held))
	}
	for _, d := range held {
		if len(d.Body)+len(d.Properties)+len(d.Exchange)+len(d.Key) > 0 {
			t.Errorf("held with %d bytes of %q", len(d.Body), d.Key)
		}
	}
	if len(x.ready) != 1 || len(x.ready[0].Body) != 5 || gauge.Bytes() != 5 {
		t.Errorf("%d deliveries are to be sent, %d bytes unread", len(x.ready), gauge.Bytes())
	}
}
