package grpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// Bounds of a stream of events.
const (
	// watchersMax bounds the streams of a node.
	watchersMax = 64
	// watchTick is how often a stream looks for changes; it looks at what other nodes are asked for every lookTicks, at dead letters every
	// stuckTicks of them, and takes lookTime for that.
	watchTick  = time.Second
	lookTicks  = 5
	stuckTicks = 10
	lookTime   = 6 * time.Second
	// changesMax bounds the changes, and the leaders, that are told one by one each tick.
	changesMax = 500
	// stuckAge is how long a dead letter has waited that is stuck, as for the health check.
	stuckAge = time.Minute
)

// watch is one reader's. It owns nothing that runs: the call's goroutine looks for changes itself, so that a reader who does not read costs
// no memory but what the library has to send.
type watch struct {
	s      *Server
	stream grpc.ServerStreamingServer[warrenv1.WatchResponse]
	caller caller
	kinds  map[warrenv1.EventKind]bool // nil: all
	vhost  string                      // "": all
	ending <-chan struct{}

	mark    broker.Mark
	nodes   map[string]bool // running or not, by name
	alarms  map[string]warnings
	stuck   map[uint64]stuckLetters // by queue
	leaders map[uint64]string       // of queues, by id

	events []*warrenv1.Event // to be sent
}

// kindsOf are the kinds of events that a client wants, nil for all.
func kindsOf(list []warrenv1.EventKind) (map[warrenv1.EventKind]bool, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // all
	}
	kinds := map[warrenv1.EventKind]bool{}
	for _, k := range list {
		if _, known := warrenv1.EventKind_name[int32(k)]; !known || k == warrenv1.EventKind_EVENT_KIND_UNSPECIFIED {
			return nil, invalid("%d is no kind of events", k)
		}
		kinds[k] = true
	}
	return kinds, nil
}

// Watch implements the service.
func (st *statusService) Watch(req *warrenv1.WatchRequest, stream grpc.ServerStreamingServer[warrenv1.WatchResponse]) error {
	s := st.s
	ctx, err := s.renewed(stream.Context())
	if err != nil {
		return err
	}
	w := &watch{s: s, stream: stream, caller: callerOf(ctx)}
	if w.kinds, err = kindsOf(req.GetKinds()); err != nil {
		return err
	}
	if err := w.allowed(w.kinds); err != nil {
		return err
	}
	if req.Vhost != nil {
		if w.vhost, err = s.looks(ctx, req.GetVhost()); err != nil {
			return err
		}
	}
	if s.watchers.Add(1) > watchersMax {
		s.watchers.Add(-1)
		return refuse(codes.ResourceExhausted, reasonTooMany, "the node has %d streams of events, which is as many as it takes", watchersMax)
	}
	defer s.watchers.Add(-1)
	w.ending = s.ends()
	return w.run(ctx)
}

// allowed checks what the caller may be told of.
func (w *watch) allowed(kinds map[warrenv1.EventKind]bool) error {
	ctx := context.WithValue(w.stream.Context(), callerKey{}, w.caller)
	if kinds[warrenv1.EventKind_EVENT_KIND_NODE] || kinds[warrenv1.EventKind_EVENT_KIND_ALARM] {
		return needs(ctx, auth.TagMonitoring, auth.TagAdministrator)
	}
	return needs(ctx, watcherTags...)
}

func (w *watch) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.s.workers.Go(func() { // ends with the call
		select {
		case <-w.ending:
			cancel()
		case <-ctx.Done():
		}
	})
	// What is so at the beginning is not told, but for what is wrong.
	w.mark = w.s.broker.Mark()
	w.lookAtNodes(ctx)
	w.lookAtLeaders(ctx)
	w.events = nil
	if err := w.send(ctx, &warrenv1.WatchResponse{Opened: &warrenv1.WatchOpened{Node: w.s.cfg.Cluster.Describe(ctx, false).GetNode()}}); err != nil {
		return err
	}
	tick := time.NewTicker(watchTick)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := w.look(ctx, n); err != nil {
			return err
		}
		if len(w.events) > 0 {
			if err := w.send(ctx, &warrenv1.WatchResponse{Events: w.events}); err != nil {
				return err
			}
			w.events = nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w.over(ctx)
		}
	}
}

// over is why the stream ends.
func (w *watch) over(ctx context.Context) error {
	select {
	case <-w.ending:
		return refuse(codes.Unavailable, reasonLeaving, "the node leaves")
	default:
		return ctx.Err()
	}
}

// look finds what has changed. n counts the looks.
func (w *watch) look(ctx context.Context, n int) error {
	w.lookAtCatalog()
	w.lookAtNodes(ctx)
	if n%lookTicks == 0 {
		if err := w.lookAtCaller(); err != nil {
			return err
		}
		w.lookAtLeaders(ctx)
		w.lookAtAlarms(ctx)
	}
	if n%stuckTicks == 0 {
		w.lookAtDeadLetters(ctx)
	}
	return nil
}

// wants tells whether events of a kind are to be told.
func (w *watch) wants(kind warrenv1.EventKind) bool {
	switch kind {
	case warrenv1.EventKind_EVENT_KIND_MISSED:
		return true
	case warrenv1.EventKind_EVENT_KIND_NODE, warrenv1.EventKind_EVENT_KIND_ALARM:
		if !w.caller.may(auth.TagMonitoring, auth.TagAdministrator) {
			return false
		}
	default:
	}
	return w.kinds == nil || w.kinds[kind]
}

// tell notes an event if it is wanted.
func (w *watch) tell(e *warrenv1.Event) {
	if w.wants(e.GetKind()) {
		e.TimeMillis, e.Vhost, e.Name = millis(time.Now().UnixMilli()), text(e.GetVhost()), text(e.GetName())
		w.events = append(w.events, e)
	}
}

// sight tells of which virtual hosts the caller is told.
func (w *watch) sight() func(vhost string) bool {
	sees := w.s.sight(w.caller)
	return func(vhost string) bool { return (w.vhost == "" || w.vhost == vhost) && sees(vhost) }
}

// lookAtCaller ends the stream of a user who has gone, also if another one has the name, or lost the tags.
func (w *watch) lookAtCaller() error {
	u, err := w.s.broker.Renew(w.caller.user)
	if err != nil {
		return loginOver(err)
	}
	w.caller.user = u
	return w.allowed(w.kinds)
}

// changeKinds and changeActions are the broker's words.
var (
	changeKinds = map[string]warrenv1.EventKind{
		"queue": warrenv1.EventKind_EVENT_KIND_QUEUE, "vhost": warrenv1.EventKind_EVENT_KIND_VHOST, "policy": warrenv1.EventKind_EVENT_KIND_POLICY,
		"operator_policy": warrenv1.EventKind_EVENT_KIND_OPERATOR_POLICY,
	}
	changeActions = map[string]warrenv1.EventAction{
		"created": warrenv1.EventAction_EVENT_ACTION_CREATED, "changed": warrenv1.EventAction_EVENT_ACTION_CHANGED, "deleted": warrenv1.EventAction_EVENT_ACTION_DELETED,
		"paused": warrenv1.EventAction_EVENT_ACTION_PAUSED, "resumed": warrenv1.EventAction_EVENT_ACTION_RESUMED,
	}
)

func (w *watch) lookAtCatalog() {
	was := w.mark
	list, now, all := w.s.broker.ChangesSince(was, changesMax)
	moved := now.Revision() != was.Revision()
	w.mark = now
	sees := w.sight()
	for _, c := range list {
		saw := c.Action == "deleted" && (w.vhost == "" || w.vhost == c.VHost) && was.MayEnter(w.caller.user, c.VHost)
		if saw || sees(c.VHost) {
			w.tell(&warrenv1.Event{Kind: changeKinds[c.Kind], Action: changeActions[c.Action], Vhost: c.VHost, Name: c.Name})
		}
	}
	if moved {
		w.tell(&warrenv1.Event{Kind: warrenv1.EventKind_EVENT_KIND_CATALOG})
	}
	if !all {
		w.tell(&warrenv1.Event{Kind: warrenv1.EventKind_EVENT_KIND_MISSED})
	}
}

func (w *watch) lookAtNodes(ctx context.Context) {
	if w.wants(warrenv1.EventKind_EVENT_KIND_NODE) {
		var events []*warrenv1.Event
		events, w.nodes = nodesChanged(w.nodes, w.s.cfg.Cluster.Describe(ctx, false).GetNodes())
		for _, e := range events {
			w.tell(e)
		}
	}
}

func (w *watch) lookAtLeaders(ctx context.Context) {
	if !w.wants(warrenv1.EventKind_EVENT_KIND_LEADER) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	events, now, all := leadersMoved(w.leaders, w.s.broker.QueueNames(""), w.s.cfg.Cluster.QueueLeaders(ctx), w.sight())
	w.leaders = now
	for _, e := range events {
		w.tell(e)
	}
	if !all {
		w.tell(&warrenv1.Event{Kind: warrenv1.EventKind_EVENT_KIND_MISSED})
	}
}

func (w *watch) lookAtAlarms(ctx context.Context) {
	if !w.wants(warrenv1.EventKind_EVENT_KIND_ALARM) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var events []*warrenv1.Event
	events, w.alarms = alarmsChanged(w.alarms, w.s.cfg.Cluster.Describe(ctx, true).GetNodes())
	for _, e := range events {
		w.tell(e)
	}
}

func (w *watch) lookAtDeadLetters(ctx context.Context) {
	if !w.wants(warrenv1.EventKind_EVENT_KIND_DEAD_LETTERS) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	list, err := w.s.broker.Outboxes(ctx, stuckAge)
	var events []*warrenv1.Event
	events, w.stuck = lettersStuck(w.stuck, list, err == nil, w.sight())
	for _, e := range events {
		w.tell(e)
	}
}

// send writes a response. A reader that does not take it in time is cut off: it finds the stream ended, and asks anew.
func (w *watch) send(ctx context.Context, resp *warrenv1.WatchResponse) error {
	sent := w.s.apart(func() error { return w.stream.Send(resp) })
	timer := time.NewTimer(w.s.waits.read)
	defer timer.Stop()
	select {
	case err := <-sent:
		return err
	case <-timer.C:
		return refuse(codes.ResourceExhausted, reasonSlow, "nothing was read of the stream for %v", w.s.waits.read)
	case <-ctx.Done():
		return w.over(ctx)
	}
}
