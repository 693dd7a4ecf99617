package exchange

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

func TestDedupID(t *testing.T) {
	of := func(v any) ([16]byte, error) {
		return DedupID(amqp.Table{{Name: "other", Value: "x"}, {Name: HeaderDedup, Value: v}})
	}
	if id, err := DedupID(nil); id != [16]byte{} || err != nil {
		t.Fatalf("no headers: %x, %v", id, err)
	}
	if id, err := DedupID(amqp.Table{{Name: "other", Value: "x"}}); id != [16]byte{} || err != nil {
		t.Fatalf("no id: %x, %v", id, err)
	}
	// Ids are in logs and manifests: the digest of a value never changes.
	for value, want := range map[any]string{"a": "4cf6829aa93728e8f3c97df913fb1bfa", int64(7): "c6fdf99115f899812d0a79aab2c54fb7"} {
		if id, err := of(value); err != nil || hex.EncodeToString(id[:]) != want {
			t.Errorf("digest of %v: %x, %v, want %s", value, id, err, want)
		}
	}
	same := [][]any{
		{"a", []byte("a")},
		{int8(7), uint8(7), int16(7), uint16(7), int32(7), uint32(7), int64(7)},
		{"7"},
		{"i\x00\x00\x00\x00\x00\x00\x00\x07"},
		{int32(-1)},
		{uint32(1<<32 - 1)},
		{strings.Repeat("x", 255)},
		{strings.Repeat("x", 256)},
		{strings.Repeat("x", 100_000)},
	}
	seen := map[[16]byte]int{}
	for i, values := range same {
		for _, v := range values {
			id, err := of(v)
			if at, known := seen[id]; err != nil || id == [16]byte{} || known && at != i {
				t.Fatalf("%v (%T): %x, %v, also of %v", v, v, id, err, same[at])
			}
			seen[id] = i
		}
	}
	if len(seen) != len(same) {
		t.Fatalf("%d ids for %d values", len(seen), len(same))
	}
	for _, v := range []any{nil, true, 1.5, float32(2), "", []byte{}, amqp.Table{}, amqp.Array{}, amqp.Timestamp(5), amqp.Decimal{}} {
		if id, err := of(v); err == nil || id != [16]byte{} || !strings.Contains(err.Error(), HeaderDedup) {
			t.Errorf("%T: %x, %v", v, id, err)
		}
	}
}

func BenchmarkDedupID(b *testing.B) {
	for name, headers := range map[string]amqp.Table{
		"none":  {{Name: "a", Value: "x"}, {Name: "b", Value: "x"}},
		"text":  {{Name: "a", Value: "x"}, {Name: HeaderDedup, Value: "2c1d9f0a-6d9f-4f5b-8d5e-1d1f7e0c5a11"}},
		"empty": nil,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DedupID(headers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
