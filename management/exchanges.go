package management

import (
	"net/http"

	"github.com/warrenmq/warren/broker"
)

// Exchange is the JSON form of an exchange.
type Exchange struct {
	Name       string         `json:"name"`
	VHost      string         `json:"vhost"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Internal   bool           `json:"internal"`
	Arguments  map[string]any `json:"arguments"`
	Policy     *string        `json:"policy"` // null if none applies
	// MessageStats are what clients have published to it since the nodes they are at have begun; absent if nothing.
	MessageStats MessageStats `json:"message_stats,omitempty"`
}

func (a *API) routeExchanges() {
	all := func(r *http.Request, u User) (any, error) {
		list := []Exchange{}
		for _, x := range a.cfg.Broker.Exchanges("") {
			if a.sees(u, x.VHost) {
				list = append(list, exchangeJSON(&x))
			}
		}
		a.addExchangeStats(r, list)
		return paged(r, list)
	}
	a.handle("GET /api/exchanges", all)
	a.in("GET /api/exchanges/{vhost}", func(r *http.Request, _ User, vhost string) (any, error) {
		list := []Exchange{}
		for _, x := range a.cfg.Broker.Exchanges(vhost) {
			list = append(list, exchangeJSON(&x))
		}
		a.addExchangeStats(r, list)
		return paged(r, list)
	})
	a.in("GET /api/exchanges/{vhost}/{exchange}", func(r *http.Request, _ User, vhost string) (any, error) {
		rates, err := spanOf(r, "msg_rates")
		if err != nil {
			return nil, err
		}
		x, err := a.cfg.Broker.FindExchange(r.Context(), vhost, exchangeName(r.PathValue("exchange")))
		if err != nil {
			return nil, err
		}
		list := []Exchange{exchangeJSON(&x)}
		a.addExchangeStats(r, list)
		list[0].MessageStats.withPast(countersOfExchange, a.past(r.Context(), broker.ExchangeKey(x.VHost, x.Name), rates))
		return list[0], nil
	})
	a.in("PUT /api/exchanges/{vhost}/{exchange}", a.putExchange)
	a.in("DELETE /api/exchanges/{vhost}/{exchange}", func(r *http.Request, u User, vhost string) (any, error) {
		return nil, a.cfg.Broker.DropExchange(r.Context(), atBroker(u), vhost, exchangeName(r.PathValue("exchange")), asked(r, "if-unused"))
	})
	a.in("GET /api/exchanges/{vhost}/{exchange}/bindings/source", a.bindingsFrom)
	a.in("GET /api/exchanges/{vhost}/{exchange}/bindings/destination", a.bindingsToExchange)
}

func exchangeJSON(x *broker.ExchangeInfo) Exchange {
	return Exchange{
		Name: x.Name, VHost: x.VHost, Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal,
		Arguments: x.Arguments.JSON(), Policy: nameOrNil(x.Policy),
	}
}

// putExchange declares an exchange. What is not said is false, and the type direct, as in RabbitMQ; a type that is said to be nothing is
// none.
func (a *API) putExchange(r *http.Request, u User, vhost string) (any, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	d := broker.ExchangeDeclare{Name: exchangeName(r.PathValue("exchange"))}
	if d.Type, err = textOf(body, "type"); err != nil {
		return nil, err
	}
	switch v, said := body["type"]; {
	case !said:
		d.Type = "direct"
	case v == nil:
		d.Type = "null"
	}
	for key, to := range map[string]*bool{"durable": &d.Durable, "auto_delete": &d.AutoDelete, "internal": &d.Internal} {
		if *to, err = flagOf(body, key); err != nil {
			return nil, err
		}
	}
	if d.Arguments, err = argumentsOf(body); err != nil {
		return nil, err
	}
	return made(a.cfg.Broker.PutExchange(r.Context(), atBroker(u), vhost, d))
}
