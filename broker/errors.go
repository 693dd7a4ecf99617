package broker

import "fmt"

// Kind classifies what a use case refuses. Each gateway maps kinds to its
// protocol's codes in one function.
type Kind uint8

// The kinds of refusal.
const (
	Internal           Kind = iota
	NotFound                // AMQP 404
	AccessRefused           // 403
	PreconditionFailed      // 406
	ResourceLocked          // 405
	NotAllowed              // 530, ends the connection
	NotImplemented          // 540, ends the connection
	ContentTooLarge         // 406 in RabbitMQ's dialect
	ConnectionForced        // 320, ends the connection
	Unavailable             // the queue has no reachable leader within the deadline; AMQP 404 or 541 by operation
	TimedOut                // the catalog did not answer within the deadline, and may yet do what was asked; AMQP 541, ends the connection
)

// Error is a refusal that a client sees: a kind for machines and a short true
// sentence for people, in the words RabbitMQ's clients parse and without the
// code's name in front.
type Error struct {
	Kind Kind
	Text string
	// Away, with AccessRefused, tells that nobody has looked at a password: the server that knows it does not answer. Clients of AMQP are refused with the same words.
	Away bool
	// Unasked, with TimedOut, tells that the catalog was not asked to change anything: it could not be reached.
	Unasked bool
}

func (e *Error) Error() string { return e.Text }

// Errorf makes a refusal.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Text: fmt.Sprintf(format, args...)}
}
