package management

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/warrenmq/warren/broker"
)

// BindingJSON is the JSON form of a binding.
type BindingJSON struct {
	Source          string         `json:"source"`
	VHost           string         `json:"vhost"`
	Destination     string         `json:"destination"`
	DestinationType string         `json:"destination_type"` // queue or exchange
	RoutingKey      string         `json:"routing_key"`
	Arguments       map[string]any `json:"arguments"`
	// PropertiesKey tells the binding from others between the same two; it is escaped once.
	PropertiesKey string `json:"properties_key"`
}

func (a *API) routeBindings() {
	a.handle("GET /api/bindings", func(r *http.Request, u User) (any, error) {
		return a.bindings(r, "", func(vhost string) bool { return a.sees(u, vhost) })
	})
	a.in("GET /api/bindings/{vhost}", func(r *http.Request, _ User, vhost string) (any, error) {
		return a.bindings(r, vhost, func(string) bool { return true })
	})
	a.in("GET /api/queues/{vhost}/{name}/bindings", func(r *http.Request, _ User, vhost string) (any, error) {
		if _, err := a.cfg.Broker.FindQueue(r.Context(), vhost, r.PathValue("name")); unlessMissing(err) != nil {
			return nil, err
		}
		return paged(r, bindingsJSON(a.cfg.Broker.BindingsTo(vhost, r.PathValue("name"), false)))
	})
	for kind, toExchange := range map[string]bool{"q": false, "e": true} {
		between := "/api/bindings/{vhost}/e/{source}/" + kind + "/{destination}"
		a.in("GET "+between, func(r *http.Request, _ User, vhost string) (any, error) {
			list, err := a.between(r, vhost, toExchange)
			if err != nil {
				return nil, err
			}
			return paged(r, bindingsJSON(list))
		})
		a.in("POST "+between, func(r *http.Request, u User, vhost string) (any, error) {
			return a.postBinding(r, u, vhost, toExchange)
		})
		a.in("GET "+between+"/{props}", func(r *http.Request, _ User, vhost string) (any, error) {
			b, err := a.binding(r, vhost, toExchange)
			if err != nil {
				return nil, err
			}
			return bindingJSON(b), nil
		})
		a.in("DELETE "+between+"/{props}", func(r *http.Request, u User, vhost string) (any, error) {
			b, err := a.binding(r, vhost, toExchange)
			if err != nil {
				return nil, err
			}
			return nil, a.cfg.Broker.DropBinding(r.Context(), atBroker(u), vhost, b.Binding)
		})
	}
}

// bindings are those of a virtual host, or of all that may be seen. With default=false in the query, which RabbitMQ does not have, they are without
// those of the default exchange, of which there are as many as queues.
func (a *API) bindings(r *http.Request, vhost string, seen func(vhost string) bool) (any, error) {
	text := r.URL.Query().Get("default")
	if text != "" && text != "true" && text != "false" {
		return nil, badRequest("default has to be true or false")
	}
	list := []BindingJSON{}
	for _, b := range a.cfg.Broker.Bindings(vhost) {
		if (b.Source != "" || text != "false") && seen(b.VHost) {
			list = append(list, bindingJSON(&b))
		}
	}
	return paged(r, list)
}

func (a *API) bindingsFrom(r *http.Request, _ User, vhost string) (any, error) {
	name := exchangeName(r.PathValue("exchange"))
	if _, err := a.cfg.Broker.FindExchange(r.Context(), vhost, name); unlessMissing(err) != nil {
		return nil, err
	}
	return paged(r, bindingsJSON(a.cfg.Broker.BindingsFrom(vhost, name)))
}

func (a *API) bindingsToExchange(r *http.Request, _ User, vhost string) (any, error) {
	name := exchangeName(r.PathValue("exchange"))
	if _, err := a.cfg.Broker.FindExchange(r.Context(), vhost, name); unlessMissing(err) != nil {
		return nil, err
	}
	return paged(r, bindingsJSON(a.cfg.Broker.BindingsTo(vhost, name, true)))
}

// unlessMissing is err, but nil if it says that a queue or exchange is missing: as in RabbitMQ that one has no bindings. It has been looked for so that
// one that another node has just declared is not taken for missing.
func unlessMissing(err error) error {
	if e, ok := errors.AsType[*broker.Error](err); ok && e.Kind == broker.NotFound {
		return nil
	}
	return err
}

// between are the bindings from the exchange to the queue or exchange that a path names.
func (a *API) between(r *http.Request, vhost string, toExchange bool) (list []broker.BindingInfo, err error) {
	source, destination := exchangeName(r.PathValue("source")), r.PathValue("destination")
	if toExchange {
		destination = exchangeName(destination)
		_, err = a.cfg.Broker.FindExchange(r.Context(), vhost, destination)
	} else {
		_, err = a.cfg.Broker.FindQueue(r.Context(), vhost, destination)
	}
	if unlessMissing(err) == nil {
		_, err = a.cfg.Broker.FindExchange(r.Context(), vhost, source)
	}
	if unlessMissing(err) != nil {
		return nil, err
	}
	for _, b := range a.cfg.Broker.BindingsTo(vhost, destination, toExchange) {
		if b.Source == source {
			list = append(list, b)
		}
	}
	return list, nil
}

// binding is the one that a path names by its properties key. A client that escapes the key once, not twice, is understood
// where that is no other binding's key.
func (a *API) binding(r *http.Request, vhost string, toExchange bool) (*broker.BindingInfo, error) {
	return sure(a, r, func() (*broker.BindingInfo, error) { return a.bindingHere(r, vhost, toExchange) })
}

func (a *API) bindingHere(r *http.Request, vhost string, toExchange bool) (*broker.BindingInfo, error) {
	list, err := a.between(r, vhost, toExchange)
	if err != nil {
		return nil, err
	}
	props := r.PathValue("props")
	for _, same := range []func(key string) bool{
		func(key string) bool { return key == props },
		func(key string) bool { plain, err := url.PathUnescape(key); return err == nil && plain == props },
	} {
		for i := range list {
			if same(propsKey(&list[i])) {
				return &list[i], nil
			}
		}
	}
	return nil, errNotFound
}

// postBinding makes a binding; its address is in the answer.
func (a *API) postBinding(r *http.Request, u User, vhost string, toExchange bool) (any, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	b := broker.BindingInfo{VHost: vhost, Binding: broker.Binding{
		Source: exchangeName(r.PathValue("source")), Destination: r.PathValue("destination"), ToExchange: toExchange,
	}}
	if toExchange {
		b.Destination = exchangeName(b.Destination)
	}
	if b.Key, err = textOf(body, "routing_key"); err != nil {
		return nil, err
	}
	if b.Arguments, err = argumentsOf(body); err != nil {
		return nil, err
	}
	if err := a.cfg.Broker.PutBinding(r.Context(), atBroker(u), vhost, b.Binding); err != nil {
		return nil, notFoundAs(err, "")
	}
	// As in RabbitMQ it is relative to the request's address.
	return created{location: escaped(r.PathValue("destination")) + "/" + escaped(propsKey(&b))}, nil
}

func bindingsJSON(list []broker.BindingInfo) []BindingJSON {
	out := make([]BindingJSON, len(list))
	for i := range list {
		out[i] = bindingJSON(&list[i])
	}
	return out
}

func bindingJSON(b *broker.BindingInfo) BindingJSON {
	kind := "queue"
	if b.ToExchange {
		kind = "exchange"
	}
	return BindingJSON{b.Source, b.VHost, b.Destination, kind, b.Key, b.Arguments.JSON(), propsKey(b)}
}

// propsKey names a binding among those between the same two: its routing key, escaped, "~" for the empty one, and with
// arguments the escaped key, "~" and a hash of them.
func propsKey(b *broker.BindingInfo) string {
	key := escaped(b.Key)
	if len(b.Arguments) == 0 {
		if key == "" {
			return "~"
		}
		return key
	}
	raw, err := json.Marshal(b.Arguments.JSON()) // sorted by name
	if err != nil {
		raw = []byte(err.Error()) // nothing that the codec lets in
	}
	sum := sha256.Sum256(raw)
	return key + "~" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

// escaped is a part of a path in which only letters, digits, "-", "_" and "." stand for themselves; a part of one or two dots, which
// mean something in paths, is escaped whole.
func escaped(part string) string {
	if part == "." || part == ".." {
		return strings.ReplaceAll(part, ".", "%2E")
	}
	return strings.NewReplacer("~", "%7E", "+", "%20").Replace(url.QueryEscape(part))
}
