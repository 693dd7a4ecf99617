package management

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// topology is the part of the broker that does for a user without a connection what clients do: exchanges, bindings,
// queues. Its methods are documented there.
type topology interface {
	Exchanges(vhost string) []broker.ExchangeInfo
	FindExchange(ctx context.Context, vhost, name string) (broker.ExchangeInfo, error)
	PutExchange(ctx context.Context, u broker.User, vhost string, d broker.ExchangeDeclare) (created bool, err error)
	DropExchange(ctx context.Context, u broker.User, vhost, name string, ifUnused bool) error

	Bindings(vhost string) []broker.BindingInfo
	BindingsFrom(vhost, source string) []broker.BindingInfo
	BindingsTo(vhost, destination string, toExchange bool) []broker.BindingInfo
	PutBinding(ctx context.Context, u broker.User, vhost string, b broker.Binding) error
	DropBinding(ctx context.Context, u broker.User, vhost string, b broker.Binding) error

	RouteOnce(ctx context.Context, u broker.User, vhost string, p broker.Publish) (broker.Route, error)

	PutQueue(ctx context.Context, u broker.User, vhost string, d broker.QueueDeclare) (created bool, err error)
	PauseQueue(ctx context.Context, u broker.User, vhost, name string, paused bool) error
	DropQueue(ctx context.Context, u broker.User, vhost, name string, ifUnused, ifEmpty bool) (uint32, error)
	// ForceDropQueue does so without an answer of the queue, too, and ends those of the name that were deleted and cannot end.
	ForceDropQueue(ctx context.Context, u broker.User, vhost, name string) (uint32, error)
	// ForceDropDelays does so with the queues of deleted delayed exchanges of a name.
	ForceDropDelays(ctx context.Context, u broker.User, vhost, exchange string) error
	Purge(ctx context.Context, u broker.User, vhost, name string) (uint32, error)
	FetchOnce(ctx context.Context, u broker.User, vhost, name string, f broker.Fetch) ([]broker.Fetched, error)
}

// defaultExchange is the name of the default exchange in paths.
const defaultExchange = "amq.default"

// exchangeName is the name of the exchange that a part of a path means.
func exchangeName(part string) string {
	if part == defaultExchange {
		return ""
	}
	return part
}

// atBroker is the user as the broker knows it.
func atBroker(u User) broker.User {
	b := u.Login
	b.Name, b.Tags = u.Name, u.Tags
	return b
}

// in registers f for a path with a vhost, which exists and which the user may see.
func (a *API) in(pattern string, f func(r *http.Request, u User, vhost string) (any, error)) {
	a.handle(pattern, func(r *http.Request, u User) (any, error) {
		vhost, err := a.vhost(r, u)
		if err != nil {
			return nil, err
		}
		body, err := f(r, u, vhost)
		if err != nil {
			return nil, ofBroker(err)
		}
		return body, nil
	})
}

// sees tells whether a user may see what is in a vhost.
func (a *API) sees(u User, vhost string) bool {
	return u.monitors() || a.cfg.Broker.MayEnter(atBroker(u), vhost)
}

// declarationDepth bounds tables and arrays in arguments.
const declarationDepth = 16

// flagOf returns what a key of a declaration says, false if it is not there.
func flagOf(body map[string]any, key string) (bool, error) {
	f, err := flag(body, key)
	return f != nil && *f, err
}

// textOf returns the text of a key, "" if it is not there.
func textOf(body map[string]any, key string) (string, error) {
	switch v := body[key].(type) {
	case nil:
		return "", nil
	case string:
		if len(v) > shortBytesMax {
			return "", badRequest(key + " is longer than " + strconv.Itoa(shortBytesMax) + " bytes")
		}
		return v, nil
	}
	return "", badRequest(key + " should be a string, actually was " + term(body[key]))
}

// argumentsOf reads the arguments of a declaration or a binding.
func argumentsOf(body map[string]any) (amqp.Table, error) {
	switch v := body["arguments"].(type) {
	case nil:
		return nil, nil
	case []any:
		if len(v) == 0 {
			return nil, nil // PHP's empty object
		}
	case map[string]any:
		table, err := amqp.TableFromJSON(v, declarationDepth)
		if err != nil {
			return nil, badRequest("arguments: " + err.Error())
		}
		return table, nil
	}
	return nil, badRequest("arguments should be an object, actually was " + term(body["arguments"]))
}

// integer reads a number, which simple clients send as a text.
func integer(body map[string]any, key string) (n int64, err error) {
	v := body[key]
	if text, ok := v.(string); ok {
		v = json.Number(text)
	}
	number, ok := v.(json.Number)
	if ok {
		n, err = number.Int64()
	}
	if !ok || err != nil {
		return 0, badRequest("not_integer: " + key + " is " + term(body[key]))
	}
	return n, nil
}

// asked tells whether a parameter of a request is "true".
func asked(r *http.Request, name string) bool { return r.URL.Query().Get(name) == "true" }
