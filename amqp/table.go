package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// TableDepthMax is how deep tables and arrays may nest, the outermost included.
	TableDepthMax = 64
	// TableValuesMax is how many values a table may hold, those of nested tables
	// and arrays included. It bounds what a small hostile table can cost in memory.
	TableValuesMax = 1 << 15
	// TableBytesMax is the largest encoded table in bytes.
	TableBytesMax = 4 << 20
	// FieldNameMax is the longest field name in bytes.
	FieldNameMax = 255
)

// A Table is a field table: named values in the order of the wire. Names are
// expected to be unique; where a peer repeats one, all copies are kept and the
// first counts.
//
// The dynamic type of a value decides its encoding:
//
//	nil       V    bool     t    string     S    []byte  x
//	int8      b    uint8    B    float32    f    Array   A
//	int16     s    uint16   u    float64    d    Table   F
//	int32     I    uint32   i    Decimal    D
//	int64     l                  Timestamp  T
//
// An int is encoded like an int64. Decoding yields the same types, and int64 for
// the letter L.
type Table []Field

// A Field is one named value of a [Table].
type Field struct {
	Name  string
	Value any

	// verbatim is the encoding the value was decoded from, tag included, where it is
	// not the one its type has: letter L, a boolean of 2, or a container that
	// holds such a value. It is used again if Value still means the same.
	verbatim string
}

// String returns the field for logs and test failures.
func (f Field) String() string { return fmt.Sprintf("%s=%v", f.Name, f.Value) }

// Array is the value of a field of type array.
type Array []any

// Timestamp counts seconds since 1970 in UTC.
type Timestamp uint64

// Decimal is Value divided by ten to the power of Scale. RabbitMQ reads the value
// as unsigned, the published standard as signed; the bits are kept either way.
type Decimal struct {
	Scale uint8
	Value uint32
}

// Get returns the first value of the given name.
func (t Table) Get(name string) (v any, ok bool) {
	for i := range t {
		if t[i].Name == name {
			return t[i].Value, true
		}
	}
	return nil, false
}

// Set replaces the first value of the given name in place, or appends a field.
func (t *Table) Set(name string, v any) {
	for i := range *t {
		if (*t)[i].Name == name {
			(*t)[i] = Field{Name: name, Value: v}
			return
		}
	}
	*t = append(*t, Field{Name: name, Value: v})
}

// Delete removes every field of the given name and reports whether there was one.
// It reuses the memory of t.
func (t *Table) Delete(name string) bool {
	kept := (*t)[:0]
	for _, f := range *t {
		if f.Name != name {
			kept = append(kept, f)
		}
	}
	removed := len(kept) < len(*t)
	clear((*t)[len(kept):])
	*t = kept
	return removed
}

// Clone returns a copy that shares no mutable memory with t.
func (t Table) Clone() Table {
	if t == nil {
		return nil
	}
	out := make(Table, len(t))
	for i, f := range t {
		f.Value = cloneValue(f.Value)
		out[i] = f
	}
	return out
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case []byte:
		return append([]byte{}, v...)
	case Table:
		return v.Clone()
	case Array:
		out := make(Array, len(v))
		for i := range v {
			out[i] = cloneValue(v[i])
		}
		return out
	}
	return v
}

// Equal reports whether t and u hold the same names, types and values in the same
// order. Floating point numbers are compared by their bits.
func (t Table) Equal(u Table) bool {
	if len(t) != len(u) {
		return false
	}
	for i := range t {
		if t[i].Name != u[i].Name || !EqualValues(t[i].Value, u[i].Value) {
			return false
		}
	}
	return true
}

// EqualValues reports whether two table values have the same type and content.
// Values of types outside the list of [Table] are never equal.
func EqualValues(a, b any) bool {
	switch a := a.(type) {
	case Table:
		b, ok := b.(Table)
		return ok && a.Equal(b)
	case Array:
		b, ok := b.(Array)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !EqualValues(a[i], b[i]) {
				return false
			}
		}
		return true
	case []byte:
		b, ok := b.([]byte)
		return ok && string(a) == string(b)
	case float32:
		b, ok := b.(float32)
		return ok && math.Float32bits(a) == math.Float32bits(b)
	case float64:
		b, ok := b.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	}
	// The types left are all comparable, and a and b are equal only if b has the same.
	return TypeName(a) != "" && a == b
}

// Validate reports the first reason why t cannot be encoded or would not be
// accepted when decoded again: a value of an unknown type, a long name, nesting or
// size beyond the limits. A table that comes from outside the protocol must pass it
// before it is used in a method or in properties.
func (t Table) Validate() error {
	values := 0
	if err := t.validate(0, &values); err != nil {
		return err
	}
	if n := len(AppendTable(nil, t)) - 4; n > TableBytesMax {
		return fmt.Errorf("table has %d bytes, the maximum is %d", n, TableBytesMax)
	}
	return nil
}

func (t Table) validate(depth int, values *int) error {
	if depth >= TableDepthMax {
		return fmt.Errorf("table nests deeper than %d", TableDepthMax)
	}
	for _, f := range t {
		if len(f.Name) > FieldNameMax {
			return fmt.Errorf("field name of %d bytes, the maximum is %d", len(f.Name), FieldNameMax)
		}
		if err := validateValue(f.Value, depth, values); err != nil {
			return fmt.Errorf("field %q: %w", f.Name, err)
		}
	}
	return nil
}

func validateValue(v any, depth int, values *int) error {
	if *values++; *values > TableValuesMax {
		return fmt.Errorf("table holds more than %d values", TableValuesMax)
	}
	switch v := v.(type) {
	case Table:
		return v.validate(depth+1, values)
	case Array:
		if depth+1 >= TableDepthMax {
			return fmt.Errorf("table nests deeper than %d", TableDepthMax)
		}
		for i, item := range v {
			if err := validateValue(item, depth+1, values); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
		return nil
	}
	if TypeName(v) == "" {
		return fmt.Errorf("no field type for Go type %T", v)
	}
	return nil
}

// AppendTable appends the encoding of t with its length. Names beyond [FieldNameMax]
// bytes are cut at a rune boundary. It panics on a value of a
// type outside the list of [Table], which only a programming error produces.
func AppendTable(dst []byte, t Table) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range t {
		f := &t[i]
		dst = appendShortstr(dst, f.Name)
		if f.verbatim != "" && f.unchanged() {
			dst = append(dst, f.verbatim...)
			continue
		}
		dst = appendValue(dst, f.Value)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// unchanged reports whether verbatim still decodes to the field's value.
func (f *Field) unchanged() bool {
	c := cursor{buf: []byte(f.verbatim)}
	v, _ := c.value(0)
	return c.finish(0) == nil && EqualValues(v, f.Value)
}

func appendValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 'V')
	case bool:
		return append(dst, 't', bit(v, 0))
	case int8:
		return append(dst, 'b', byte(v))
	case uint8:
		return append(dst, 'B', v)
	case int16:
		return binary.BigEndian.AppendUint16(append(dst, 's'), uint16(v))
	case uint16:
		return binary.BigEndian.AppendUint16(append(dst, 'u'), v)
	case int32:
		return binary.BigEndian.AppendUint32(append(dst, 'I'), uint32(v))
	case uint32:
		return binary.BigEndian.AppendUint32(append(dst, 'i'), v)
	case int64:
		return binary.BigEndian.AppendUint64(append(dst, 'l'), uint64(v))
	case int:
		return binary.BigEndian.AppendUint64(append(dst, 'l'), uint64(v))
	case float32:
		return binary.BigEndian.AppendUint32(append(dst, 'f'), math.Float32bits(v))
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, 'd'), math.Float64bits(v))
	case Decimal:
		return binary.BigEndian.AppendUint32(append(dst, 'D', v.Scale), v.Value)
	case string:
		return appendLongstr(append(dst, 'S'), v)
	case []byte:
		dst = binary.BigEndian.AppendUint32(append(dst, 'x'), uint32(len(v)))
		return append(dst, v...)
	case Timestamp:
		return binary.BigEndian.AppendUint64(append(dst, 'T'), uint64(v))
	case Table:
		return AppendTable(append(dst, 'F'), v)
	case Array:
		dst = append(dst, 'A', 0, 0, 0, 0)
		at := len(dst)
		for _, item := range v {
			dst = appendValue(dst, item)
		}
		binary.BigEndian.PutUint32(dst[at-4:], uint32(len(dst)-at))
		return dst
	}
	panic(fmt.Sprintf("amqp: no field type for Go type %T", v))
}
