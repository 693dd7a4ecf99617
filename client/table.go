package client

import (
	"math"
	"time"
	"unicode/utf8"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// Table are headers or arguments: AMQP's field table. The package's documentation lists the types of its values.
type Table map[string]any

// Decimal is Value divided by ten to the power of Scale.
type Decimal struct {
	Scale uint8
	Value uint32
}

// depthMax bounds tables and arrays inside of each other, as nodes do.
const depthMax = 64

func (t Table) proto() (*warrenv1.Table, error) { return tableFor(t, 0) }

func tableFor(t map[string]any, depth int) (*warrenv1.Table, error) {
	if depth > depthMax {
		return nil, invalid("table: more than %d tables and arrays inside of each other", depthMax)
	}
	p := &warrenv1.Table{Fields: make(map[string]*warrenv1.Value, len(t))}
	for name, v := range t {
		value, err := valueFor(name, v, depth)
		if err != nil {
			return nil, err
		}
		if utf8.ValidString(name) {
			p.Fields[name] = value
		} else {
			p.BinaryFields = append(p.BinaryFields, &warrenv1.BinaryField{Name: []byte(name), Value: value})
		}
	}
	return p, nil
}

func valueFor(name string, v any, depth int) (*warrenv1.Value, error) {
	switch v := v.(type) {
	case nil:
		return &warrenv1.Value{}, nil
	case string:
		if !utf8.ValidString(v) {
			return &warrenv1.Value{Kind: &warrenv1.Value_BinaryStringValue{BinaryStringValue: []byte(v)}}, nil
		}
		return &warrenv1.Value{Kind: &warrenv1.Value_StringValue{StringValue: v}}, nil
	case []byte:
		return &warrenv1.Value{Kind: &warrenv1.Value_BytesValue{BytesValue: v}}, nil
	case bool:
		return &warrenv1.Value{Kind: &warrenv1.Value_BoolValue{BoolValue: v}}, nil
	case time.Time:
		return &warrenv1.Value{Kind: &warrenv1.Value_TimestampValue{TimestampValue: uint64(v.Unix())}}, nil
	case Decimal:
		return &warrenv1.Value{Kind: &warrenv1.Value_DecimalValue{DecimalValue: &warrenv1.Decimal{Scale: uint32(v.Scale), Value: v.Value}}}, nil
	case Table:
		return nested(v, depth)
	case map[string]any:
		return nested(v, depth)
	case []any:
		if depth >= depthMax {
			return nil, invalid("table: more than %d tables and arrays inside of each other", depthMax)
		}
		array := &warrenv1.Array{Values: make([]*warrenv1.Value, len(v))}
		for i := range v {
			var err error
			if array.Values[i], err = valueFor(name, v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return &warrenv1.Value{Kind: &warrenv1.Value_ArrayValue{ArrayValue: array}}, nil
	}
	if n := numberFor(v); n != nil {
		return n, nil
	}
	return nil, invalid("table: field %q has a value of type %T, which AMQP has none for", name, v)
}

func nested(t map[string]any, depth int) (*warrenv1.Value, error) {
	p, err := tableFor(t, depth+1)
	return &warrenv1.Value{Kind: &warrenv1.Value_TableValue{TableValue: p}}, err
}

func numberFor(v any) *warrenv1.Value {
	switch v := v.(type) {
	case int8:
		return &warrenv1.Value{Kind: &warrenv1.Value_Int8Value{Int8Value: int32(v)}}
	case uint8:
		return &warrenv1.Value{Kind: &warrenv1.Value_Uint8Value{Uint8Value: uint32(v)}}
	case int16:
		return &warrenv1.Value{Kind: &warrenv1.Value_Int16Value{Int16Value: int32(v)}}
	case uint16:
		return &warrenv1.Value{Kind: &warrenv1.Value_Uint16Value{Uint16Value: uint32(v)}}
	case int32:
		return &warrenv1.Value{Kind: &warrenv1.Value_Int32Value{Int32Value: v}}
	case uint32:
		return &warrenv1.Value{Kind: &warrenv1.Value_Uint32Value{Uint32Value: v}}
	case int64:
		return &warrenv1.Value{Kind: &warrenv1.Value_Int64Value{Int64Value: v}}
	case int:
		return &warrenv1.Value{Kind: &warrenv1.Value_Int64Value{Int64Value: int64(v)}}
	case float32:
		return &warrenv1.Value{Kind: &warrenv1.Value_FloatValue{FloatValue: v}}
	case float64:
		return &warrenv1.Value{Kind: &warrenv1.Value_DoubleValue{DoubleValue: v}}
	}
	return nil
}

// tableOf is a node's table; nil if there is none.
func tableOf(p *warrenv1.Table) Table {
	if p == nil {
		return nil
	}
	t := make(Table, len(p.GetFields())+len(p.GetBinaryFields()))
	for _, f := range p.GetBinaryFields() {
		t[string(f.GetName())] = valueOf(f.GetValue())
	}
	for name, v := range p.GetFields() {
		t[name] = valueOf(v)
	}
	return t
}

func valueOf(v *warrenv1.Value) any {
	switch v := v.GetKind().(type) {
	case *warrenv1.Value_BoolValue:
		return v.BoolValue
	case *warrenv1.Value_StringValue:
		return v.StringValue
	case *warrenv1.Value_BinaryStringValue:
		return string(v.BinaryStringValue)
	case *warrenv1.Value_BytesValue:
		return append([]byte{}, v.BytesValue...)
	case *warrenv1.Value_Int8Value:
		return int8(v.Int8Value) // the node has looked at the range, here and below
	case *warrenv1.Value_Uint8Value:
		return uint8(v.Uint8Value)
	case *warrenv1.Value_Int16Value:
		return int16(v.Int16Value)
	case *warrenv1.Value_Uint16Value:
		return uint16(v.Uint16Value)
	case *warrenv1.Value_Int32Value:
		return v.Int32Value
	case *warrenv1.Value_Uint32Value:
		return v.Uint32Value
	case *warrenv1.Value_Int64Value:
		return v.Int64Value
	case *warrenv1.Value_FloatValue:
		return v.FloatValue
	case *warrenv1.Value_DoubleValue:
		return v.DoubleValue
	case *warrenv1.Value_DecimalValue:
		return Decimal{uint8(min(v.DecimalValue.GetScale(), math.MaxUint8)), v.DecimalValue.GetValue()}
	case *warrenv1.Value_TimestampValue:
		return time.Unix(int64(v.TimestampValue), 0).UTC()
	case *warrenv1.Value_TableValue:
		return tableOf(v.TableValue)
	case *warrenv1.Value_ArrayValue:
		array := make([]any, len(v.ArrayValue.GetValues()))
		for i, e := range v.ArrayValue.GetValues() {
			array[i] = valueOf(e)
		}
		return array
	}
	return nil
}
