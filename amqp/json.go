package amqp

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// JSON turns a table into what encoding/json renders as RabbitMQ does: tables as objects,
// arrays as arrays, bytes as text, timestamps as seconds. Of fields of one name the last counts.
func (t Table) JSON() map[string]any {
	m := make(map[string]any, len(t))
	for _, f := range t {
		m[f.Name] = valueJSON(f.Value)
	}
	return m
}

func valueJSON(v any) any {
	switch v := v.(type) {
	case Table:
		return v.JSON()
	case Array:
		list := make([]any, len(v))
		for i := range v {
			list[i] = valueJSON(v[i])
		}
		return list
	case Timestamp:
		return uint64(v)
	case Decimal:
		return float64(v.Value) * math.Pow10(-int(v.Scale))
	case []byte:
		return string(v)
	case float32:
		return floatJSON(float64(v))
	case float64:
		return floatJSON(v)
	}
	return v
}

// floatJSON is v, or a word for what JSON has no number for.
func floatJSON(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return v
}

// TableFromJSON is the reverse of [Table.JSON] for an object that was decoded with numbers as they are written
// ([json.Number]): integers are signed 64, other numbers doubles. Fields are in the order of their
// names. Objects and arrays may be nested up to depth.
func TableFromJSON(object map[string]any, depth int) (Table, error) {
	names := make([]string, 0, len(object))
	for name := range object {
		if len(name) > FieldNameMax {
			return nil, fmt.Errorf("a name is longer than %d bytes", FieldNameMax)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	t := make(Table, 0, len(names))
	for _, name := range names {
		v, err := valueFromJSON(object[name], depth)
		if err != nil {
			return nil, err
		}
		t = append(t, Field{Name: name, Value: v})
	}
	return t, nil
}

func valueFromJSON(v any, depth int) (any, error) {
	if depth == 0 {
		return nil, errors.New("nested too deeply")
	}
	switch v := v.(type) {
	case map[string]any:
		return TableFromJSON(v, depth-1)
	case []any:
		list := make(Array, len(v))
		for i := range v {
			var err error
			if list[i], err = valueFromJSON(v[i], depth-1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("number out of range: %s", v)
		}
		return f, nil
	}
	return v, nil // text, bool, nil
}
