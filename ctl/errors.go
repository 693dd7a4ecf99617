package ctl

import (
	"fmt"
)

// Exit codes. They are those of sysexits.h that rabbitmqctl uses, and two for what
// it has no word for.
const (
	ExitOK          = 0
	ExitUsage       = 64 // unknown verb or option, wrong number of arguments
	ExitData        = 65 // an object that is named does not exist, an argument does not parse
	ExitNoUser      = 67 // no such user
	ExitUnavailable = 69 // the node does not answer, or cannot at the moment
	ExitSoftware    = 70 // the node refused: validation failed and the like
	ExitTimeout     = 75 // no answer within --timeout; the change may have been made
	ExitNoPerm      = 77 // wrong user or password, or the user may not do it
)

// Error is why a verb failed, with its exit code.
type Error struct {
	Code int
	// Text is for people; it may have several lines. It goes to standard error behind
	// a line "Error:".
	Text string
}

func (e *Error) Error() string { return e.Text }

func errorf(code int, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// usage is an error in the command line of a verb.
func usage(format string, args ...any) *Error {
	return errorf(ExitUsage, format, args...)
}
