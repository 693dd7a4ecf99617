package amqp

import (
	"bytes"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawShort(t *rapid.T, label string) string {
	return string(rapid.SliceOfN(rapid.Byte(), 0, 255).Draw(t, label))
}

func drawValue(t *rapid.T, depth int) any {
	kinds := 17
	if depth == 0 {
		kinds = 15
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int8().Draw(t, "int8")
	case 3:
		return rapid.Uint8().Draw(t, "uint8")
	case 4:
		return rapid.Int16().Draw(t, "int16")
	case 5:
		return rapid.Uint16().Draw(t, "uint16")
	case 6:
		return rapid.Int32().Draw(t, "int32")
	case 7:
		return rapid.Uint32().Draw(t, "uint32")
	case 8:
		return rapid.Int64().Draw(t, "int64")
	case 9:
		return math.Float32frombits(rapid.Uint32().Draw(t, "float32"))
	case 10:
		return math.Float64frombits(rapid.Uint64().Draw(t, "float64"))
	case 11:
		return Decimal{Scale: rapid.Uint8().Draw(t, "scale"), Value: rapid.Uint32().Draw(t, "decimal")}
	case 12:
		return rapid.String().Draw(t, "string")
	case 13:
		return rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
	case 14:
		return Timestamp(rapid.Uint64().Draw(t, "time"))
	case 15:
		return drawTable(t, depth-1)
	}
	a := Array{}
	for range rapid.IntRange(0, 4).Draw(t, "items") {
		a = append(a, drawValue(t, depth-1))
	}
	return a
}

func drawTable(t *rapid.T, depth int) Table {
	var tab Table
	for range rapid.IntRange(0, 5).Draw(t, "fields") {
		tab = append(tab, Field{Name: drawShort(t, "name"), Value: drawValue(t, depth)})
	}
	return tab
}

// drawMethod returns a method with every field drawn, found by reflection so that no
// method can be forgotten.
func drawMethod(t *rapid.T) Method {
	id := rapid.SampledFrom(Methods()).Draw(t, "method")
	m := newMethod(t, id)
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		switch f.Interface().(type) {
		case Table:
			f.Set(reflect.ValueOf(drawTable(t, 2)))
		case string:
			s := drawShort(t, name)
			if info, _ := id.Info(); info.FromClient && !info.Content {
				s = CutString(strings.ToValidUTF8(s, "?"), 255)
			}
			f.SetString(s)
		case bool:
			f.SetBool(rapid.Bool().Draw(t, name))
		default:
			bits := f.Type().Bits()
			f.SetUint(rapid.Uint64Max(math.MaxUint64>>(64-bits)).Draw(t, name))
		}
	}
	return m
}

// newMethod returns an empty method by number, by way of a payload of zeros of the
// right length.
func newMethod(t rapid.TB, id MethodID) Method {
	payload := []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
	for range 64 {
		if m, err := Decode(payload); err == nil {
			return m
		}
		payload = append(payload, 0)
	}
	t.Fatalf("no payload of zeros decodes as %s", id)
	return nil
}

// sameMethod compares by value with tables compared by [Table.Equal].
func sameMethod(a, b Method) bool {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	if va.Type() != vb.Type() {
		return false
	}
	for i := range va.NumField() {
		x, y := va.Field(i).Interface(), vb.Field(i).Interface()
		if tx, ok := x.(Table); ok {
			if !tx.Equal(y.(Table)) {
				return false
			}
		} else if x != y {
			return false
		}
	}
	return true
}

func TestRapidMethods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawMethod(t)
		payload := want.AppendTo(nil)
		got, err := Decode(payload)
		if err != nil || !sameMethod(got, want) {
			t.Fatalf("Decode(%x): got %+v %v, want %+v", payload, got, err, want)
		}
		reused := newMethod(t, want.ID())
		for range 2 { // the second time over its own old contents
			if err := reused.Decode(payload); err != nil || !sameMethod(reused, want) {
				t.Fatalf("Decode into a used struct: got %+v %v, want %+v", reused, err, want)
			}
		}
		cut := rapid.IntRange(0, len(payload)-1).Draw(t, "cut")
		if m, err := Decode(payload[:cut]); err == nil {
			t.Fatalf("Decode of %d of %d bytes: got %+v, want an error", cut, len(payload), m)
		}
		if frame := want.AppendFrame([]byte{1, 2}, 9); !bytes.Equal(frame[2:], AppendFrame(nil, FrameMethod, 9, payload)) {
			t.Fatalf("AppendFrame: got %x", frame)
		}
	})
}

func TestRapidTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawTable(t, 4)
		raw := AppendTable(nil, want)
		got, err := DecodeTable(raw)
		if err != nil || !got.Equal(want) {
			t.Fatalf("DecodeTable(%x): got %v %v, want %v", raw, got, err, want)
		}
		if again := AppendTable(nil, got); !bytes.Equal(again, raw) {
			t.Fatalf("AppendTable: got %x, want %x", again, raw)
		}
		if clone := got.Clone(); !clone.Equal(want) {
			t.Fatalf("Clone: got %v, want %v", clone, want)
		}
		if err := want.Validate(); err != nil {
			t.Fatalf("Validate: %v", err)
		}
		for _, f := range want {
			first, _ := want.Get(f.Name)
			if v, ok := lookupRaw(raw, f.Name); !ok || !EqualValues(v, first) {
				t.Fatalf("lookupRaw(%q): got %v %v, want %v", f.Name, v, ok, first)
			}
		}
	})
}

func drawProperties(t *rapid.T) *Properties {
	p := new(Properties)
	for _, set := range []func(string){
		p.SetContentType, p.SetContentEncoding, p.SetCorrelationID, p.SetReplyTo, p.SetExpiration,
		p.SetMessageID, p.SetType, p.SetUserID, p.SetAppID, p.SetClusterID,
	} {
		set(drawShort(t, "property"))
	}
	p.SetHeaders(drawTable(t, 2))
	p.SetDeliveryMode(rapid.Uint8().Draw(t, "mode"))
	p.SetPriority(rapid.Uint8().Draw(t, "priority"))
	p.SetTimestamp(Timestamp(rapid.Uint64().Draw(t, "timestamp")))
	p.Remove(PropertyFlags(rapid.Uint16().Draw(t, "absent")))
	return p
}

func TestRapidProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawProperties(t)
		raw := RawProperties(want.AppendTo(nil))
		if err := raw.Validate(); err != nil {
			t.Fatalf("Validate(%x): %v", raw, err)
		}
		got, err := DecodeProperties(raw)
		if err != nil || got.Flags() != want.Flags() || !bytes.Equal(got.AppendTo(nil), raw) {
			t.Fatalf("DecodeProperties(%x): got %+v %v", raw, got, err)
		}
		drop := PropertyFlags(rapid.Uint16().Draw(t, "drop"))
		got.Remove(drop)
		if without := raw.Without(drop); !bytes.Equal(without, got.AppendTo(nil)) {
			t.Fatalf("Without(%04x) of %x: got %x", drop, raw, without)
		}
	})
}

// TestRapidStream sends frames of all kinds through a reader that gets them in
// pieces of arbitrary size.
func TestRapidStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []Frame
		var stream []byte
		for range rapid.IntRange(1, 40).Draw(t, "frames") {
			f := Frame{
				Type:    rapid.SampledFrom([]uint8{FrameMethod, FrameHeader, FrameBody, FrameHeartbeat}).Draw(t, "type"),
				Channel: rapid.Uint16().Draw(t, "channel"),
				Payload: make([]byte, rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 9000)).Draw(t, "size")),
			}
			for i := range f.Payload {
				f.Payload[i] = byte(i * len(want))
			}
			want = append(want, f)
			stream = AppendFrame(stream, f.Type, f.Channel, f.Payload)
		}
		src := &chunks{}
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 20000)).Draw(t, "chunk"))
			src.add(slices.Clone(rest[:n]))
			rest = rest[n:]
		}
		fr := NewFrameReader(src)
		fr.SetMax(9000)
		for i, w := range want {
			got, err := fr.Next()
			if err != nil || got.Type != w.Type || got.Channel != w.Channel || !bytes.Equal(got.Payload, w.Payload) {
				t.Fatalf("frame %d: got %d/%d with %d bytes, %v", i, got.Type, got.Channel, len(got.Payload), err)
			}
		}
		if _, err := fr.Next(); err != io.EOF {
			t.Fatalf("at the end: got %v, want EOF", err)
		}
	})
}
