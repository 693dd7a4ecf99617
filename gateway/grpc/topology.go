package grpc

import (
	"context"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"

	wire "github.com/warrenmq/warren/amqp"
	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/failpoint"
)

type topologyService struct {
	warrenv1.UnimplementedTopologyServiceServer
	s *Server
}

func exchangeOf(x *warrenv1.Exchange, passive bool) (d broker.ExchangeDeclare, err error) {
	d = broker.ExchangeDeclare{
		Name: x.GetName(), Type: x.GetType(), Passive: passive, Durable: x.GetDurable(), AutoDelete: x.GetAutoDelete(), Internal: x.GetInternal(),
	}
	if d.Arguments, err = tableOf(x.GetArguments()); err != nil {
		return d, err
	}
	return d, checkName("exchange", d.Name)
}

func queueOf(q *warrenv1.QueueDeclaration) (d broker.QueueDeclare, err error) {
	d = broker.QueueDeclare{Name: q.GetName(), Durable: q.GetDurable(), Exclusive: q.GetExclusive(), AutoDelete: q.GetAutoDelete()}
	if d.Arguments, err = tableOf(q.GetArguments()); err != nil {
		return d, err
	}
	return d, checkName("queue", d.Name)
}

func bindingOf(b *warrenv1.Binding) (d broker.Binding, err error) {
	d = broker.Binding{
		Source: b.GetSource(), Destination: b.GetDestination(), Key: b.GetRoutingKey(),
		ToExchange: b.GetDestinationKind() == warrenv1.DestinationKind_DESTINATION_KIND_EXCHANGE,
	}
	if _, known := warrenv1.DestinationKind_name[int32(b.GetDestinationKind())]; !known {
		return d, invalid("binding to an unknown kind %d of destination", b.GetDestinationKind())
	}
	if d.Arguments, err = tableOf(b.GetArguments()); err != nil {
		return d, err
	}
	for what, name := range map[string]string{"source": d.Source, "destination": d.Destination, "routing_key": d.Key} {
		if err := checkName(what, name); err != nil {
			return d, err
		}
	}
	return d, nil
}

// DeclareExchange implements the service.
func (t *topologyService) DeclareExchange(ctx context.Context, req *warrenv1.DeclareExchangeRequest) (*warrenv1.DeclareExchangeResponse, error) {
	d, err := exchangeOf(req.GetExchange(), req.GetPassive())
	if err != nil {
		return nil, err
	}
	return &warrenv1.DeclareExchangeResponse{}, t.s.moment(ctx, req.GetVhost(), func(ctx context.Context, c *broker.Conn) error {
		return c.DeclareExchange(ctx, d)
	})
}

// DeleteExchange implements the service.
func (t *topologyService) DeleteExchange(ctx context.Context, req *warrenv1.DeleteExchangeRequest) (*warrenv1.DeleteExchangeResponse, error) {
	if err := checkName("exchange", req.GetExchange()); err != nil {
		return nil, err
	}
	return &warrenv1.DeleteExchangeResponse{}, t.s.moment(ctx, req.GetVhost(), func(ctx context.Context, c *broker.Conn) error {
		return c.DeleteExchange(ctx, req.GetExchange(), req.GetIfUnused())
	})
}

// DeclareQueue implements the service.
func (t *topologyService) DeclareQueue(ctx context.Context, req *warrenv1.DeclareQueueRequest) (*warrenv1.DeclareQueueResponse, error) {
	d, err := queueOf(req.GetQueue())
	if err != nil {
		return nil, err
	}
	if d.Passive = req.GetPassive(); d.Exclusive && !d.Passive {
		return nil, invalid("an exclusive queue belongs to a stream: declare it in ConsumeOpen")
	}
	resp := &warrenv1.DeclareQueueResponse{}
	return resp, t.s.moment(ctx, req.GetVhost(), func(ctx context.Context, c *broker.Conn) error {
		ok, err := c.DeclareQueue(ctx, d)
		resp.Queue, resp.Messages, resp.Consumers = ok.Name, uint64(ok.Messages), uint64(ok.Consumers)
		return err
	})
}

// DeleteQueue implements the service.
func (t *topologyService) DeleteQueue(ctx context.Context, req *warrenv1.DeleteQueueRequest) (*warrenv1.DeleteQueueResponse, error) {
	if req.GetDelayedExchange() != "" {
		return t.endDelays(ctx, req)
	}
	if err := checkName("queue", req.GetQueue()); err != nil {
		return nil, err
	}
	if req.GetForce() {
		return audited(ctx, t.s, warrenv1.TopologyService_DeleteQueue_FullMethodName, append(on(req), "force", true), func() (*warrenv1.DeleteQueueResponse, error) {
			return t.forceDelete(ctx, req)
		})
	}
	resp := &warrenv1.DeleteQueueResponse{}
	return resp, t.s.moment(ctx, req.GetVhost(), func(ctx context.Context, c *broker.Conn) error {
		n, err := c.DeleteQueue(ctx, req.GetQueue(), req.GetIfUnused(), req.GetIfEmpty())
		resp.Messages = uint64(n)
		return err
	})
}

// endDelays ends by force what is left of deleted delayed exchanges.
func (t *topologyService) endDelays(ctx context.Context, req *warrenv1.DeleteQueueRequest) (*warrenv1.DeleteQueueResponse, error) {
	if err := checkName("delayed_exchange", req.GetDelayedExchange()); err != nil {
		return nil, err
	}
	if !req.GetForce() || req.GetQueue() != "" {
		return nil, invalid("the queue of a delayed exchange goes with the exchange, or by force and without the name of a queue")
	}
	what := []any{"vhost", vhostOf(req.GetVhost()), "delayed_exchange", req.GetDelayedExchange(), "force", true}
	return audited(ctx, t.s, warrenv1.TopologyService_DeleteQueue_FullMethodName, what, func() (*warrenv1.DeleteQueueResponse, error) {
		return t.forceDelete(ctx, req)
	})
}

// forceDelete deletes a queue, and gives up what it owes to others, which is for an administrator to say.
func (t *topologyService) forceDelete(ctx context.Context, req *warrenv1.DeleteQueueRequest) (*warrenv1.DeleteQueueResponse, error) {
	if err := needs(ctx, auth.TagAdministrator); err != nil {
		return nil, err
	}
	if err := checkName("vhost", req.GetVhost()); err != nil {
		return nil, err
	}
	if req.GetIfUnused() || req.GetIfEmpty() {
		return nil, invalid("a queue is deleted by force, or if it is unused or empty: nobody can tell without its leader")
	}
	if x := req.GetDelayedExchange(); x != "" {
		return &warrenv1.DeleteQueueResponse{}, t.s.broker.ForceDropDelays(ctx, callerOf(ctx).user, vhostOf(req.GetVhost()), x)
	}
	n, err := t.s.broker.ForceDropQueue(ctx, callerOf(ctx).user, vhostOf(req.GetVhost()), req.GetQueue())
	return &warrenv1.DeleteQueueResponse{Messages: uint64(n)}, err
}

// PurgeQueue implements the service.
func (t *topologyService) PurgeQueue(ctx context.Context, req *warrenv1.PurgeQueueRequest) (*warrenv1.PurgeQueueResponse, error) {
	if err := checkName("queue", req.GetQueue()); err != nil {
		return nil, err
	}
	resp := &warrenv1.PurgeQueueResponse{}
	return resp, t.s.moment(ctx, req.GetVhost(), func(ctx context.Context, c *broker.Conn) error {
		failpoint.PanicsForClient()
		n, err := c.PurgeQueue(ctx, req.GetQueue())
		resp.Messages = uint64(n)
		return err
	})
}

// Bind implements the service.
func (t *topologyService) Bind(ctx context.Context, req *warrenv1.BindRequest) (*warrenv1.BindResponse, error) {
	b, err := bindingOf(req.GetBinding())
	if err != nil {
		return nil, err
	}
	return &warrenv1.BindResponse{}, t.s.moment(ctx, req.GetVhost(), func(ctx context.Context, c *broker.Conn) error { return c.Bind(ctx, b) })
}

// Unbind implements the service.
func (t *topologyService) Unbind(ctx context.Context, req *warrenv1.UnbindRequest) (*warrenv1.UnbindResponse, error) {
	b, err := bindingOf(req.GetBinding())
	if err != nil {
		return nil, err
	}
	return &warrenv1.UnbindResponse{}, t.s.moment(ctx, req.GetVhost(), func(ctx context.Context, c *broker.Conn) error { return c.Unbind(ctx, b) })
}

// ListExchanges implements the service.
func (t *topologyService) ListExchanges(ctx context.Context, req *warrenv1.ListExchangesRequest) (*warrenv1.ListExchangesResponse, error) {
	vhost, err := t.s.looks(ctx, req.GetVhost())
	if err != nil {
		return nil, err
	}
	cut, next, err := page(t.s.broker.Exchanges(vhost), req.GetPageSize(), req.GetPageToken(), func(x broker.ExchangeInfo) string { return x.Name })
	if err != nil {
		return nil, err
	}
	resp := &warrenv1.ListExchangesResponse{NextPageToken: next}
	for _, x := range cut {
		resp.Exchanges = append(resp.Exchanges, &warrenv1.Exchange{
			Name: text(x.Name), Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: tableFor(x.Arguments),
		})
	}
	return resp, nil
}

// GetQueue implements the service.
func (t *topologyService) GetQueue(ctx context.Context, req *warrenv1.GetQueueRequest) (*warrenv1.GetQueueResponse, error) {
	vhost, err := t.s.looks(ctx, req.GetVhost())
	if err != nil {
		return nil, err
	}
	q, err := t.s.broker.FindQueue(ctx, vhost, req.GetQueue())
	if err != nil {
		return nil, err
	}
	return &warrenv1.GetQueueResponse{Queue: queueFor(&q)}, nil
}

func queueFor(q *broker.QueueInfo) *warrenv1.Queue {
	return &warrenv1.Queue{
		Name: text(q.Name), Type: q.Type, Durable: q.Durable, Exclusive: q.Exclusive, AutoDelete: q.AutoDelete, Arguments: tableFor(q.Arguments),
		State: q.Shown(), Members: q.Members, Online: q.Online, Leader: q.Leader, Ready: q.Ready, Unacked: q.Unacked, Delayed: q.Delayed,
		Outbox: q.Outbox, Parked: q.Parked, Consumers: q.Consumers, Policy: text(q.Policy), OperatorPolicy: text(q.OperatorPolicy),
	}
}

// keyOfBinding is a binding's place in lists: of those that differ in arguments only, in no order that means anything.
func keyOfBinding(b broker.BindingInfo) string {
	arguments := sha256.Sum256(wire.AppendTable(nil, b.Arguments))
	return keyOf(b.Source, b.Destination, strconv.FormatBool(b.ToExchange), b.Key, string(arguments[:]))
}

// ListBindings implements the service.
func (t *topologyService) ListBindings(ctx context.Context, req *warrenv1.ListBindingsRequest) (*warrenv1.ListBindingsResponse, error) {
	vhost, err := t.s.looks(ctx, req.GetVhost())
	if err != nil {
		return nil, err
	}
	var list []broker.BindingInfo
	switch {
	case req.Queue != nil:
		list = t.s.broker.BindingsTo(vhost, req.GetQueue(), false)
	case req.Source != nil:
		list = t.s.broker.BindingsFrom(vhost, req.GetSource())
	default:
		list = t.s.broker.Bindings(vhost)
	}
	if req.Source != nil {
		list = slices.DeleteFunc(slices.Clone(list), func(i broker.BindingInfo) bool { return i.Source != req.GetSource() })
	}
	cut, next, err := page(list, req.GetPageSize(), req.GetPageToken(), keyOfBinding)
	if err != nil {
		return nil, err
	}
	resp := &warrenv1.ListBindingsResponse{NextPageToken: next}
	for _, i := range cut {
		kind := warrenv1.DestinationKind_DESTINATION_KIND_QUEUE
		if i.ToExchange {
			kind = warrenv1.DestinationKind_DESTINATION_KIND_EXCHANGE
		}
		resp.Bindings = append(resp.Bindings, &warrenv1.Binding{
			Source: text(i.Source), Destination: text(i.Destination), DestinationKind: kind, RoutingKey: text(i.Key), Arguments: tableFor(i.Arguments),
		})
	}
	return resp, nil
}

// text is a name in a list: what is no UTF-8 in it is replaced.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
