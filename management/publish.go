package management

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// Bounds of AMQP 0-9-1.
const (
	shortBytesMax = 255
	headersDepth  = 16 // of tables and arrays in a message's headers
)

// timeoutConfirm bounds the wait for a confirm. A publish that is not confirmed then may
// still be stored.
const timeoutConfirm = 15 * time.Second

// alarmPatience bounds the wait for the end of an alarm: what is left of timeoutConfirm is for the confirm.
const alarmPatience = 5 * time.Second

func (a *API) routePublish() {
	a.handle("POST /api/exchanges/{vhost}/{exchange}/publish", a.publish)
}

// publish puts one message into an exchange, "amq.default" being the default one. It is
// mandatory and confirmed: {"routed":true} is told when a quorum of each queue has it.
func (a *API) publish(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	p, err := publishOf(body)
	if err != nil {
		return nil, err
	}
	if p.Exchange = r.PathValue("exchange"); p.Exchange == "amq.default" {
		p.Exchange = ""
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeoutConfirm)
	defer cancel()
	if err := a.holdUp(ctx); err != nil {
		return nil, err
	}
	routed, confirm, err := a.cfg.Broker.PublishOnce(ctx, atBroker(u), vhost, p)
	switch {
	case err != nil:
		return nil, ofBroker(notFoundAs(err, "exchange_not_found"))
	case confirm.Refused:
		return nil, badRequest("Unable to publish message. Check queue limits.")
	}
	return map[string]bool{"routed": routed}, nil
}

// holdUp refuses to publish while the cluster is short of something: here no connection is there to be blocked.
func (a *API) holdUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, alarmPatience)
	defer cancel()
	if reason := a.cfg.HoldUp(ctx); reason != "" {
		return &refusal{http.StatusServiceUnavailable, "service_unavailable", "publishers are blocked: " + reason}
	}
	return nil
}

// publishOf reads the request's fields, all of which RabbitMQ wants to be there.
func publishOf(body map[string]any) (p broker.Publish, err error) {
	for _, name := range []string{"properties", "routing_key", "payload", "payload_encoding"} {
		if _, ok := body[name]; !ok {
			return p, badRequest("key_missing: " + name)
		}
	}
	var ok bool
	if p.Key, ok = body["routing_key"].(string); !ok || len(p.Key) > shortBytesMax {
		return p, badRequest("routing_key is no text of at most 255 bytes")
	}
	payload, ok := body["payload"].(string)
	if !ok {
		return p, badRequest("payload is no text")
	}
	switch body["payload_encoding"] {
	case "string":
		p.Body = []byte(payload)
	case "base64":
		if p.Body, err = base64.StdEncoding.DecodeString(payload); err != nil {
			return p, badRequest("payload is not base64")
		}
	default:
		return p, badRequest(fmt.Sprintf("unsupported encoding: %v", body["payload_encoding"]))
	}
	fields, ok := body["properties"].(map[string]any)
	if list, isList := body["properties"].([]any); isList && len(list) == 0 {
		ok = true // PHP's empty object
	}
	if !ok {
		return p, badRequest("properties is no object")
	}
	if p.Properties, err = propertiesOf(fields); err == nil && len(p.Properties) > amqp.PropertiesMax {
		err = badRequest(fmt.Sprintf("properties of %d bytes are more than %d", len(p.Properties), amqp.PropertiesMax))
	}
	return p, err
}

// propertiesOf makes message properties of their JSON form. Unknown names are refused.
func propertiesOf(fields map[string]any) (amqp.RawProperties, error) {
	var props amqp.Properties
	for name, v := range fields {
		if err := setProperty(&props, name, v); err != nil {
			return nil, err
		}
	}
	return props.AppendTo(nil), nil
}

func setProperty(p *amqp.Properties, name string, v any) error {
	texts := map[string]func(string){
		"content_type": p.SetContentType, "content_encoding": p.SetContentEncoding, "correlation_id": p.SetCorrelationID,
		"reply_to": p.SetReplyTo, "expiration": p.SetExpiration, "message_id": p.SetMessageID, "type": p.SetType,
		"user_id": p.SetUserID, "app_id": p.SetAppID, "cluster_id": p.SetClusterID,
	}
	bytes := map[string]func(uint8){"delivery_mode": p.SetDeliveryMode, "priority": p.SetPriority}
	if set := texts[name]; set != nil {
		text, ok := v.(string)
		if n, isNumber := v.(json.Number); isNumber && name == "expiration" {
			text, ok = n.String(), true // the broker checks what it says
		}
		if !ok || len(text) > shortBytesMax {
			return badRequest("property " + name + " is no text of at most 255 bytes")
		}
		set(text)
		return nil
	}
	if set := bytes[name]; set != nil {
		n, ok := integerOf(v, 0, math.MaxUint8)
		if !ok {
			return badRequest("property " + name + " is no integer from 0 to 255")
		}
		set(uint8(n))
		return nil
	}
	switch name {
	case "timestamp":
		n, ok := integerOf(v, 0, math.MaxInt64)
		if !ok {
			return badRequest("property timestamp is no integer")
		}
		p.SetTimestamp(amqp.Timestamp(n))
	case "headers":
		fields, ok := v.(map[string]any)
		if list, isList := v.([]any); isList && len(list) == 0 {
			ok = true
		}
		if !ok {
			return badRequest("property headers is no object")
		}
		table, err := amqp.TableFromJSON(fields, headersDepth)
		if err != nil {
			return badRequest("headers: " + err.Error())
		}
		p.SetHeaders(table)
	default:
		return badRequest("unknown property: " + name)
	}
	return nil
}

func integerOf(v any, low, high int64) (int64, bool) {
	number, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := number.Int64()
	return n, err == nil && n >= low && n <= high
}
