package management

import (
	"errors"
	"net/http"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
)

func (a *API) routeQueueActions() {
	a.in("PUT /api/queues/{vhost}/{name}", a.putQueue)
	a.handle("DELETE /api/queues/{vhost}/{name}", a.deleteQueue)
	a.in("DELETE /api/queues/{vhost}/{name}/contents", func(r *http.Request, u User, vhost string) (any, error) {
		failpoint.PanicsForClient()
		_, err := a.cfg.Broker.Purge(r.Context(), atBroker(u), vhost, r.PathValue("name"))
		return nil, err
	})
	a.in("POST /api/queues/{vhost}/{name}/actions", a.actOnQueue)
	for _, paused := range []bool{true, false} {
		verb := map[bool]string{true: "pause", false: "resume"}[paused]
		a.in("PUT /api/queues/{vhost}/{name}/"+verb, func(r *http.Request, u User, vhost string) (any, error) {
			return nil, a.cfg.Broker.PauseQueue(r.Context(), atBroker(u), vhost, r.PathValue("name"), paused)
		})
	}
	a.in(patternFetch, a.getMessages)
}

// deleteQueue deletes a queue. By force it gives up what the queue owes to others, which is for an administrator to say, also of one that was deleted with its vhost.
func (a *API) deleteQueue(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	force := asked(r, "force")
	if err != nil && (!errors.Is(err, errNotFound) || !force || !u.may(auth.TagAdministrator)) {
		return nil, err
	}
	name, ifUnused, ifEmpty, delays := r.PathValue("name"), asked(r, "if-unused"), asked(r, "if-empty"), asked(r, "delayed-exchange")
	switch {
	case !force && delays:
		return nil, badRequest("the queue of a delayed exchange goes with the exchange, or by force")
	case !force:
		_, err := a.cfg.Broker.DropQueue(r.Context(), atBroker(u), vhost, name, ifUnused, ifEmpty)
		return nil, ofBroker(err)
	case !u.may(auth.TagAdministrator):
		return nil, errNotAuthorised
	case ifUnused || ifEmpty:
		return nil, badRequest("a queue is deleted by force, or if it is unused or empty: nobody can tell without its leader")
	case delays:
		return nil, ofBroker(a.cfg.Broker.ForceDropDelays(r.Context(), atBroker(u), r.PathValue("vhost"), name))
	}
	_, err = a.cfg.Broker.ForceDropQueue(r.Context(), atBroker(u), r.PathValue("vhost"), name)
	return nil, ofBroker(err)
}

// putQueue declares a queue. What is not said is false, as in RabbitMQ.
func (a *API) putQueue(r *http.Request, u User, vhost string) (any, error) {
	body, err := readObject(r)
	if err != nil {
		return nil, err
	}
	d := broker.QueueDeclare{Name: r.PathValue("name")}
	for key, to := range map[string]*bool{"durable": &d.Durable, "auto_delete": &d.AutoDelete, "exclusive": &d.Exclusive} {
		if *to, err = flagOf(body, key); err != nil {
			return nil, err
		}
	}
	if d.Exclusive {
		return nil, badRequest("an exclusive queue belongs to a connection, which a request is not")
	}
	if d.Arguments, err = argumentsOf(body); err != nil {
		return nil, err
	}
	return made(a.cfg.Broker.PutQueue(r.Context(), atBroker(u), vhost, d))
}

// actOnQueue takes the actions that RabbitMQ had for mirrored queues. There is nothing to do: replicas follow by themselves.
func (a *API) actOnQueue(r *http.Request, u User, vhost string) (any, error) {
	if !u.may(auth.TagAdministrator) {
		return nil, unauthorised("Not administrator user")
	}
	if _, err := a.cfg.Broker.FindQueue(r.Context(), vhost, r.PathValue("name")); err != nil {
		return nil, err
	}
	body, err := readObject(r)
	if err == nil {
		err = missing(body, "action")
	}
	if err != nil {
		return nil, err
	}
	switch body["action"] {
	case "sync", "cancel_sync":
		return nil, nil
	}
	return nil, badRequest("unknown: " + term(body["action"]))
}

// patternFetch is that of requests that take messages from a queue.
const patternFetch = "POST /api/queues/{vhost}/{name}/get"

// fetchBytesMax bounds the bodies in one answer: the messages behind stay in the queue. Whoever asks again gets them.
const fetchBytesMax = 16 << 20

// GotMessage is the JSON form of a message that was taken from a queue.
type GotMessage struct {
	PayloadBytes    int            `json:"payload_bytes"` // of the whole body
	Redelivered     bool           `json:"redelivered"`
	Exchange        string         `json:"exchange"`
	RoutingKey      string         `json:"routing_key"`
	MessageCount    uint32         `json:"message_count"` // ready ones behind it
	Properties      map[string]any `json:"properties"`
	Payload         string         `json:"payload"`
	PayloadEncoding string         `json:"payload_encoding"` // string or base64
}

// ackModes say what becomes of the messages. A mode without an acknowledgement that puts them back counts as a failed delivery, as
// when a client's channel ends.
var ackModes = map[string]broker.SettleKind{
	"ack_requeue_true": fsm.RequeueFailed, "ack_requeue_false": fsm.Ack,
	"reject_requeue_true": fsm.RequeueFailed, "reject_requeue_false": fsm.Discard,
}

// getMessages takes messages from a queue, as a client's basic.get.
func (a *API) getMessages(r *http.Request, u User, vhost string) (any, error) {
	f, inBase64, err := fetchOf(r)
	if err != nil {
		return nil, err
	}
	got, err := a.cfg.Broker.FetchOnce(r.Context(), atBroker(u), vhost, r.PathValue("name"), f)
	if err != nil {
		return nil, notFoundAs(err, "queue_not_found")
	}
	list := make([]GotMessage, len(got))
	for i := range got {
		m := &got[i]
		list[i] = GotMessage{
			PayloadBytes: m.BodyBytes, Redelivered: m.Redelivered, Exchange: m.Exchange, RoutingKey: m.Key, MessageCount: m.Remaining,
			Properties: PropertiesJSON(m.Properties),
		}
		list[i].Payload, list[i].PayloadEncoding = payload(m.Body, len(m.Body) < m.BodyBytes, inBase64)
	}
	return list, nil
}

func fetchOf(r *http.Request) (f broker.Fetch, inBase64 bool, err error) {
	body, err := readObject(r)
	if err != nil {
		return f, false, err
	}
	// Before RabbitMQ 3.7 clients said requeue.
	if _, ok := body["ackmode"]; !ok && body["requeue"] != nil {
		requeue, err := flagOf(body, "requeue")
		if err != nil {
			return f, false, err
		}
		body["ackmode"] = map[bool]string{true: "ack_requeue_true", false: "ack_requeue_false"}[requeue]
	}
	if err := missing(body, "ackmode", "count", "encoding"); err != nil {
		return f, false, err
	}
	mode, _ := body["ackmode"].(string)
	var ok bool
	if f.End, ok = ackModes[mode]; !ok {
		return f, false, badRequest("unsupported ackmode " + term(body["ackmode"]) + ": want ack_requeue_true, ack_requeue_false, reject_requeue_true or reject_requeue_false")
	}
	count, err := integer(body, "count")
	if err != nil {
		return f, false, err
	}
	if count < 0 {
		return f, false, badRequest("count is negative")
	}
	f.Count, f.Truncate, f.BytesMax = int(count), -1, fetchBytesMax
	if body["truncate"] != nil {
		n, err := integer(body, "truncate")
		if err != nil {
			return f, false, err
		}
		if n < 0 {
			return f, false, badRequest("truncate is negative")
		}
		f.Truncate = int(n)
	}
	switch body["encoding"] {
	case "auto":
	case "base64":
		inBase64 = true
	default:
		return f, false, badRequest("Unsupported encoding. Please use auto or base64.")
	}
	return f, inBase64, nil
}
