package grpc

import (
	"math"
	"slices"
	"unicode/utf8"

	wire "github.com/warrenmq/warren/amqp"
	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// tableOf turns a client's table into AMQP's, its fields in the order of their names. The error is a *refusal.
func tableOf(t *warrenv1.Table) (wire.Table, error) {
	table, err := tableAt(t, 0)
	if err != nil {
		return nil, err
	}
	if err := table.Validate(); err != nil {
		return nil, invalid("table: %v", err)
	}
	return table, nil
}

func tableAt(t *warrenv1.Table, depth int) (wire.Table, error) {
	if depth >= wire.TableDepthMax {
		return nil, invalid("table: more than %d tables and arrays inside of each other", wire.TableDepthMax)
	}
	table := make(wire.Table, 0, len(t.GetFields())+len(t.GetBinaryFields()))
	add := func(name string, v *warrenv1.Value) error {
		if len(name) > wire.FieldNameMax {
			return invalid("table: a name of %d bytes is longer than %d", len(name), wire.FieldNameMax)
		}
		value, err := valueAt(v, depth)
		if err != nil {
			return err
		}
		table = append(table, wire.Field{Name: name, Value: value})
		return nil
	}
	for name, v := range t.GetFields() {
		if err := add(name, v); err != nil {
			return nil, err
		}
	}
	for _, f := range t.GetBinaryFields() {
		if err := add(string(f.GetName()), f.GetValue()); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(table, func(a, b wire.Field) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	return table, nil
}

func valueAt(v *warrenv1.Value, depth int) (any, error) {
	switch v := v.GetKind().(type) {
	case nil:
		return nil, nil //nolint:nilnil // AMQP's void
	case *warrenv1.Value_BoolValue:
		return v.BoolValue, nil
	case *warrenv1.Value_StringValue:
		return v.StringValue, nil
	case *warrenv1.Value_BinaryStringValue:
		return string(v.BinaryStringValue), nil
	case *warrenv1.Value_BytesValue:
		return append([]byte{}, v.BytesValue...), nil
	case *warrenv1.Value_Int32Value:
		return v.Int32Value, nil
	case *warrenv1.Value_Uint32Value:
		return v.Uint32Value, nil
	case *warrenv1.Value_Int64Value:
		return v.Int64Value, nil
	case *warrenv1.Value_FloatValue:
		return v.FloatValue, nil
	case *warrenv1.Value_DoubleValue:
		return v.DoubleValue, nil
	case *warrenv1.Value_TimestampValue:
		return wire.Timestamp(v.TimestampValue), nil
	case *warrenv1.Value_TableValue:
		return tableAt(v.TableValue, depth+1)
	case *warrenv1.Value_ArrayValue:
		return arrayAt(v.ArrayValue, depth+1)
	}
	return smallValue(v)
}

// smallValue is one of the types that protobuf has no width for.
func smallValue(v *warrenv1.Value) (any, error) {
	switch v := v.GetKind().(type) {
	case *warrenv1.Value_Int8Value:
		if v.Int8Value < math.MinInt8 || v.Int8Value > math.MaxInt8 {
			return nil, invalid("table: %d is no int8", v.Int8Value)
		}
		return int8(v.Int8Value), nil
	case *warrenv1.Value_Uint8Value:
		if v.Uint8Value > math.MaxUint8 {
			return nil, invalid("table: %d is no uint8", v.Uint8Value)
		}
		return uint8(v.Uint8Value), nil
	case *warrenv1.Value_Int16Value:
		if v.Int16Value < math.MinInt16 || v.Int16Value > math.MaxInt16 {
			return nil, invalid("table: %d is no int16", v.Int16Value)
		}
		return int16(v.Int16Value), nil
	case *warrenv1.Value_Uint16Value:
		if v.Uint16Value > math.MaxUint16 {
			return nil, invalid("table: %d is no uint16", v.Uint16Value)
		}
		return uint16(v.Uint16Value), nil
	case *warrenv1.Value_DecimalValue:
		if v.DecimalValue.GetScale() > math.MaxUint8 {
			return nil, invalid("table: %d is no scale of a decimal", v.DecimalValue.GetScale())
		}
		return wire.Decimal{Scale: uint8(v.DecimalValue.GetScale()), Value: v.DecimalValue.GetValue()}, nil
	}
	return nil, invalid("table: a value of an unknown type")
}

func arrayAt(a *warrenv1.Array, depth int) (wire.Array, error) {
	if depth >= wire.TableDepthMax {
		return nil, invalid("table: more than %d tables and arrays inside of each other", wire.TableDepthMax)
	}
	array := make(wire.Array, len(a.GetValues()))
	for i, v := range a.GetValues() {
		value, err := valueAt(v, depth)
		if err != nil {
			return nil, err
		}
		array[i] = value
	}
	return array, nil
}

// tableFor is AMQP's table for a client. Of fields of the same name the first counts.
func tableFor(t wire.Table) *warrenv1.Table {
	table := &warrenv1.Table{}
	if len(t) > 0 {
		table.Fields = make(map[string]*warrenv1.Value, len(t))
	}
	for i := range t {
		f := &t[i]
		if !utf8.ValidString(f.Name) {
			table.BinaryFields = append(table.BinaryFields, &warrenv1.BinaryField{Name: []byte(f.Name), Value: valueFor(f.Value)})
			continue
		}
		if _, there := table.Fields[f.Name]; !there {
			table.Fields[f.Name] = valueFor(f.Value)
		}
	}
	return table
}

func valueFor(v any) *warrenv1.Value {
	switch v := v.(type) {
	case bool:
		return &warrenv1.Value{Kind: &warrenv1.Value_BoolValue{BoolValue: v}}
	case string:
		if !utf8.ValidString(v) {
			return &warrenv1.Value{Kind: &warrenv1.Value_BinaryStringValue{BinaryStringValue: []byte(v)}}
		}
		return &warrenv1.Value{Kind: &warrenv1.Value_StringValue{StringValue: v}}
	case []byte:
		return &warrenv1.Value{Kind: &warrenv1.Value_BytesValue{BytesValue: v}}
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
	case wire.Decimal:
		return &warrenv1.Value{Kind: &warrenv1.Value_DecimalValue{DecimalValue: &warrenv1.Decimal{Scale: uint32(v.Scale), Value: v.Value}}}
	case wire.Timestamp:
		return &warrenv1.Value{Kind: &warrenv1.Value_TimestampValue{TimestampValue: uint64(v)}}
	case wire.Table:
		return &warrenv1.Value{Kind: &warrenv1.Value_TableValue{TableValue: tableFor(v)}}
	case wire.Array:
		array := &warrenv1.Array{Values: make([]*warrenv1.Value, len(v))}
		for i := range v {
			array.Values[i] = valueFor(v[i])
		}
		return &warrenv1.Value{Kind: &warrenv1.Value_ArrayValue{ArrayValue: array}}
	}
	return &warrenv1.Value{} // void
}
