package amqp

import "fmt"

// A MethodID is the number of a method: its class in the upper 16 bits, its
// number within the class in the lower.
type MethodID uint32

// NewMethodID joins a class and a method number.
func NewMethodID(class, method uint16) MethodID {
	return MethodID(class)<<16 | MethodID(method)
}

// Class returns the class number.
func (id MethodID) Class() uint16 { return uint16(id >> 16) }

// Method returns the number within the class.
func (id MethodID) Method() uint16 { return uint16(id) }

// String returns the method's name, such as "queue.declare", or its numbers, such
// as "50.99", when the specification does not define it.
func (id MethodID) String() string {
	if info, ok := id.Info(); ok {
		return info.Name
	}
	return fmt.Sprintf("%d.%d", id.Class(), id.Method())
}

// MethodInfo is what the specification says about a method.
type MethodInfo struct {
	ID   MethodID
	Name string
	// Synchronous methods are requests that wait for an answer, or such answers.
	Synchronous bool
	// Content says that a content header and body follow the method.
	Content bool
	// FromClient and FromServer name the sides that may send the method; both may.
	FromClient, FromServer bool
	// OnConnection methods belong on channel 0, all others on any other channel.
	OnConnection bool

	replies [2]MethodID // zero where there is none
}

// Accepts reports whether reply answers the method.
func (i MethodInfo) Accepts(reply MethodID) bool {
	return reply != 0 && (i.replies[0] == reply || i.replies[1] == reply)
}

// Replies returns the methods that answer this one, none for a method without
// an answer. The slice is the caller's.
func (i MethodInfo) Replies() []MethodID {
	var out []MethodID
	for _, r := range i.replies {
		if r != 0 {
			out = append(out, r)
		}
	}
	return out
}
