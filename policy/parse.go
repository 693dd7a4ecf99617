package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// ParseDefinition reads the JSON form of a definition. It finds what is no JSON object; what
// the object says is checked by [New]. A number without a fraction is an int64.
func ParseDefinition(raw []byte) (amqp.Table, error) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("JSON decoding error: %w", err)
	}
	if d.More() {
		return nil, fmt.Errorf("JSON decoding error: more than one value")
	}
	t, ok := value(v).(amqp.Table)
	if !ok {
		return nil, &Invalid{[]string{fmt.Sprintf("definition is no object but %s", erlang(value(v)))}}
	}
	return t, nil
}

// value turns decoded JSON into the values of tables.
func value(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String() // too large for any key
		}
		return f
	case []any:
		list := make(amqp.Array, len(v))
		for i := range v {
			list[i] = value(v[i])
		}
		return list
	case map[string]any:
		t := make(amqp.Table, 0, len(v))
		for name, x := range v {
			t = append(t, amqp.Field{Name: name, Value: value(x)})
		}
		slices.SortFunc(t, func(a, b amqp.Field) int { return strings.Compare(a.Name, b.Name) })
		return t
	}
	return v
}
