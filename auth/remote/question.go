package remote

import (
	"net/url"
	"strings"

	"github.com/warrenmq/warren/auth"
)

// Path is one of the questions, by RabbitMQ's names.
type Path uint8

// The questions.
const (
	User Path = iota
	Vhost
	Resource
	Topic
	paths
)

// String returns the name.
func (p Path) String() string { return [...]string{"user", "vhost", "resource", "topic"}[p] }

// question is what is asked about a login; the user's name and tags are those of the login. What it does not need is empty.
type question struct {
	path      Path
	vhost, ip string
	kind      auth.Kind
	name      string
	action    auth.Action
	key       string
}

// form are parameters in the order in which they were added.
type form struct{ strings.Builder }

func (f *form) add(name, value string) {
	if f.Len() > 0 {
		f.WriteByte('&')
	}
	f.WriteString(name)
	f.WriteByte('=')
	f.WriteString(url.QueryEscape(value))
}

// encode returns the parameters of a question, in RabbitMQ's order.
func (q question) encode(user, tags string) string {
	var f form
	f.add("username", user)
	f.add("vhost", q.vhost)
	switch q.path {
	case Vhost:
		f.add("ip", q.ip)
		f.add("tags", tags)
		return f.String()
	case Topic:
		f.add("resource", "topic")
	default:
		f.add("resource", string(q.kind))
	}
	f.add("name", q.name)
	f.add("permission", q.action.String())
	f.add("tags", tags)
	if q.path == Topic {
		f.add("routing_key", q.key)
		f.add("variable_map.username", user)
		f.add("variable_map.vhost", q.vhost)
	}
	return f.String()
}

// encodeUser returns the parameters of the question who may log in.
func encodeUser(a auth.Attempt) string {
	var f form
	f.add("username", a.User)
	if !a.Verified {
		f.add("password", string(a.Password))
	}
	return f.String()
}
