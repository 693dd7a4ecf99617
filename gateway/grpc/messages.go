package grpc

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// Defaults of a look into a queue: those of the management API.
const (
	peekCount = 10
	peekBytes = 50_000
)

type messageService struct {
	warrenv1.UnimplementedMessageServiceServer
	s *Server
}

// messageStates are the broker's words.
var messageStates = map[warrenv1.MessageState]string{
	warrenv1.MessageState_MESSAGE_STATE_UNSPECIFIED: "ready", warrenv1.MessageState_MESSAGE_STATE_READY: "ready",
	warrenv1.MessageState_MESSAGE_STATE_DELAYED: "delayed", warrenv1.MessageState_MESSAGE_STATE_UNACKED: "unacked",
	warrenv1.MessageState_MESSAGE_STATE_OUTBOX: "outbox", warrenv1.MessageState_MESSAGE_STATE_PARKED: "parked",
}

// redriveWays and redriveStates are the broker's words, too; the first of redriveWays says nothing.
var (
	redriveWays   = []string{"", "last", "first", "exchange", "queue"}
	redriveStates = []string{"none", "running", "stopping", "stopped", "done"}
)

// ageMax bounds ages, in ms, so that they are durations.
const ageMax = uint64(math.MaxInt64 / time.Millisecond)

// filterOf is a client's filter. The broker checks it.
func filterOf(f *warrenv1.MessageFilter) (broker.Filter, error) {
	if f.GetOlderThanMillis() > ageMax || f.GetNewerThanMillis() > ageMax {
		return broker.Filter{}, invalid("an age of more than %d ms", ageMax)
	}
	if f.GetHeader() == "" && f.GetHeaderValue() != "" {
		return broker.Filter{}, invalid("a header_value without a header")
	}
	var retried *bool
	if f != nil {
		retried = f.Retried
	}
	return broker.Filter{
		Reasons: f.GetReasons(), From: f.GetFromQueue(), IDs: f.GetIds(), MessageIDs: f.GetMessageIds(), Header: f.GetHeader(), HeaderValue: f.GetHeaderValue(), Retried: retried,
		OlderThan: time.Duration(f.GetOlderThanMillis()) * time.Millisecond, NewerThan: time.Duration(f.GetNewerThanMillis()) * time.Millisecond,
	}, nil
}

// peekOf is what a request asks for. The error is a *refusal.
func peekOf(req *warrenv1.PeekRequest) (p broker.Peek, err error) {
	state, known := messageStates[req.GetState()]
	if !known {
		return p, invalid("state %d is none", req.GetState())
	}
	if err := checkName("queue", req.GetQueue()); err != nil {
		return p, err
	}
	p = broker.Peek{State: state, Count: int(cmp.Or(req.GetPageSize(), peekCount)), After: req.GetPageToken(), Truncate: peekBytes}
	if req.BodyBytesMax != nil {
		p.Truncate = int(req.GetBodyBytesMax())
	}
	if p.Filter, err = filterOf(req.GetFilter()); err != nil {
		return p, err
	}
	return p, checked(p.Validate())
}

// checked turns what the broker says of a request by itself into a refusal of it.
func checked(err error) error {
	if err != nil {
		return invalid("%s", refusalOf(err).text)
	}
	return nil
}

// redriveOf is what a request wants. The error is a *refusal.
func redriveOf(r *warrenv1.Redrive) (want broker.Redrive, err error) {
	if r.GetTo() < 0 || int(r.GetTo()) >= len(redriveWays) {
		return want, invalid("no way %d for messages", r.GetTo())
	}
	want = broker.Redrive{To: redriveWays[r.GetTo()], Queue: r.GetTargetQueue(), Discard: r.GetDiscard(), Rate: r.GetRate()}
	if want.Filter, err = filterOf(r.GetFilter()); err != nil {
		return want, err
	}
	return want, checked(want.Validate())
}

// Peek implements the service.
func (m *messageService) Peek(ctx context.Context, req *warrenv1.PeekRequest) (*warrenv1.PeekResponse, error) {
	p, err := peekOf(req)
	if err != nil {
		return nil, err
	}
	vhost, err := m.s.looks(ctx, req.GetVhost())
	if err != nil {
		return nil, err
	}
	got, err := m.s.broker.Peek(ctx, callerOf(ctx).user, vhost, req.GetQueue(), p)
	if err != nil {
		return nil, err
	}
	resp := &warrenv1.PeekResponse{NextPageToken: got.Next}
	for i := range got.Messages {
		resp.Messages = append(resp.Messages, peekedFor(&got.Messages[i]))
	}
	return resp, nil
}

func peekedFor(m *broker.PeekedMessage) *warrenv1.PeekedMessage {
	key := ""
	if len(m.RoutingKeys) > 0 {
		key = m.RoutingKeys[0]
	}
	p := &warrenv1.PeekedMessage{
		Id: m.ID, Message: messageFor(m.Exchange, key, m.Properties, m.Body), BodyBytes: uint64(m.BodyBytes), RoutingKeys: allTexts(m.RoutingKeys),
		Redelivered: m.Redelivered, Priority: uint32(m.Priority), DeliveryCount: m.DeliveryCount, AcquiredCount: m.AcquiredCount,
		ExpiresAtMillis: millis(m.ExpiresAt), Node: m.Node,
		DeadReason: m.Reason, DeadAtMillis: millis(m.DiedAt), DeadDetail: text(m.Detail), DeadStage: text(m.Stage), DeadTargets: allTexts(m.To),
	}
	p.Retried, p.DeathsSinceRetry = m.Retried()
	for i := range m.Deaths {
		d := &m.Deaths[i]
		p.Deaths = append(p.Deaths, &warrenv1.Death{
			Queue: text(d.Queue), Reason: d.Reason.String(), Count: d.Count, Exchange: text(d.Exchange), RoutingKeys: allTexts(d.RoutingKeys),
			Time: millis(d.FirstMillis) / 1000, LastTimeMillis: millis(d.LastMillis), OriginalExpiration: text(d.OriginalExpiration), Detail: text(d.Detail),
			CountBeforeRetry: d.Before,
		})
	}
	return p
}

// millis is a time in ms since 1970, which is not before.
func millis(n int64) uint64 { return uint64(max(0, n)) }

func allTexts(names []string) []string {
	list := make([]string, len(names))
	for i := range names {
		list[i] = text(names[i])
	}
	return list
}

// operating checks that the caller may move or remove what is others': as over HTTP, who may set policies there.
func (m *messageService) operating(ctx context.Context, vhost, queue string) (string, error) {
	if err := checkName("queue", queue); err != nil {
		return "", err
	}
	if err := needs(ctx, auth.TagPolicymaker, auth.TagAdministrator); err != nil {
		return "", err
	}
	return m.s.looks(ctx, vhost)
}

// StartRedrive implements the service.
func (m *messageService) StartRedrive(ctx context.Context, req *warrenv1.StartRedriveRequest) (*warrenv1.StartRedriveResponse, error) {
	return audited(ctx, m.s, warrenv1.MessageService_StartRedrive_FullMethodName, on(req), func() (*warrenv1.StartRedriveResponse, error) {
		want, err := redriveOf(req.GetRedrive())
		if err != nil {
			return nil, err
		}
		vhost, err := m.operating(ctx, req.GetVhost(), req.GetQueue())
		if err != nil {
			return nil, err
		}
		st, err := m.s.broker.StartRedrive(ctx, callerOf(ctx).user, vhost, req.GetQueue(), want)
		return &warrenv1.StartRedriveResponse{Status: redriveFor(&st)}, err
	})
}

// GetRedrive implements the service.
func (m *messageService) GetRedrive(ctx context.Context, req *warrenv1.GetRedriveRequest) (*warrenv1.GetRedriveResponse, error) {
	if err := checkName("queue", req.GetQueue()); err != nil {
		return nil, err
	}
	vhost, err := m.s.looks(ctx, req.GetVhost())
	if err != nil {
		return nil, err
	}
	st, err := m.s.broker.RedriveStatus(ctx, callerOf(ctx).user, vhost, req.GetQueue())
	return &warrenv1.GetRedriveResponse{Status: redriveFor(&st)}, err
}

// StopRedrive implements the service.
func (m *messageService) StopRedrive(ctx context.Context, req *warrenv1.StopRedriveRequest) (*warrenv1.StopRedriveResponse, error) {
	return audited(ctx, m.s, warrenv1.MessageService_StopRedrive_FullMethodName, on(req), func() (*warrenv1.StopRedriveResponse, error) {
		vhost, err := m.operating(ctx, req.GetVhost(), req.GetQueue())
		if err != nil {
			return nil, err
		}
		st, err := m.s.broker.StopRedrive(ctx, callerOf(ctx).user, vhost, req.GetQueue())
		return &warrenv1.StopRedriveResponse{Status: redriveFor(&st)}, err
	})
}

// PlanRedrive implements the service.
func (m *messageService) PlanRedrive(ctx context.Context, req *warrenv1.PlanRedriveRequest) (*warrenv1.PlanRedriveResponse, error) {
	want, err := redriveOf(req.GetRedrive())
	if err != nil {
		return nil, err
	}
	vhost, err := m.operating(ctx, req.GetVhost(), req.GetQueue())
	if err != nil {
		return nil, err
	}
	plan, err := m.s.broker.PlanRedrive(ctx, callerOf(ctx).user, vhost, req.GetQueue(), want)
	return &warrenv1.PlanRedriveResponse{
		Destinations: countsFor(plan.Destinations), Missing: countsFor(plan.Missing), NoOrigin: plan.NoOrigin, Messages: plan.Messages, Looked: plan.Looked,
		Complete: plan.Next == 0,
	}, err
}

// ReleaseParked implements the service.
func (m *messageService) ReleaseParked(ctx context.Context, req *warrenv1.ReleaseParkedRequest) (*warrenv1.ReleaseParkedResponse, error) {
	return audited(ctx, m.s, warrenv1.MessageService_ReleaseParked_FullMethodName, on(req), func() (*warrenv1.ReleaseParkedResponse, error) {
		vhost, err := m.operating(ctx, req.GetVhost(), req.GetQueue())
		if err != nil {
			return nil, err
		}
		done, err := m.s.broker.ReleaseParked(ctx, callerOf(ctx).user, vhost, req.GetQueue())
		return &warrenv1.ReleaseParkedResponse{Unrouted: uint64(done.Unrouted), Cycle: uint64(done.Cycle)}, err
	})
}

// ofQueue is a request about a queue.
type ofQueue interface {
	GetVhost() string
	GetQueue() string
}

// on is the queue of a request, for the log.
func on(req ofQueue) []any {
	return []any{"vhost", vhostOf(req.GetVhost()), "queue", req.GetQueue()}
}

func countsFor(counts map[string]uint64) (list []*warrenv1.RedriveCount) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, &warrenv1.RedriveCount{Name: text(name), Messages: counts[name]})
	}
	return list
}

func redriveFor(st *broker.RedriveStatus) *warrenv1.RedriveStatus {
	r := &warrenv1.RedriveStatus{
		Number: st.Number, State: warrenv1.RedriveState(max(0, slices.Index(redriveStates, st.State))),
		To: warrenv1.RedriveTo(max(0, slices.Index(redriveWays, st.To))), TargetQueue: text(st.Queue), Discard: st.Discard, Rate: st.Rate,
		StartedAtMillis: millis(st.StartedAt), EndedAtMillis: millis(st.EndedAt), Position: st.Position, Tail: st.Tail,
		Moved: st.Moved, UnderWay: uint64(st.UnderWay), Returned: st.Returned, Missing: st.Missing, NoOrigin: st.NoOrigin, Busy: st.Busy,
	}
	for _, t := range st.WaitsFor {
		r.WaitsFor = append(r.WaitsFor, &warrenv1.RedriveTarget{
			Vhost: text(t.VHost), Queue: text(t.Queue), Messages: uint64(t.Messages), State: t.State, SinceMillis: millis(t.Since),
		})
	}
	return r
}
