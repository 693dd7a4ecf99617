package exchange

import (
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// Type is the kind of an exchange. The numbers are stored in the catalog's log
// and never change their meaning.
type Type uint8

// The types of exchanges.
const (
	Direct  Type = 1
	Fanout  Type = 2
	Topic   Type = 3
	Headers Type = 4
	// ConsistentHash spreads messages over its destinations by a hash and the
	// weights in the binding keys.
	ConsistentHash Type = 5
	// Random passes each message to one destination.
	Random Type = 6
	// LocalRandom is Random over the queues that are led on the publisher's node, or
	// over all if there are none.
	LocalRandom Type = 7
	// ModulusHash spreads messages evenly by a hash, whatever the binding keys.
	ModulusHash Type = 8
	// Delayed keeps messages back for a time and then routes them like another type,
	// the one its argument x-delayed-type names.
	Delayed Type = 9

	typeMax = Delayed
)

var typeNames = [...]string{
	Direct: "direct", Fanout: "fanout", Topic: "topic", Headers: "headers",
	ConsistentHash: "x-consistent-hash", Random: "x-random", LocalRandom: "x-local-random",
	ModulusHash: "x-modulus-hash", Delayed: "x-delayed-message",
}

// String returns the type's name on the wire.
func (t Type) String() string {
	if t.Valid() {
		return typeNames[t]
	}
	return "unknown"
}

// Valid reports whether t is one of the constants above.
func (t Type) Valid() bool { return t >= Direct && t <= typeMax }

// ParseType returns the type of the given name on the wire. The error is an
// [*amqp.Error] with code 406.
func ParseType(name string) (Type, error) {
	for t := Direct; t <= typeMax; t++ {
		if typeNames[t] == name {
			return t, nil
		}
	}
	if name == "" {
		return 0, refused("invalid exchange type ''")
	}
	return 0, refused("unknown exchange type '%s'", name)
}

// hashesMax is how many `#` words a topic binding key may have. Each one multiplies
// the ways a key can match.
const hashesMax = 2

// ValidateBinding reports why an exchange of type t, declared with the given
// arguments, cannot take a binding with this key and these arguments. The error is an
// [*amqp.Error] with code 406.
func ValidateBinding(t Type, declared amqp.Table, key string, args amqp.Table) error {
	if t == Delayed {
		t = inner(declared)
	}
	switch t {
	case Topic:
		return validateTopic(key)
	case Headers:
		return validateHeaders(args)
	case ConsistentHash:
		_, err := parseWeight(key)
		return err
	}
	return nil
}

func validateTopic(key string) error {
	n := 0
	for word := range strings.SplitSeq(key, ".") {
		if word == "#" {
			n++
		}
	}
	if n > hashesMax {
		return refused("Topic binding key '%s' uses %d '#' wildcards, at most %d are allowed", key, n, hashesMax)
	}
	return nil
}

func validateHeaders(args amqp.Table) error {
	v, ok := args.Get("x-match")
	if !ok {
		return nil
	}
	s, isString := v.(string)
	if !isString {
		return refused("Invalid x-match field type %s (value %v); expected longstr", amqp.TypeName(v), v)
	}
	if _, ok := parseMode(s); !ok {
		return refused("Invalid x-match field value <<%q>>; expected all, any, all-with-x, or any-with-x", s)
	}
	return nil
}

// Validate reports why no exchange of type t can be declared with these arguments. The
// error is an [*amqp.Error] with code 406.
func Validate(t Type, args amqp.Table) error {
	switch t {
	case ConsistentHash:
		return validateHash(args)
	case Delayed:
		return validateDelayed(args)
	}
	return nil
}

// echoBytesMax is how much of a string a refusal repeats: arguments may be as long as a frame.
const echoBytesMax = 255

func refused(format string, args ...any) error {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = amqp.CutString(s, echoBytesMax)
		}
	}
	return amqp.Errorf(amqp.PreconditionFailed, 0, format, args...)
}
