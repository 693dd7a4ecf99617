package process

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// httpBody is what the requests of permissionMatrix say.
type httpBody struct {
	Type       string
	Durable    bool
	Arguments  map[string]string
	RoutingKey string `json:"routing_key"`
	Payload    string
	Properties struct{ Headers map[string][]string }
}

// rpcOf makes what a request of the management API does by gRPC; it is nil if that API cannot do it yet.
func (r *usersRig) rpcOf(c *rpcClient, method, path, body string) func() error {
	r.Helper()
	var b httpBody
	if body != "" {
		if err := json.Unmarshal([]byte(body), &b); err != nil {
			r.Fatal(err)
		}
	}
	parts := strings.Split(strings.TrimPrefix(path, "/api/"), "/")
	for i := range parts {
		part, err := url.PathUnescape(parts[i])
		if err != nil {
			r.Fatal(err)
		}
		parts[i] = part
	}
	arguments := &warrenv1.Table{Fields: map[string]*warrenv1.Value{}}
	for name, v := range b.Arguments {
		arguments.Fields[name] = textValue(v)
	}
	switch what := method + " " + parts[0]; {
	case what == "POST exchanges":
		return func() error { return rpcPublishAs(c, parts[2], b) }
	case strings.HasSuffix(what, " bindings"):
		return rpcBindAs(c, method, parts[2:], b)
	case what == "PUT exchanges":
		return func() error {
			x := &warrenv1.Exchange{Name: parts[2], Type: b.Type, Durable: b.Durable, Arguments: arguments}
			_, err := c.topology.DeclareExchange(c.ctx, &warrenv1.DeclareExchangeRequest{Exchange: x})
			return err
		}
	case what == "DELETE exchanges":
		return func() error {
			_, err := c.topology.DeleteExchange(c.ctx, &warrenv1.DeleteExchangeRequest{Exchange: parts[2]})
			return err
		}
	case what == "PUT queues":
		return func() error {
			q := &warrenv1.QueueDeclaration{Name: parts[2], Durable: b.Durable, Arguments: arguments}
			_, err := c.topology.DeclareQueue(c.ctx, &warrenv1.DeclareQueueRequest{Queue: q})
			return err
		}
	case what == "DELETE queues" && len(parts) == 3:
		return func() error {
			_, err := c.topology.DeleteQueue(c.ctx, &warrenv1.DeleteQueueRequest{Queue: parts[2]})
			return err
		}
	case what == "DELETE queues":
		return func() error {
			_, err := c.topology.PurgeQueue(c.ctx, &warrenv1.PurgeQueueRequest{Queue: parts[2]})
			return err
		}
	case what == "POST queues":
		return func() error {
			_, err := c.consume.Get(c.ctx, &warrenv1.GetRequest{Queue: parts[2], Settle: warrenv1.SettleKind_SETTLE_KIND_RELEASE})
			return err
		}
	case what == "GET warren" && parts[4] == "messages":
		return func() error {
			_, err := warrenv1.NewMessageServiceClient(c.conn).Peek(c.ctx, &warrenv1.PeekRequest{Queue: parts[3]})
			return err
		}
	case parts[0] == "warren":
		return nil
	default:
		r.Fatalf("%s %s has no counterpart here", method, path)
		return nil
	}
}

func rpcPublishAs(c *rpcClient, exchange string, b httpBody) error {
	if exchange == "amq.default" {
		exchange = ""
	}
	headers := &warrenv1.Table{Fields: map[string]*warrenv1.Value{}}
	for name, keys := range b.Properties.Headers {
		array := &warrenv1.Array{}
		for _, key := range keys {
			array.Values = append(array.Values, textValue(key))
		}
		headers.Fields[name] = &warrenv1.Value{Kind: &warrenv1.Value_ArrayValue{ArrayValue: array}}
	}
	m := &warrenv1.Message{Exchange: exchange, RoutingKey: b.RoutingKey, Body: []byte(b.Payload), Properties: &warrenv1.Properties{Headers: headers}}
	_, err := c.publish.Publish(c.ctx, &warrenv1.PublishRequest{Publication: &warrenv1.Publication{Message: m}})
	return err
}

// rpcBindAs takes a path behind the vhost: e SOURCE q or e DESTINATION, and the key of a binding to remove.
func rpcBindAs(c *rpcClient, method string, path []string, b httpBody) func() error {
	binding := &warrenv1.Binding{Source: path[1], Destination: path[3], RoutingKey: b.RoutingKey}
	if path[2] == "e" {
		binding.DestinationKind = warrenv1.DestinationKind_DESTINATION_KIND_EXCHANGE
	}
	if method == http.MethodDelete {
		binding.RoutingKey = path[4]
		return func() error {
			_, err := c.topology.Unbind(c.ctx, &warrenv1.UnbindRequest{Binding: binding})
			return err
		}
	}
	return func() error {
		_, err := c.topology.Bind(c.ctx, &warrenv1.BindRequest{Binding: binding})
		return err
	}
}

// sameByRPC does over gRPC what a request of the management API has done and compares the refusal, of which the beginning is wanted; "": it
// is done.
func (r *usersRig) sameByRPC(c *rpcClient, what, method, path, body, refusal string) {
	r.Helper()
	do := r.rpcOf(c, method, path, body)
	if do == nil {
		return
	}
	s := status.Convert(do())
	if refusal == "" && s.Code() != codes.OK || refusal != "" && (s.Code() != codes.PermissionDenied || !strings.HasPrefix(s.Message(), refusal)) {
		r.Errorf("%s over gRPC: %v %q, want %q", what, s.Code(), s.Message(), refusal)
	}
}
