package auth

import "github.com/warrenmq/warren/amqp"

// Rights are what a login may do in virtual hosts, if it says so itself and not the catalog, as one by a token with scopes does. They are safe for use by
// several goroutines and do not change.
type Rights interface {
	// Enters tells whether they may open a virtual host.
	Enters(vhost string) bool
	// Allows tells whether they may do something with a resource of a virtual host. The default exchange's name is "".
	Allows(vhost string, a Action, k Kind, name string) bool
	// Keys says which routing keys they may use with a topic exchange; nil: all.
	Keys(vhost, exchange string) Keys
}

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
