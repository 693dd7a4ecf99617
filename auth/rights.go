package auth

import (
	"errors"

	"github.com/warrenmq/warren/amqp"
)

// Rights are what a login may do in virtual hosts, if it says so itself and not the catalog, as one by a token with scopes does, or one that another server has
// let in. They are safe for use by several goroutines.
type Rights interface {
	// Source says where they are from, for refusals: "a token's scopes".
	Source() string
	// Lasting tells that an answer counts as long as the login. Otherwise each has to be asked for again when it is needed again; what asks may then wait for
	// another server, as long as the settings allow and no longer.
	Lasting() bool
	// Enters tells whether they may open a virtual host.
	Enters(vhost string) bool
	// Allows tells whether they may do something with a resource of a virtual host. The default exchange's name is "".
	Allows(vhost string, a Action, k Kind, name string) bool
	// Keys says which routing keys they may use with a topic exchange; nil: all.
	Keys(vhost, exchange string) Keys
}

// Patient are rights that may have to wait for another server.
type Patient interface {
	Rights
	// Waiting returns the same rights, with something that they call before they wait.
	Waiting(before func()) Rights
}

// Admission is what another server says of somebody whom it lets in. Rights are nil if the catalog says what they may do.
type Admission struct {
	Tags   []string
	Rights Rights
}

// Attempt is a login that another server is asked about.
type Attempt struct {
	Credentials
	// Verified tells that the transport has verified who it is, and that there is no password.
	Verified bool
	// Source is where it comes from, for who keeps order among many, and Address the client's address, without a port.
	Source, Address string
	// Still is asked when a wait is over, if it is not nil: an error of it ends the attempt before anybody is asked.
	Still func() error
}

// ErrAway reports that nobody has looked at a login: who would have to does not answer. It says nothing about the password.
var ErrAway = errors.New("the server that knows about logins does not answer")

// Keys limits the routing keys that somebody uses with one topic exchange: to publish with, which is [Write], and to bind with, which is [Read].
type Keys interface {
	Allows(a Action, key string) bool
}

// RefuseVhost is the refusal of connection.open to user: an [*amqp.Error] with code 530.
func RefuseVhost(vhost, user string) error {
	return amqp.Errorf(amqp.NotAllowed, 0, "access to vhost '%s' refused for user '%s'", vhost, user)
}

// Refuse is the refusal of an action to user in vhost: an [*amqp.Error] with code 403.
func Refuse(a Action, k Kind, name, vhost, user string) error {
	return amqp.Errorf(amqp.AccessRefused, 0, "%s access to %s '%s' in vhost '%s' refused for user '%s'", a, k, CheckedName(k, name), vhost, user)
}

// RefuseKey is the refusal to use a routing key with a topic exchange: an [*amqp.Error] with code 403.
func RefuseKey(a Action, key, exchange, vhost, user string) error {
	return amqp.Errorf(amqp.AccessRefused, 0, "%s access to topic '%s' in exchange '%s' in vhost '%s' refused for user '%s'", a, key, exchange, vhost, user)
}

// CheckedName is the name that a resource is checked under.
func CheckedName(k Kind, name string) string {
	if k == Exchange && name == "" {
		return DefaultExchangeName
	}
	return name
}
