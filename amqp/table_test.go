package amqp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// everyType holds one field of each type, in the order of the letters.
func everyType() Table {
	return Table{
		{Name: "t", Value: true},
		{Name: "b", Value: int8(-2)},
		{Name: "B", Value: uint8(254)},
		{Name: "s", Value: int16(-3)},
		{Name: "u", Value: uint16(65533)},
		{Name: "I", Value: int32(-4)},
		{Name: "i", Value: uint32(4294967292)},
		{Name: "l", Value: int64(-5)},
		{Name: "f", Value: float32(1.5)},
		{Name: "d", Value: math.Pi},
		{Name: "D", Value: Decimal{Scale: 2, Value: 1234}},
		{Name: "S", Value: "long"},
		{Name: "A", Value: Array{int32(1), "two", nil}},
		{Name: "T", Value: Timestamp(1700000000)},
		{Name: "F", Value: Table{{Name: "in", Value: Table(nil)}}},
		{Name: "V", Value: nil},
		{Name: "x", Value: []byte{0, 255}},
	}
}

const everyTypeHex = `0000008f
	01 74 74 01
	01 62 62 fe
	01 42 42 fe
	01 73 73 fffd
	01 75 75 fffd
	01 49 49 fffffffc
	01 69 69 fffffffc
	01 6c 6c fffffffffffffffb
	01 66 66 3fc00000
	01 64 64 400921fb54442d18
	01 44 44 02 000004d2
	01 53 53 00000004 6c6f6e67
	01 41 41 0000000e 49 00000001 53 00000003 74776f 56
	01 54 54 000000006553f100
	01 46 46 00000008 02 696e 46 00000000
	01 56 56
	01 78 78 00000002 00ff`

func TestTableGolden(t *testing.T) {
	want := unhex(t, everyTypeHex)
	if got := AppendTable(nil, everyType()); !bytes.Equal(got, want) {
		t.Errorf("AppendTable:\n got %x\nwant %x", got, want)
	}
	got, err := DecodeTable(want)
	if err != nil {
		t.Fatalf("DecodeTable: %v", err)
	}
	if !reflect.DeepEqual(got, everyType()) {
		t.Errorf("DecodeTable:\n got %#v\nwant %#v", got, everyType())
	}
	if err := got.Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
	for n := range len(want) {
		if _, err := DecodeTable(want[:n]); err == nil {
			t.Errorf("DecodeTable of %d of %d bytes: want an error", n, len(want))
		}
	}
}

// TestTableOddEncodings covers values whose letter or bytes are not the ones their
// Go type has.
func TestTableOddEncodings(t *testing.T) {
	odd := unhex(t, `0000003e
		01 61 4c fffffffffffffffe
		01 62 74 02
		01 63 41 0000000b 4c 0000000000000001 74 ff
		01 64 46 0000000b 01 65 4c 8000000000000000
		01 66 6c 0000000000000001`)

	got, err := DecodeTable(odd)
	if err != nil {
		t.Fatalf("DecodeTable(%x): %v", odd, err)
	}
	want := Table{
		{Name: "a", Value: int64(-2)},
		{Name: "b", Value: true},
		{Name: "c", Value: Array{int64(1), true}},
		{Name: "d", Value: Table{{Name: "e", Value: int64(math.MinInt64)}}},
		{Name: "f", Value: int64(1)},
	}
	if !got.Equal(want) {
		t.Fatalf("DecodeTable: got %v, want %v", got, want)
	}
	if again := AppendTable(nil, got); !bytes.Equal(again, odd) {
		t.Errorf("AppendTable:\n got %x\nwant %x", again, odd)
	}
	if again := AppendTable(nil, got.Clone()); !bytes.Equal(again, odd) {
		t.Errorf("AppendTable of a clone:\n got %x\nwant %x", again, odd)
	}

	// A changed value wins over the bytes it came from; its neighbours keep theirs.
	got.Set("a", int64(7))
	got[2].Value.(Array)[0] = int64(9)
	changed, err := DecodeTable(AppendTable(nil, got))
	if err != nil {
		t.Fatalf("DecodeTable after a change: %v", err)
	}
	if !changed.Equal(got) {
		t.Errorf("after a change: got %v, want %v", changed, got)
	}
	if enc := AppendTable(nil, got); !bytes.Contains(enc, unhex(t, "01 62 74 02")) {
		t.Errorf("an untouched field lost its encoding: %x", enc)
	}
}

func TestTableMalformed(t *testing.T) {
	cases := []struct{ name, hex, text string }{
		{"unknown letter", "00000003 01 61 7a", "unknown field type"},
		{"letter missing", "00000002 01 61", "runs past the end"},
		{"length beyond the end", "00000005 01 61 56", "runs past the end"},
		{"huge length", "ffffffff", "too large"},
		{"name beyond the end", "00000002 ff 61", "runs past the end"},
		{"value beyond its table", "00000008 01 61 46 00000001 01 61 56", "past the end"},
		{"first value far beyond its table", "00000022 01 61 46 00000002 01 62 53 00000014" + strings.Repeat("20", 20), "past the end"},
		{"string length wraps", "00000007 01 61 53 ffffffff", "runs past the end"},
		{"array item beyond the array", "0000000a 01 61 41 00000001 49 00000001", "past the end"},
		{"bytes behind", "00000003 01 61 56 00", "left over"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			raw := unhex(t, tc.hex)
			_, err := DecodeTable(raw)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Code != SyntaxError || !strings.Contains(e.Text, tc.text) {
				t.Errorf("DecodeTable(%x): got %v, want a syntax error with %q", raw, err, tc.text)
			}
		})
	}
}

// nested returns a table whose tables and arrays nest depth deep.
func nested(depth int) Table {
	var v any = Table(nil)
	for i := 1; i < depth; i++ {
		if i == depth-1 || i%2 == 0 {
			v = Table{{Name: "n", Value: v}}
		} else {
			v = Array{v}
		}
	}
	return v.(Table)
}

func TestTableLimits(t *testing.T) {
	wide := func(n int) Table { return Table{{Name: "a", Value: make(Array, n)}} }
	long := func(n int) Table { return Table{{Name: "a", Value: strings.Repeat("x", n)}} }
	cases := []struct {
		name  string
		table Table
		ok    bool
	}{
		{"deepest", nested(TableDepthMax), true},
		{"too deep", nested(TableDepthMax + 1), false},
		{"most values", wide(TableValuesMax - 1), true},
		{"too many values", wide(TableValuesMax), false},
		{"largest", long(TableBytesMax - 7), true},
		{"too large", long(TableBytesMax - 6), false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			raw := AppendTable(nil, tc.table)
			_, err := DecodeTable(raw)
			if (err == nil) != tc.ok {
				t.Errorf("DecodeTable: got %v, want ok=%v", err, tc.ok)
			}
			if err := tc.table.Validate(); (err == nil) != tc.ok {
				t.Errorf("Table.Validate: got %v, want ok=%v", err, tc.ok)
			}
			props := append(RawProperties{0x20, 0}, raw...)
			if err := props.Validate(); (err == nil) != tc.ok {
				t.Errorf("RawProperties.Validate: got %v, want ok=%v", err, tc.ok)
			}
		})
	}
}

// TestTableMemoryIsBounded decodes the tables that cost most memory for the bytes of
// one frame.
func TestTableMemoryIsBounded(t *testing.T) {
	const frame, bytesMax = 128 << 10, 10 << 20
	repeat := func(item string, room int) []byte {
		piece := unhex(t, item)
		return bytes.Repeat(piece, room/len(piece))
	}
	fields := func(field string) []byte {
		all := repeat(field, frame-4)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(all))), all...)
	}
	items := func(item string) []byte {
		all := repeat(item, frame-10)
		head := binary.BigEndian.AppendUint32(nil, uint32(len(all)+6))
		return append(binary.BigEndian.AppendUint32(append(head, 0, 'A'), uint32(len(all))), all...)
	}
	for name, raw := range map[string][]byte{
		"fields":                fields("00 56"),
		"named fields":          fields("01 61 49 00000400"),
		"odd longs in fields":   fields("00 4c 0000000000000400"),
		"voids in an array":     items("56"),
		"tables in an array":    items("46 00000002 00 56"),
		"arrays in an array":    items("41 00000001 56"),
		"odd longs in an array": items("4c 0000000000000400"),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeTable(raw)
		runtime.ReadMemStats(&after)
		cost := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes of table cost %d of memory (%v)", name, len(raw), cost, err)
		if cost > bytesMax {
			t.Errorf("%s: want at most %d", name, bytesMax)
		}
	}
}

func TestTableValidate(t *testing.T) {
	for _, bad := range []Table{
		{{Name: "x", Value: struct{}{}}},
		{{Name: "x", Value: uint64(1)}},
		{{Name: "x", Value: []any{1}}},
		{{Name: "x", Value: Array{map[string]any{}}}},
		{{Name: "x", Value: Table{{Name: "y", Value: make(chan int)}}}},
		{{Name: strings.Repeat("n", 256), Value: nil}},
	} {
		if err := bad.Validate(); err == nil {
			t.Errorf("Validate(%.60v): want an error", bad)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("AppendTable of a Go type without a field type: want a panic")
		}
	}()
	AppendTable(nil, Table{{Name: "x", Value: uint64(1)}})
}

func TestTableEditing(t *testing.T) {
	tab := Table{{Name: "a", Value: int32(1)}, {Name: "b", Value: "x"}, {Name: "a", Value: int32(2)}}
	if v, ok := tab.Get("a"); !ok || v != int32(1) {
		t.Errorf("Get of a repeated name: got %v %v, want the first", v, ok)
	}
	tab.Set("b", "y")
	tab.Set("c", nil)
	want := Table{{Name: "a", Value: int32(1)}, {Name: "b", Value: "y"}, {Name: "a", Value: int32(2)}, {Name: "c", Value: nil}}
	if !tab.Equal(want) {
		t.Errorf("after Set: got %v, want %v", tab, want)
	}
	if !tab.Delete("a") || tab.Delete("a") {
		t.Error("Delete: want true once")
	}
	if want := (Table{{Name: "b", Value: "y"}, {Name: "c", Value: nil}}); !tab.Equal(want) {
		t.Errorf("after Delete: got %v, want %v", tab, want)
	}
	if v, ok := tab.Get("c"); !ok || v != nil {
		t.Errorf("Get of a void: got %v %v, want nil true", v, ok)
	}
	if _, ok := tab.Get("zz"); ok {
		t.Error("Get of an absent name: want false")
	}
}

func TestTableClone(t *testing.T) {
	orig := everyType()
	clone := orig.Clone()
	if !clone.Equal(orig) {
		t.Fatalf("Clone: got %v, want %v", clone, orig)
	}
	clone[12].Value.(Array)[0] = "changed"
	clone[14].Value.(Table)[0].Value = "changed"
	clone[16].Value.([]byte)[0] = 9
	if !orig.Equal(everyType()) {
		t.Errorf("changing the clone changed the original: %v", orig)
	}
	if Table(nil).Clone() != nil {
		t.Error("Clone of nil: want nil")
	}
}

func TestEqualValues(t *testing.T) {
	values := []any{
		nil, true, false, int8(1), uint8(1), int16(1), uint16(1), int32(1), uint32(1), int64(1), float32(1), float64(1),
		float32(math.NaN()), math.NaN(), math.Copysign(0, -1), 0.0,
		Decimal{1, 2},
		"1", "", []byte("1"),
		[]byte{},
		Timestamp(1),
		Table(nil),
		Table{{Name: "a", Value: int8(1)}},
		Table{{Name: "a", Value: int16(1)}},
		Array{},
		Array{int8(1)},
		Array{int16(1)},
	}
	for i, a := range values {
		for j, b := range values {
			if got := EqualValues(a, b); got != (i == j) {
				t.Errorf("EqualValues(%T %v, %T %v): got %v", a, a, b, b, got)
			}
		}
	}
	if EqualValues(struct{}{}, struct{}{}) || EqualValues(int8(1), []int{1}) || EqualValues([]int{1}, []int{1}) {
		t.Error("EqualValues of foreign types: want false")
	}
}

func TestTypeNamesAndIntegers(t *testing.T) {
	cases := []struct {
		v    any
		name string
		n    int64
		ok   bool
	}{
		{nil, "void", 0, false},
		{true, "bool", 0, false},
		{int8(-1), "byte", -1, true},
		{uint8(255), "unsignedbyte", 255, true},
		{int16(-1), "short", -1, true},
		{uint16(65535), "unsignedshort", 65535, true},
		{int32(20), "signedint", 20, true},
		{uint32(math.MaxUint32), "unsignedint", math.MaxUint32, true},
		{int64(math.MinInt64), "long", math.MinInt64, true},
		{int(3), "long", 3, true},
		{float32(1), "float", 0, false},
		{float64(1), "double", 0, false},
		{Decimal{}, "decimal", 0, false},
		{"s", "longstr", 0, false},
		{[]byte{}, "binary", 0, false},
		{Timestamp(1), "timestamp", 0, false},
		{Table{}, "table", 0, false},
		{Array{}, "array", 0, false},
		{uint64(1), "", 0, false},
		{struct{}{}, "", 0, false},
	}
	for _, tc := range cases {
		if got := TypeName(tc.v); got != tc.name {
			t.Errorf("TypeName(%T): got %q, want %q", tc.v, got, tc.name)
		}
		if n, ok := AsInt64(tc.v); n != tc.n || ok != tc.ok {
			t.Errorf("AsInt64(%T): got %d %v, want %d %v", tc.v, n, ok, tc.n, tc.ok)
		}
	}
}

func ExampleTable() {
	args := Table{{Name: "x-max-length", Value: int32(100)}}
	args.Set("x-dead-letter-exchange", "dead")
	v, _ := args.Get("x-max-length")
	n, _ := AsInt64(v)
	fmt.Println(n, TypeName(v), len(AppendTable(nil, args)))
	// Output: 100 signedint 54
}
