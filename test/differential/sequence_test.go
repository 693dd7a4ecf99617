package main

import (
	"reflect"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestSequences: a seed is enough to repeat a sequence, and each method can be carried out.
func TestSequences(t *testing.T) {
	used := map[string]bool{}
	for seed := range uint64(200) {
		m := &mixes[seed%uint64(len(mixes))]
		ops := m.sequence(seed, 60)
		if !reflect.DeepEqual(ops, m.sequence(seed, 60)) {
			t.Fatalf("seed %d makes two sequences", seed)
		}
		for _, o := range ops {
			used[o.kind] = true
			if methods[o.kind] == nil {
				t.Fatalf("seed %d: no method %s", seed, o.kind)
			}
		}
	}
	if want := len(kinds) + len(policyKinds); len(used) != want || len(methods) != want {
		t.Errorf("%d methods are used, of %d; %d can be carried out", len(used), want, len(methods))
	}
}

// TestShown: what RabbitMQ 3.10 tells in another way than Warren and later versions looks the same.
func TestShown(t *testing.T) {
	keys := []any{"q1"}
	for _, tc := range []struct {
		v    amqp.Table
		want string
	}{
		{amqp.Table{"CC": keys}, "{CC=[string(q1)]}"},
		{amqp.Table{"CC": keys, "x-death": []any{amqp.Table{"count": int64(1), "time": "now"}}, "x-last-death-queue": "q"}, "{x-death=[{count=int64(1)}]}"},
		{amqp.Table{"x-acquired-count": int64(2), "x-delivery-count": int64(1)}, "{x-delivery-count=int64(2)}"},
		{amqp.Table{"x-delivery-count": int64(0)}, "{}"},
	} {
		if got := shown(tc.v); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.v, got, tc.want)
		}
	}
}
