package shovel

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// URI is the address of a broker. It is safe to print.
type URI struct {
	raw string
	// Local: the cluster that the shovel runs on, without a network.
	Local bool
	// User is empty where the URI names none.
	User string
	// VHost is what a local URI names; empty: the shovel's own.
	VHost string
	// Unverified: the certificate of the server is not looked at.
	Unverified bool
	// Heartbeat is the interval to ask for.
	Heartbeat time.Duration
}

// parameters of URIs that are known here, by RabbitMQ's names (https://www.rabbitmq.com/docs/uri-query-parameters).
var parameters = []string{
	"auth_mechanism", "cacertfile", "certfile", "channel_max", "connection_timeout", "heartbeat", "keyfile", "server_name_indication", "verify",
}

// uriMax bounds a URI, in bytes.
const uriMax = 4096

// ParseURI reads amqp://USER:PASSWORD@HOST:PORT/VHOST?PARAMETERS, or amqps://. Without a host it is the cluster itself. The errors do not show
// passwords.
func ParseURI(s string) (URI, error) {
	if len(s) > uriMax {
		return URI{}, fmt.Errorf("a URI of %d bytes is longer than %d", len(s), uriMax)
	}
	u, err := url.Parse(s)
	if err != nil {
		return URI{}, fmt.Errorf("this is no URI: %w", errors.Unwrap(err)) // the error itself shows the URI
	}
	if u.Scheme != "amqp" && u.Scheme != "amqps" {
		return URI{}, fmt.Errorf("the scheme is '%s', not amqp or amqps", u.Scheme)
	}
	uri := URI{raw: s, User: u.User.Username(), Heartbeat: heartbeat}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return URI{}, fmt.Errorf("parameters of a URI: %w", err)
	}
	for name := range query {
		if !slices.Contains(parameters, name) {
			return URI{}, fmt.Errorf("a URI has no parameter '%s' here", name)
		}
	}
	switch v := query.Get("verify"); v {
	case "", "verify_peer":
	case "verify_none":
		uri.Unverified = true
	default:
		return URI{}, fmt.Errorf("the parameter verify is '%s', not verify_peer or verify_none", v)
	}
	if u.Host == "" {
		if u.Scheme != "amqp" {
			return URI{}, errors.New("amqps without a host")
		}
		uri.Local = true
		if len(u.Path) > 1 {
			uri.VHost = u.Path[1:]
		}
		return uri, nil
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return URI{}, fmt.Errorf("there is no port %s", port)
		}
	}
	if _, err := amqp.ParseURI(s); err != nil {
		return URI{}, fmt.Errorf("a URI of AMQP: %w", err)
	}
	if query.Has("heartbeat") {
		n, err := strconv.ParseUint(query.Get("heartbeat"), 10, 16)
		if err != nil {
			return URI{}, errors.New("the parameter heartbeat is no number of seconds up to 65535")
		}
		uri.Heartbeat = time.Duration(n) * time.Second
	}
	return uri, nil
}

// String is the URI without user, password and parameters.
func (u URI) String() string {
	p, err := url.Parse(u.raw)
	if err != nil {
		return ""
	}
	// Without a host, package url would leave out the slashes.
	p.User, p.RawQuery, p.Fragment = nil, "", ""
	if p.Host == "" {
		return p.Scheme + "://" + p.EscapedPath()
	}
	return p.String()
}
