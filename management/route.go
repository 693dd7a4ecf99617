package management

import (
	"net/http"

	"github.com/warrenmq/warren/broker"
)

// Route is where a message would go.
type Route struct {
	Routed bool     `json:"routed"`
	Queues []string `json:"queues"`
	// DelayMillis is how long a delayed exchange would keep it before, 0 if not at all.
	DelayMillis int64 `json:"delay_ms"`
}

func (a *API) routeRoute() {
	a.in("POST /api/warren/exchanges/{vhost}/{exchange}/route", a.route)
}

// route says where a message with the request's routing_key and properties, whose headers count, would go. Nothing is published. What
// the user may not publish is refused.
func (a *API) route(r *http.Request, u User, vhost string) (any, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	p := broker.Publish{Exchange: exchangeName(r.PathValue("exchange"))}
	if p.Key, err = textOf(body, "routing_key"); err != nil {
		return nil, err
	}
	if len(p.Key) > shortBytesMax {
		return nil, badRequest("routing_key is no text of at most 255 bytes")
	}
	fields, ok := body["properties"].(map[string]any)
	if !ok && body["properties"] != nil {
		return nil, badRequest("properties is no object")
	}
	if p.Properties, err = propertiesOf(fields); err != nil {
		return nil, err
	}
	found, err := a.cfg.Broker.RouteOnce(r.Context(), atBroker(u), vhost, p)
	if err != nil {
		return nil, err
	}
	return Route{len(found.Queues) > 0, found.Queues, found.DelayMillis}, nil
}
