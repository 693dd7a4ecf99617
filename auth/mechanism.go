package auth

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// The mechanisms offered to clients, in the order of connection.start.
const (
	MechanismPlain    = "PLAIN"
	MechanismAMQPLain = "AMQPLAIN"
)

// ResponseBytesMax bounds what a client may answer.
const ResponseBytesMax = 16 << 10

// Secret is a password on its way to a check. It hides itself from logs.
type Secret string

// String hides the secret.
func (Secret) String() string { return "(hidden)" }

// Credentials are what a response says.
type Credentials struct {
	User     string
	Password Secret
}

// ParseResponse reads the response of the named mechanism. A mechanism that is
// not offered gives an [*amqp.Error] with code 503, a malformed response an error that
// wraps [ErrLogin].
func ParseResponse(mechanism string, response []byte) (Credentials, error) {
	switch mechanism {
	case MechanismPlain:
		return ParsePlain(response)
	case MechanismAMQPLain:
		return ParseAMQPLain(response)
	}
	return Credentials{}, amqp.Errorf(amqp.CommandInvalid, 0, "unknown authentication mechanism '%s'", mechanism)
}

func malformed(mechanism, why string) error {
	return fmt.Errorf("%w: malformed %s response: %s", ErrLogin, mechanism, why)
}

// ParsePlain reads a response of PLAIN (RFC 4616): authorisation name, zero, user, zero,
// password. The authorisation name may be empty or the user's. The error wraps
// [ErrLogin].
func ParsePlain(response []byte) (Credentials, error) {
	if len(response) > ResponseBytesMax {
		return Credentials{}, malformed(MechanismPlain, "too long")
	}
	authz, rest, ok1 := strings.Cut(string(response), "\x00")
	user, password, ok2 := strings.Cut(rest, "\x00")
	switch {
	case !ok1 || !ok2 || strings.Contains(password, "\x00"):
		return Credentials{}, malformed(MechanismPlain, "not two separators")
	case authz != "" && authz != user:
		return Credentials{}, malformed(MechanismPlain, "authorisation name differs from the user")
	}
	return Credentials{User: user, Password: Secret(password)}, nil
}

// ParseAMQPLain reads a response of AMQPLAIN: the fields of a table, without its length,
// with strings LOGIN and PASSWORD. The error wraps [ErrLogin].
func ParseAMQPLain(response []byte) (Credentials, error) {
	if len(response) > ResponseBytesMax {
		return Credentials{}, malformed(MechanismAMQPLain, "too long")
	}
	raw := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(response)), uint32(len(response)))
	t, err := amqp.DecodeTable(append(raw, response...))
	if err != nil {
		return Credentials{}, malformed(MechanismAMQPLain, err.Error())
	}
	login, _ := t.Get("LOGIN")
	password, _ := t.Get("PASSWORD")
	user, ok1 := login.(string)
	pass, ok2 := password.(string)
	if !ok1 || !ok2 {
		return Credentials{}, malformed(MechanismAMQPLain, "LOGIN or PASSWORD is missing or no string")
	}
	return Credentials{User: user, Password: Secret(pass)}, nil
}

// MechanismExternal trusts what the transport has verified: the certificate of the
// client (RFC 4422, appendix A). It is offered only to clients that have one.
const MechanismExternal = "EXTERNAL"

// Offered returns the mechanisms of names that a client can use: verified tells
// whether it has shown a certificate that was verified.
func Offered(names []string, verified bool) []string {
	list := make([]string, 0, len(names))
	for _, name := range names {
		if name != MechanismExternal || verified {
			list = append(list, name)
		}
	}
	return list
}

// ParseExternal returns the user that a response of EXTERNAL stands for: peer, the
// name in the verified certificate. As with RabbitMQ the response counts for
// nothing: some clients send two zeroes and asterisks, some a name. The error wraps [ErrLogin].
func ParseExternal(response []byte, peer string) (user string, err error) {
	switch {
	case len(response) > ResponseBytesMax:
		return "", malformed(MechanismExternal, "too long")
	case peer == "":
		return "", fmt.Errorf("%w: the peer has no certificate with the wanted name", ErrLogin)
	}
	return peer, nil
}
