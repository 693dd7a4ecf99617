package grpc

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	wire "github.com/warrenmq/warren/amqp"
	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// values draws a value of any type, tables and arrays down to a depth.
func values(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 16
		if depth == 0 {
			kinds = 14
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.String().Draw(t, "string")
		case 3:
			return string(rapid.SliceOf(rapid.Byte()).Draw(t, "binary string"))
		case 4:
			return append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
		case 5:
			return rapid.Int8().Draw(t, "int8")
		case 6:
			return rapid.Uint8().Draw(t, "uint8")
		case 7:
			return rapid.Int16().Draw(t, "int16")
		case 8:
			return rapid.Uint16().Draw(t, "uint16")
		case 9:
			return rapid.Int32().Draw(t, "int32")
		case 10:
			return rapid.Uint32().Draw(t, "uint32")
		case 11:
			return rapid.Int64().Draw(t, "int64")
		case 12:
			return wire.Decimal{Scale: rapid.Uint8().Draw(t, "scale"), Value: rapid.Uint32().Draw(t, "value")}
		case 13:
			return wire.Timestamp(rapid.Uint64().Draw(t, "timestamp"))
		case 14:
			array := wire.Array{}
			for range rapid.IntRange(0, 3).Draw(t, "length") {
				array = append(array, values(depth-1).Draw(t, "item"))
			}
			return array
		}
		return tables(depth-1).Draw(t, "table")
	})
}

// tables draws a table whose names are in order, each once.
func tables(depth int) *rapid.Generator[wire.Table] {
	return rapid.Custom(func(t *rapid.T) wire.Table {
		table := wire.Table{}
		for _, name := range rapid.SliceOfNDistinct(rapid.OneOf(rapid.StringN(0, 20, 60), rapid.Just("\xff\xfe")), 0, 4, rapid.ID).Draw(t, "names") {
			table = append(table, wire.Field{Name: name, Value: values(depth).Draw(t, "value")})
		}
		sorted := wire.Table{}
		for len(table) > 0 {
			least := 0
			for i := range table {
				if table[i].Name < table[least].Name {
					least = i
				}
			}
			sorted = append(sorted, table[least])
			table = append(table[:least], table[least+1:]...)
		}
		return sorted
	})
}

// send passes a message through protobuf's encoding, as on the wire.
func send[M proto.Message](t interface{ Fatal(args ...any) }, m, to M) M {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(b, to); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestTablesKeepTheirTypes: a table from AMQP is the same one after the way to a gRPC client and back.
func TestTablesKeepTheirTypes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := tables(3).Draw(t, "table")
		back, err := tableOf(send(t, tableFor(table), &warrenv1.Table{}))
		if err != nil {
			t.Fatal(err)
		}
		if !back.Equal(table) {
			t.Fatalf("%v came back as %v", table, back)
		}
	})
	for _, v := range []any{float32(1.5), math.Inf(-1), 0.1} { // rapid's NaN is not equal to itself
		table := wire.Table{{Name: "v", Value: v}}
		if back, err := tableOf(send(t, tableFor(table), &warrenv1.Table{})); err != nil || !back.Equal(table) {
			t.Errorf("%v came back as %v, %v", table, back, err)
		}
	}
}

// TestPropertiesKeepTheirBytes: the same for properties, of which each is there or not.
func TestPropertiesKeepTheirBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p wire.Properties
		text := rapid.OneOf(rapid.StringN(0, 60, 255), rapid.Just("\x00\xff"))
		for i := range texts {
			if rapid.Bool().Draw(t, texts[i].name) {
				texts[i].set(&p, text.Draw(t, "text"))
			}
		}
		if rapid.Bool().Draw(t, "delivery_mode") {
			p.SetDeliveryMode(rapid.Uint8().Draw(t, "mode"))
		}
		if rapid.Bool().Draw(t, "priority") {
			p.SetPriority(rapid.Uint8().Draw(t, "n"))
		}
		if rapid.Bool().Draw(t, "timestamp") {
			p.SetTimestamp(wire.Timestamp(rapid.Uint64().Draw(t, "seconds")))
		}
		if rapid.Bool().Draw(t, "headers") {
			p.SetHeaders(tables(2).Draw(t, "table"))
		}
		raw := wire.RawProperties(p.AppendTo(nil))
		ours := propertiesFor(raw)
		if ours == nil {
			ours = &warrenv1.Properties{}
		}
		back, err := propertiesOf(nil, send(t, ours, &warrenv1.Properties{}), "")
		if err != nil {
			t.Fatal(err)
		}
		if string(back) != string(raw) {
			t.Fatalf("%x came back as %x", raw, back)
		}
	})
}

func TestBadMessages(t *testing.T) {
	s := &Server{cfg: Config{MessageBytesMax: 10}}
	long := string(make([]byte, 256))
	deep := &warrenv1.Value{}
	for range 100 {
		deep = &warrenv1.Value{Kind: &warrenv1.Value_ArrayValue{ArrayValue: &warrenv1.Array{Values: []*warrenv1.Value{deep}}}}
	}
	of := func(p *warrenv1.Properties) *warrenv1.Publication {
		return &warrenv1.Publication{Message: &warrenv1.Message{Properties: p}}
	}
	header := func(v *warrenv1.Value) *warrenv1.Publication {
		return of(&warrenv1.Properties{Headers: &warrenv1.Table{Fields: map[string]*warrenv1.Value{"h": v}}})
	}
	for name, p := range map[string]*warrenv1.Publication{
		"no message":       {},
		"large body":       {Message: &warrenv1.Message{Body: make([]byte, 11)}},
		"long exchange":    {Message: &warrenv1.Message{Exchange: long}},
		"long key":         {Message: &warrenv1.Message{RoutingKey: long}},
		"long binary key":  {Message: &warrenv1.Message{BinaryRoutingKey: []byte(long)}},
		"long property":    of(&warrenv1.Properties{MessageId: &long}),
		"large mode":       of(&warrenv1.Properties{DeliveryMode: proto.Uint32(256)}),
		"large priority":   of(&warrenv1.Properties{Priority: proto.Uint32(256)}),
		"no such property": of(&warrenv1.Properties{Binary: map[string][]byte{"priority": nil}}),
		"long field name":  of(&warrenv1.Properties{Headers: &warrenv1.Table{Fields: map[string]*warrenv1.Value{long: {}}}}),
		"deep":             header(deep),
		"large header":     header(&warrenv1.Value{Kind: &warrenv1.Value_StringValue{StringValue: strings.Repeat("h", wire.PropertiesMax)}}),
		"int8":             header(&warrenv1.Value{Kind: &warrenv1.Value_Int8Value{Int8Value: 128}}),
		"uint8":            header(&warrenv1.Value{Kind: &warrenv1.Value_Uint8Value{Uint8Value: 256}}),
		"int16":            header(&warrenv1.Value{Kind: &warrenv1.Value_Int16Value{Int16Value: -32769}}),
		"uint16":           header(&warrenv1.Value{Kind: &warrenv1.Value_Uint16Value{Uint16Value: 65536}}),
		"scale":            header(&warrenv1.Value{Kind: &warrenv1.Value_DecimalValue{DecimalValue: &warrenv1.Decimal{Scale: 256}}}),
	} {
		if _, err := s.publicationOf(p); err == nil {
			t.Errorf("%s: taken", name)
		} else if r, ok := errors.AsType[*refusal](err); !ok || r.reason != reasonInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConsumerPriority: it is a field, or AMQP's argument.
func TestConsumerPriority(t *testing.T) {
	argument := func(n int64) *warrenv1.Table {
		return &warrenv1.Table{Fields: map[string]*warrenv1.Value{"x-priority": {Kind: &warrenv1.Value_Int64Value{Int64Value: n}}}}
	}
	for _, c := range []struct {
		open *warrenv1.ConsumeOpen
		want int32
	}{
		{&warrenv1.ConsumeOpen{Priority: -3}, -3},
		{&warrenv1.ConsumeOpen{Arguments: argument(5)}, 5},
		{&warrenv1.ConsumeOpen{Arguments: argument(5), Priority: 5}, 5},
		{&warrenv1.ConsumeOpen{Arguments: argument(math.MaxInt64)}, math.MaxInt32},
	} {
		if spec, err := consumeOf(c.open); err != nil || spec.Priority != c.want {
			t.Errorf("%v: got %d, %v", c.open, spec.Priority, err)
		}
	}
	if _, err := consumeOf(&warrenv1.ConsumeOpen{Arguments: argument(5), Priority: 4}); err == nil {
		t.Error("two priorities are taken")
	}
}

// FuzzPublication: whatever a client sends is a message that is valid in AMQP, or refused.
func FuzzPublication(f *testing.F) {
	b, _ := proto.Marshal(&warrenv1.Publication{Message: &warrenv1.Message{
		Exchange: "x", BinaryRoutingKey: []byte{255}, Body: []byte("body"),
		Properties: &warrenv1.Properties{
			MessageId: new("id"), Binary: map[string][]byte{"type": {255}},
			Headers: &warrenv1.Table{
				Fields:       map[string]*warrenv1.Value{"h": {Kind: &warrenv1.Value_Int8Value{Int8Value: -1}}, "void": {}},
				BinaryFields: []*warrenv1.BinaryField{{Name: []byte{255}}},
			},
		},
	}, DeduplicationId: "d"})
	f.Add(b)
	s := &Server{cfg: Config{MessageBytesMax: 1 << 20}}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &warrenv1.Publication{}
		if proto.Unmarshal(b, p) != nil {
			return
		}
		m, err := s.publicationOf(p)
		if err != nil {
			if r := refusalOf(err); r.reason != reasonInvalid {
				t.Fatalf("%v", err)
			}
			return
		}
		if err := m.Properties.Validate(); err != nil {
			t.Fatalf("passed on: %v", err)
		}
		back := messageFor(m.Exchange, m.Key, m.Properties, m.Body)
		if _, err := proto.Marshal(back); err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(back.GetExchange()) {
			t.Fatal("no text")
		}
		deathsFor(back)
	})
}
