package broker

import (
	"errors"
	"reflect"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/policy"
)

func TestPolicyPreview(t *testing.T) {
	b, c := deadLetterRig(t)
	c.declare("orders.new", nil)
	c.declare("orders.old", nil)
	ttl := amqp.Table{{Name: "message-ttl", Value: int64(1000)}}
	if _, err := b.PutPolicy(t.Context(), policy.Spec{VHost: "/", Name: "strong", Pattern: "^orders.old$", ApplyTo: policy.Queues, Priority: 5, Definition: ttl}); err != nil {
		t.Fatal(err)
	}
	got, err := b.PreviewPolicy(policy.Spec{VHost: "/", Pattern: "^orders", ApplyTo: policy.All, Definition: ttl})
	if want := (PolicyMatches{Matched: 2, Others: 1, Names: []string{"orders.new"}}); err != nil || !reflect.DeepEqual(got.Queues, want) || got.Exchanges.Matched != 0 {
		t.Errorf("%+v: %v", got, err)
	}
	// An operator policy does not compete with the other kind.
	got, err = b.PreviewPolicy(policy.Spec{VHost: "/", Operator: true, Pattern: "^orders", ApplyTo: policy.Queues, Definition: ttl})
	if err != nil || got.Queues.Others != 0 || len(got.Queues.Names) != 2 {
		t.Errorf("%+v: %v", got, err)
	}
	got, err = b.PreviewPolicy(policy.Spec{VHost: "/", Pattern: "fanout$", ApplyTo: policy.Exchanges, Definition: amqp.Table{{Name: "alternate-exchange", Value: "x"}}})
	if err != nil || !reflect.DeepEqual(got.Exchanges.Names, []string{"amq.fanout"}) || got.Queues.Matched != 0 {
		t.Errorf("%+v: %v", got, err)
	}
	if _, err := b.PreviewPolicy(policy.Spec{VHost: "/", Pattern: "(", ApplyTo: policy.Queues, Definition: ttl}); err == nil {
		t.Error("a bad pattern has a preview")
	} else if _, ok := errors.AsType[*policy.Invalid](err); !ok {
		t.Errorf("%T %v", err, err)
	}
	if len(b.cat.View().Policies("/").List(false)) != 1 {
		t.Error("a preview has made a policy")
	}
}
