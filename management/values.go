package management

import (
	"math"
	"strconv"

	"github.com/warrenmq/warren/amqp"
)

// TableJSON turns a field table into what encoding/json renders as RabbitMQ does:
// tables as objects, arrays as arrays, bytes as text, timestamps as seconds. Of
// fields of one name the last counts.
func TableJSON(t amqp.Table) map[string]any {
	m := make(map[string]any, len(t))
	for _, f := range t {
		m[f.Name] = valueJSON(f.Value)
	}
	return m
}

func valueJSON(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		return TableJSON(v)
	case amqp.Array:
		list := make([]any, len(v))
		for i := range v {
			list[i] = valueJSON(v[i])
		}
		return list
	case amqp.Timestamp:
		return uint64(v)
	case amqp.Decimal:
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
