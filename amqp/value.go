package amqp

// AsInt64 reads a table value of any integer type; ok is false for every other
// type. Floating point numbers are not integers even when they are whole.
func AsInt64(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	case int:
		return int64(v), true
	}
	return 0, false
}

// TypeName returns the word RabbitMQ uses for the type of a table value in its
// error texts, such as "signedint" for an int32, and "" for a type that no table
// value has.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "void"
	case bool:
		return "bool"
	case int8:
		return "byte"
	case uint8:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64, int:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case Decimal:
		return "decimal"
	case string:
		return "longstr"
	case []byte:
		return "binary"
	case Timestamp:
		return "timestamp"
	case Table:
		return "table"
	case Array:
		return "array"
	}
	return ""
}
