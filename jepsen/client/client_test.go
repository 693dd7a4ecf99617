package client

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/history"
)

func TestBody(t *testing.T) {
	for _, size := range []int{0, 5, 256, 10000} {
		b := body("1.2.3", size)
		if id, sound := readBody(b); id != "1.2.3" || !sound || len(b) > max(size, 6) {
			t.Errorf("size %d: %q of %d bytes, %v", size, id, len(b), sound)
		}
		for name, bad := range map[string][]byte{"cut": b[:len(b)-1], "longer": append(slices.Clip(b), 'x'), "empty": nil} {
			if _, sound := readBody(bad); sound {
				t.Errorf("size %d: a body that is %s is sound", size, name)
			}
		}
	}
}

func TestDeaths(t *testing.T) {
	h := amqp.Table{"x-death": []any{amqp.Table{"count": int64(2)}, amqp.Table{"count": int64(3)}, "nonsense"}}
	if n := deaths(h); n != 5 {
		t.Errorf("%d deaths, want 5", n)
	}
	if n := deaths(nil); n != 0 {
		t.Errorf("%d deaths, want 0", n)
	}
}

// TestOutcome: only what the broker certainly refused has failed.
func TestOutcome(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want history.Type
	}{
		{nil, history.OK},
		{errors.New("i/o timeout"), history.Info},
		{amqp.ErrClosed, history.Info},
		{fmt.Errorf("declare: %w", &amqp.Error{Code: amqp.PreconditionFailed, Server: true}), history.Fail},
		{&amqp.Error{Code: amqp.ConnectionForced, Server: true}, history.Info},
		{&amqp.Error{Code: amqp.InternalError, Server: true}, history.Info},
	} {
		if got := Outcome(tc.err); got != tc.want {
			t.Errorf("Outcome(%v) = %s, want %s", tc.err, got, tc.want)
		}
	}
}

// TestTables: headers are the same after having gone over gRPC.
func TestTables(t *testing.T) {
	h := amqp.Table{"x-delay": int32(-5), "n": int64(1) << 40, "s": "text", "b": true}
	there, err := toTable(h)
	if err != nil {
		t.Fatal(err)
	}
	if back := fromTable(there); !maps.Equal(back, h) {
		t.Errorf("%v came back as %v", h, back)
	}
	if _, err := toTable(amqp.Table{"f": 1.5}); err == nil {
		t.Error("a header is left out in silence")
	}
}
