package management

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// Messages is the JSON form of a look into a queue.
type Messages struct {
	State    string    `json:"state"`
	Messages []Message `json:"messages"`
	// Next goes into the parameter after of the next request; "" if nothing is behind.
	Next string `json:"next,omitempty"`
}

// Message is the JSON form of a message in a queue. Names that RabbitMQ has are RabbitMQ's.
type Message struct {
	ID              uint64         `json:"id"`
	Exchange        string         `json:"exchange"`
	RoutingKey      string         `json:"routing_key"`
	RoutingKeys     []string       `json:"routing_keys"`
	Properties      map[string]any `json:"properties"`
	Payload         string         `json:"payload"`
	PayloadEncoding string         `json:"payload_encoding"` // string or base64
	PayloadBytes    int            `json:"payload_bytes"`    // of the whole body
	Truncated       bool           `json:"truncated"`
	Deaths          []Death        `json:"deaths"`
	// Retried: somebody sent it back after a death. DeathsSinceRetry is how often it has died since.
	Retried          bool   `json:"retried"`
	DeathsSinceRetry uint64 `json:"deaths_since_retry,omitempty"`

	Redelivered   bool   `json:"redelivered"`
	Priority      uint8  `json:"priority,omitempty"`
	AcquiredCount uint32 `json:"acquired_count,omitempty"`
	DeliveryCount uint32 `json:"delivery_count,omitempty"`
	ExpiresAt     int64  `json:"expires_at,omitempty"` // ms since 1970
	Node          string `json:"node,omitempty"`

	Reason string   `json:"reason,omitempty"`
	DiedAt int64    `json:"died_at,omitempty"` // ms since 1970
	Detail string   `json:"detail,omitempty"`
	Stage  string   `json:"stage,omitempty"`
	To     []string `json:"to,omitempty"`
}

// Death is the JSON form of a record of a message's history; times are ms since 1970.
type Death struct {
	Queue              string   `json:"queue"`
	Reason             string   `json:"reason"`
	Count              uint64   `json:"count"`
	FirstTime          int64    `json:"first_time"`
	LastTime           int64    `json:"last_time"`
	Exchange           string   `json:"exchange"`
	RoutingKeys        []string `json:"routing_keys"`
	OriginalExpiration string   `json:"original_expiration,omitempty"`
	Detail             string   `json:"detail,omitempty"` // what the client said that rejected it last
	// CountBeforeRetry is how much of Count is older than the newest time that somebody sent the message back.
	CountBeforeRetry uint64 `json:"count_before_retry,omitempty"`
}

// Defaults of a look into a queue.
const (
	peekCount    = 10
	peekTruncate = 50_000
)

func (a *API) routeMessages() {
	a.handle("GET /api/warren/queues/{vhost}/{name}/messages", a.listMessages)
}

func (a *API) listMessages(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	p := broker.Peek{State: q.Get("state"), Count: peekCount, Truncate: peekTruncate, After: q.Get("after")}
	if p.State == "" {
		p.State = "ready"
	}
	for name, to := range map[string]*int{"count": &p.Count, "offset": &p.Offset, "truncate": &p.Truncate} {
		if err := number(q, name, to); err != nil {
			return nil, err
		}
	}
	if p.Filter, err = filterOf(q); err != nil {
		return nil, err
	}
	base64 := false
	switch e := q.Get("encoding"); e {
	case "", "auto":
	case "base64":
		base64 = true
	default:
		return nil, badRequest("encoding '" + e + "' is neither auto nor base64")
	}
	got, err := a.cfg.Broker.Peek(r.Context(), atBroker(u), vhost, r.PathValue("name"), p)
	if err != nil {
		return nil, ofBroker(err)
	}
	out := Messages{State: p.State, Messages: make([]Message, len(got.Messages)), Next: got.Next}
	for i := range got.Messages {
		out.Messages[i] = messageJSON(&got.Messages[i], base64)
	}
	return out, nil
}

func number(q url.Values, name string, to *int) error {
	if !q.Has(name) {
		return nil
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil {
		return badRequest(name + " '" + q.Get(name) + "' is no number")
	}
	*to = n
	return nil
}

// filterOf reads a filter from the parameters of a request. A parameter that takes
// several values may come several times.
func filterOf(q url.Values) (f broker.Filter, err error) {
	f.Reasons, f.From, f.MessageIDs = q["reason"], q.Get("from"), q["message_id"]
	for name, to := range map[string]*time.Duration{"older_than": &f.OlderThan, "newer_than": &f.NewerThan} {
		if *to, err = age(q.Get(name)); err != nil {
			return f, err
		}
	}
	if text := q.Get("retried"); text != "" {
		retried, err := strconv.ParseBool(text)
		if err != nil {
			return f, badRequest("retried '" + text + "' is neither true nor false")
		}
		f.Retried = &retried
	}
	for _, text := range q["id"] {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return f, badRequest("id '" + text + "' is no number")
		}
		f.IDs = append(f.IDs, id)
	}
	f.Header, f.HeaderValue, err = headerOf(q.Get("header"))
	return f, err
}

// age reads a duration: 90s, 15m, 2h, or a number of seconds. "" is none.
func age(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, badRequest("'" + text + "' is no age like 90s, 15m or 2h")
	}
	return d, nil
}

func messageJSON(m *broker.PeekedMessage, inBase64 bool) Message {
	j := Message{
		ID: m.ID, Exchange: m.Exchange, RoutingKeys: m.RoutingKeys, Properties: PropertiesJSON(m.Properties),
		PayloadBytes: m.BodyBytes, Truncated: len(m.Body) < m.BodyBytes, Deaths: make([]Death, len(m.Deaths)),
		Redelivered: m.Redelivered, Priority: m.Priority, AcquiredCount: m.AcquiredCount, DeliveryCount: m.DeliveryCount,
		ExpiresAt: m.ExpiresAt, Node: m.Node, Reason: m.Reason, DiedAt: m.DiedAt, Detail: m.Detail, Stage: m.Stage, To: m.To,
	}
	if len(m.RoutingKeys) > 0 {
		j.RoutingKey = m.RoutingKeys[0]
	}
	j.Payload, j.PayloadEncoding = payload(m.Body, j.Truncated, inBase64)
	for i := range m.Deaths {
		d := &m.Deaths[i]
		j.Deaths[i] = Death{
			Queue: d.Queue, Reason: d.Reason.String(), Count: d.Count, FirstTime: d.FirstMillis, LastTime: d.LastMillis,
			Exchange: d.Exchange, RoutingKeys: d.RoutingKeys, OriginalExpiration: d.OriginalExpiration, Detail: d.Detail,
			CountBeforeRetry: d.Before,
		}
	}
	j.Retried, j.DeathsSinceRetry = m.Retried()
	return j
}

// payload renders a body: as text if it is UTF-8, where a character that the truncation
// has cut is left out, else in base64.
func payload(body []byte, truncated, inBase64 bool) (text, encoding string) {
	if !inBase64 {
		whole := body
		for cut := 0; truncated && cut < utf8.UTFMax-1 && len(whole) > 0; cut++ {
			if r, n := utf8.DecodeLastRune(whole); r != utf8.RuneError || n != 1 {
				break
			}
			whole = whole[:len(whole)-1]
		}
		if utf8.Valid(whole) {
			return string(whole), "string"
		}
	}
	return base64.StdEncoding.EncodeToString(body), "base64"
}

// PropertiesJSON turns a message's properties into what encoding/json renders as RabbitMQ
// does: those that are set, by RabbitMQ's names. Properties that do not decode give none.
func PropertiesJSON(raw amqp.RawProperties) map[string]any {
	m := map[string]any{}
	p, err := amqp.DecodeProperties(raw)
	if err != nil {
		return m
	}
	for name, get := range map[string]func() (string, bool){
		"content_type": p.ContentType, "content_encoding": p.ContentEncoding, "correlation_id": p.CorrelationID,
		"reply_to": p.ReplyTo, "expiration": p.Expiration, "message_id": p.MessageID, "type": p.Type,
		"user_id": p.UserID, "app_id": p.AppID, "cluster_id": p.ClusterID,
	} {
		if v, ok := get(); ok {
			m[name] = v
		}
	}
	if v, ok := p.DeliveryMode(); ok {
		m["delivery_mode"] = v
	}
	if v, ok := p.Priority(); ok {
		m["priority"] = v
	}
	if v, ok := p.Timestamp(); ok {
		m["timestamp"] = uint64(v)
	}
	if v, ok := p.Headers(); ok {
		m["headers"] = v.JSON()
	}
	return m
}
