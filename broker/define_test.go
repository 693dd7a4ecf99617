package broker

import (
	"errors"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// TestDefine makes what definitions say by the rules of clients' declarations, and leaves what is there as it is.
func TestDefine(t *testing.T) {
	b := newBroker(t)
	ctx := t.Context()
	for _, tc := range []struct {
		name    string
		declare QueueDeclare
		made    bool
		refused string
	}{
		{"new", QueueDeclare{Name: "q", Durable: true, Arguments: amqp.Table{{Name: "x-max-length", Value: int64(5)}}}, true, ""},
		{"again", QueueDeclare{Name: "q", Durable: true, Arguments: amqp.Table{{Name: "x-max-length", Value: int64(6)}}}, false, ""},
		{"in memory", QueueDeclare{Name: "m"}, true, ""},
		{"no name", QueueDeclare{Durable: true}, false, "queue name is empty"},
		{"line break", QueueDeclare{Name: "a\nb", Durable: true}, false, "queue name has line breaks, which clients' declarations lose"},
		{"wrong argument", QueueDeclare{Name: "w", Durable: true, Arguments: amqp.Table{{Name: "x-max-length", Value: "5"}}}, false, `invalid arg 'x-max-length' for queue 'w' in vhost '/': "expected integer, got longstr"`},
	} {
		made, was, err := b.DefineQueue(ctx, "/", tc.declare)
		if found := tc.name == "again"; (was != nil) != found || found && was.Name != tc.declare.Name {
			t.Errorf("%s: found %+v", tc.name, was)
		}
		if made != tc.made || (err == nil) != (tc.refused == "") || err != nil && err.Error() != tc.refused {
			t.Errorf("%s: %t, %v", tc.name, made, err)
		}
	}
	view := b.View()
	if limit, _ := view.Queue("/", "q").Arguments.Get("x-max-length"); limit != int64(5) {
		t.Errorf("the queue that was there has a limit of %v", limit)
	}
	if q := view.Queue("/", "m"); q.Kind != catalog.Transient || q.Members[0] != testNode {
		t.Errorf("queue %+v", q)
	}
	if _, _, err := b.DefineQueue(ctx, "none", QueueDeclare{Name: "q", Durable: true}); !isKind(err, NotFound) {
		t.Errorf("in a vhost that is not there: %v", err)
	}
	delayed := ExchangeDeclare{Name: "x", Type: "x-delayed-message", Durable: true, Arguments: amqp.Table{{Name: "x-delayed-type", Value: "direct"}}}
	for _, want := range []bool{true, false} {
		if made, was, err := b.DefineExchange(ctx, "/", delayed); made != want || (was == nil) != want || err != nil {
			t.Errorf("exchange made: %t, found %+v, %v", made, was, err)
		}
	}
	if x := b.View().Exchange("/", "x"); b.View().QueueByID(x.DelayQueue) == nil {
		t.Errorf("exchange %+v without a queue", x)
	}
	if _, _, err := b.DefineExchange(ctx, "/", ExchangeDeclare{Name: "y", Type: "none"}); !isKind(err, PreconditionFailed) {
		t.Errorf("an unknown type: %v", err)
	}
	if _, _, err := b.DefineExchange(ctx, "/", ExchangeDeclare{Name: "y\r", Type: "direct"}); !isKind(err, PreconditionFailed) {
		t.Errorf("a line break: %v", err)
	}
	if res, err := b.Define(ctx, &catalog.PutUser{User: auth.User{Name: "u"}}); err != nil || !res.Changed {
		t.Errorf("user: %+v, %v", res, err)
	}
	if _, err := b.Define(ctx, &catalog.PutUser{}); !isKind(err, PreconditionFailed) {
		t.Errorf("a user without a name: %v", err)
	}
	b.Everywhere(ctx)
}

func isKind(err error, k Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == k
}
