package amqp

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ReplyTextMax is the largest reply text in bytes: the length of a short string.
const ReplyTextMax = 255

// An Error is a failure the protocol has a reply code for, whether found in the
// peer's bytes by this package or raised by the broker. It is what becomes a
// channel.close or connection.close.
type Error struct {
	// Code is the reply code, such as [NotFound].
	Code uint16
	// Text explains the failure to the peer, without the name of the code.
	Text string
	// ClassID and MethodID name the method that failed, both 0 if there was none.
	ClassID, MethodID uint16
	// Err is the cause for the log; the peer never sees it. It may be nil.
	Err error
}

// Errorf returns an error about the method id, which may be 0. A %w verb sets
// the cause as with [fmt.Errorf]; note that its text then becomes part of what the
// peer sees.
func Errorf(code uint16, id MethodID, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Text: err.Error(), ClassID: id.Class(), MethodID: id.Method(), Err: errors.Unwrap(err)}
}

// Error implements error for logs: the reply text, the code and the method.
func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s", e.Code, e.full())
	if id := NewMethodID(e.ClassID, e.MethodID); id != 0 {
		text += fmt.Sprintf(" (%s)", id)
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Soft reports whether the error closes only its channel. An error on channel 0
// closes the connection all the same; that is the session's to know.
func (e *Error) Soft() bool { return IsSoft(e.Code) }

// ReplyText returns the text for the peer: "NAME - explanation", cut at a rune
// boundary to [ReplyTextMax] bytes. [ReplySuccess] and unknown codes have no name in
// front. It is UTF-8 whatever it quotes: there are clients that fail on anything else.
func (e *Error) ReplyText() string {
	return CutString(strings.ToValidUTF8(e.full(), "\uFFFD"), ReplyTextMax)
}

func (e *Error) full() string {
	name := ReplyName(e.Code)
	switch {
	case name == "" || e.Code == ReplySuccess:
		return e.Text
	case e.Text == "":
		return name
	}
	return name + " - " + e.Text
}

// ConnectionClose returns the method that reports e on a connection.
func (e *Error) ConnectionClose() *ConnectionClose {
	return &ConnectionClose{ReplyCode: e.Code, ReplyText: e.ReplyText(), ClassID: e.ClassID, MethodID: e.MethodID}
}

// ChannelClose returns the method that reports e on a channel.
func (e *Error) ChannelClose() *ChannelClose {
	return &ChannelClose{ReplyCode: e.Code, ReplyText: e.ReplyText(), ClassID: e.ClassID, MethodID: e.MethodID}
}

// CutString shortens s to at most n bytes without splitting a rune. A string that
// is not UTF-8 there is cut at n.
func CutString(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for at := n; at > n-utf8.UTFMax; at-- {
		if utf8.RuneStart(s[at]) {
			return s[:at]
		}
	}
	return s[:n]
}

func unknownMethod(id MethodID) *Error {
	return &Error{
		Code: CommandInvalid, ClassID: id.Class(), MethodID: id.Method(),
		Text: fmt.Sprintf("unknown method %d.%d", id.Class(), id.Method()),
	}
}
