package client

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// toTable turns the headers that workloads set into those of gRPC.
func toTable(headers amqp.Table) (*warrenv1.Table, error) {
	if len(headers) == 0 {
		return nil, nil //nolint:nilnil // no headers are none
	}
	t := &warrenv1.Table{Fields: map[string]*warrenv1.Value{}}
	for name, v := range headers {
		value := &warrenv1.Value{}
		switch v := v.(type) {
		case bool:
			value.Kind = &warrenv1.Value_BoolValue{BoolValue: v}
		case string:
			value.Kind = &warrenv1.Value_StringValue{StringValue: v}
		case int32:
			value.Kind = &warrenv1.Value_Int32Value{Int32Value: v}
		case int64:
			value.Kind = &warrenv1.Value_Int64Value{Int64Value: v}
		default:
			return nil, fmt.Errorf("header %s: a %T", name, v)
		}
		t.Fields[name] = value
	}
	return t, nil
}

// fromTable turns headers of gRPC into those of the AMQP library. Of the numbers and texts it has the kinds that nodes and workloads use.
func fromTable(t *warrenv1.Table) amqp.Table {
	headers := amqp.Table{}
	for name, v := range t.GetFields() {
		headers[name] = fromValue(v)
	}
	return headers
}

func fromValue(v *warrenv1.Value) any {
	switch k := v.GetKind().(type) {
	case *warrenv1.Value_BoolValue:
		return k.BoolValue
	case *warrenv1.Value_StringValue:
		return k.StringValue
	case *warrenv1.Value_Int32Value:
		return k.Int32Value
	case *warrenv1.Value_Int64Value:
		return k.Int64Value
	case *warrenv1.Value_TableValue:
		return fromTable(k.TableValue)
	case *warrenv1.Value_ArrayValue:
		var list []any
		for _, v := range k.ArrayValue.GetValues() {
			list = append(list, fromValue(v))
		}
		return list
	}
	return nil
}
