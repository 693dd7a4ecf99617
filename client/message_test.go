package client

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// anyText is a text or bytes that are none.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
}

func anyTime() *rapid.Generator[time.Time] {
	return rapid.Map(rapid.Int64Range(0, 1<<40), func(n int64) time.Time { return time.Unix(n, 0).UTC() })
}

func anyValue(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int8().AsAny(), rapid.Int16().AsAny(), rapid.Int32().AsAny(), rapid.Int64().AsAny(),
		rapid.Uint8().AsAny(), rapid.Uint16().AsAny(), rapid.Uint32().AsAny(), rapid.Float32().AsAny(), rapid.Float64().AsAny(), anyText().AsAny(),
		rapid.SliceOf(rapid.Byte()).AsAny(), anyTime().AsAny(),
		rapid.Map(rapid.Uint64(), func(n uint64) any { return Decimal{uint8(n >> 32), uint32(n)} }),
	}
	if depth > 0 {
		kinds = append(kinds, anyTable(depth-1).AsAny(), rapid.SliceOfN(anyValue(depth-1), 0, 3).AsAny())
	}
	return rapid.OneOf(kinds...)
}

func anyTable(depth int) *rapid.Generator[Table] {
	return rapid.Map(rapid.MapOfN(anyText(), anyValue(depth), 0, 4), func(m map[string]any) Table { return m })
}

// TestMessagesGoThere and come back as they were.
func TestMessagesGoThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyText()
		m := Message{
			Exchange: text.Draw(t, "exchange"), RoutingKey: text.Draw(t, "key"), Body: rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "body"),
			Headers: anyTable(3).Draw(t, "headers"), ContentType: text.Draw(t, "type"), ContentEncoding: text.Draw(t, "encoding"),
			DeliveryMode: rapid.Uint8Min(1).Draw(t, "mode"), Priority: rapid.Uint8().Draw(t, "priority"), CorrelationID: text.Draw(t, "correlation"),
			ReplyTo: text.Draw(t, "reply"), Expiration: text.Draw(t, "expiration"), MessageID: text.Draw(t, "id"), Timestamp: anyTime().Draw(t, "time"),
			Type: text.Draw(t, "kind"), UserID: text.Draw(t, "user"), AppID: text.Draw(t, "app"), ClusterID: text.Draw(t, "cluster"),
		}
		p, err := m.publication()
		if err != nil {
			t.Fatal(err)
		}
		wire, err := proto.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var there warrenv1.Publication
		if err := proto.Unmarshal(wire, &there); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, messageOf(there.GetMessage())); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTables(t *testing.T) {
	deep := Table{}
	for range depthMax + 1 {
		deep = Table{"t": deep}
	}
	var long any = 1
	for range depthMax + 1 {
		long = []any{long}
	}
	for name, v := range map[string]any{"uint": uint(1), "uint64": uint64(1), "struct": struct{}{}, "list of texts": []string{"a"}, "inside": Table{"a": []any{uint(1)}}, "deep": deep, "long": long} {
		if _, err := (Table{"v": v}).proto(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	p, err := Table{"int": 7, "map": map[string]any{"a": true}}.proto()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Table{"int": int64(7), "map": Table{"a": true}}, tableOf(p)); diff != "" {
		t.Error(diff)
	}
	if p, err := (&Message{}).publication(); err != nil || p.GetMessage().GetProperties().GetDeliveryMode() != uint32(Persistent) {
		t.Errorf("%v, %v", p, err)
	}
	if got := Expire(1500 * time.Millisecond); got != "1500" {
		t.Error(got)
	}
}
