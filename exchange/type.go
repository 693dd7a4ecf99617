package exchange

import (
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// Type is the kind of an exchange. The numbers are stored in the catalog's log
// and never change their meaning.
type Type uint8

// The types of exchanges. x-consistent-hash, x-random and their like will follow as
// further numbers.
const (
	Direct  Type = 1
	Fanout  Type = 2
	Topic   Type = 3
	Headers Type = 4
)

var typeNames = [...]string{Direct: "direct", Fanout: "fanout", Topic: "topic", Headers: "headers"}

// String returns the type's name on the wire.
func (t Type) String() string {
	if t.Valid() {
		return typeNames[t]
	}
	return "unknown"
}

// Valid reports whether t is one of the constants above.
func (t Type) Valid() bool { return t >= Direct && t <= Headers }

// ParseType returns the type of the given name on the wire. The error is an
// [*amqp.Error] with code 406.
func ParseType(name string) (Type, error) {
	for t := Direct; t <= Headers; t++ {
		if typeNames[t] == name {
			return t, nil
		}
	}
	return 0, amqp.Errorf(amqp.PreconditionFailed, 0, "unknown exchange type '%s'", name)
}

// hashesMax is how many `#` words a topic binding key may have. Each one multiplies
// the ways a key can match.
const hashesMax = 2

// ValidateBinding reports why an exchange of type t cannot take a binding with
// this key and these arguments. The error is an [*amqp.Error] with code 406.
func ValidateBinding(t Type, key string, args amqp.Table) error {
	switch t {
	case Topic:
		n := 0
		for word := range strings.SplitSeq(key, ".") {
			if word == "#" {
				n++
			}
		}
		if n > hashesMax {
			return amqp.Errorf(amqp.PreconditionFailed, 0,
				"topic binding key '%s' has %d '#' words, the maximum is %d", key, n, hashesMax)
		}
	case Headers:
		v, ok := args.Get("x-match")
		if !ok {
			return nil
		}
		s, isString := v.(string)
		if !isString {
			return amqp.Errorf(amqp.PreconditionFailed, 0,
				"invalid x-match field type %s, expected longstr", amqp.TypeName(v))
		}
		if _, ok := parseMode(s); !ok {
			return amqp.Errorf(amqp.PreconditionFailed, 0,
				"invalid x-match field value '%s', expected all, any, all-with-x or any-with-x", s)
		}
	}
	return nil
}
