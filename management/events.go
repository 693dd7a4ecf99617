package management

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// Bounds of a stream of events.
const (
	// streamsMax bounds the streams of a node.
	streamsMax = 64
	// eventTick is how often a stream looks for changes, overviewTicks how many of these come between two overviews.
	eventTick     = time.Second
	overviewTicks = int(stats.Interval / eventTick)
	// changesMax bounds the changes that are told one by one each tick.
	changesMax = 500
	// eventPatience is how long a reader may keep the stream from being written.
	eventPatience = 5 * time.Second
	// lookAge is how old the figures of queues may be that a stream tells of: who looks at a list as well has them asked for once.
	lookAge = stats.Interval - eventTick
)

// changes is the part of the broker that knows what has changed; its methods are documented there.
type changes interface {
	Mark() broker.Mark
	ChangesSince(m broker.Mark, limit int) (list []broker.Change, now broker.Mark, all bool)
}

// streams are the open streams of events.
type streams struct {
	open  atomic.Int32
	once  sync.Once
	ended chan struct{} // closed when all are to end
}

func (a *API) routeEvents() {
	a.streams.ended = make(chan struct{})
	a.serve("GET /api/warren/events", func(w http.ResponseWriter, r *http.Request) {
		if err := a.events(w, r); err != nil {
			a.refuse(w, err)
		}
	})
}

// EndStreams ends the streams of events, now and from now on. It may be called more than once.
func (a *API) EndStreams() { a.streams.once.Do(func() { close(a.streams.ended) }) }

// eventStream is one reader's. It owns nothing that runs: the request's goroutine looks for changes itself, so that a reader who does not
// read costs no memory but its socket's.
type eventStream struct {
	a    *API
	r    *http.Request
	w    http.ResponseWriter
	ctl  *http.ResponseController
	user User

	mark   broker.Mark
	nodes  map[string]bool         // running or not, by name
	alarms map[string]alarmChanged // by name
	// table is what nodes said of their queues, and revision that of the catalog, at the last look.
	table    *queueTable
	revision uint64
	// lost are the queues of which it was told that nobody leads them.
	lost map[uint64]bool
}

// events sends server-sent events until the reader goes or cannot follow. An error is one before the first event.
func (a *API) events(w http.ResponseWriter, r *http.Request) error {
	u, err := a.authenticate(r)
	if err != nil {
		return err
	}
	if a.streams.open.Add(1) > streamsMax {
		a.streams.open.Add(-1)
		return &refusal{http.StatusServiceUnavailable, "too_many_streams", fmt.Sprintf("this node has %d streams of events", streamsMax)}
	}
	defer a.streams.open.Add(-1)
	s := &eventStream{a: a, r: r, w: w, ctl: http.NewResponseController(w), user: u, mark: a.cfg.Broker.Mark()}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would keep the events back
	w.WriteHeader(http.StatusOK)
	if err := s.run(); err != nil {
		a.cfg.Logger.Debug("a stream of events ended", "err", err)
	}
	return nil
}

var errStreamEnds = errors.New("the stream is to end")

func (s *eventStream) run() error {
	if err := s.send("hello", map[string]any{"node": s.a.localName(), "revision": s.mark.Revision()}); err != nil {
		return err
	}
	s.changedNodes()
	tick := time.NewTicker(eventTick)
	defer tick.Stop()
	over, stop := s.user.over()
	defer stop()
	for n := 0; ; n++ {
		if err := s.tick(n%overviewTicks == 0); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-s.r.Context().Done():
			return s.r.Context().Err()
		case <-over:
			return errors.Join(errStreamEnds, s.send("end", map[string]string{"reason": "the token that the user logged in with has ended"}))
		case <-s.a.streams.ended:
			return errors.Join(errStreamEnds, s.send("end", map[string]string{"reason": "the node stops"}))
		}
	}
}

// over is sent to when the token ends that the user logged in with; nil, so never, if there was none.
func (u User) over() (ended <-chan time.Time, stop func()) {
	if u.Login.Until.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(u.Login.Until))
	return t.C, func() { t.Stop() }
}

// tick sends what has changed since the last one, and now and then the overview.
func (s *eventStream) tick(overview bool) error {
	was := s.mark
	list, now, all := s.a.cfg.Broker.ChangesSince(was, changesMax)
	moved := now.Revision() != was.Revision()
	s.mark = now
	for _, c := range list {
		if !s.a.sees(s.user, c.VHost) && (c.Action != "deleted" || !was.MayEnter(atBroker(s.user), c.VHost)) {
			continue
		}
		if err := s.send("change", c); err != nil {
			return err
		}
	}
	if moved {
		// For what is not told one by one: exchanges, bindings, users. Who shows them asks again.
		if err := s.send("catalog", map[string]any{"revision": now.Revision(), "complete": all}); err != nil {
			return err
		}
	}
	if s.user.monitors() {
		for _, e := range s.changedNodes() {
			if err := s.send("node", e); err != nil {
				return err
			}
		}
	}
	if !overview {
		return nil
	}
	return s.look()
}

// look sends the overview, leaders that have moved and alarms.
func (s *eventStream) look() error {
	u, err := s.a.authenticate(s.r)
	if err != nil || u.Name != s.user.Name {
		return errors.Join(errStreamEnds, s.send("end", map[string]string{"reason": "Login failed"}))
	}
	s.user = u
	ctx, cancel := context.WithTimeout(s.r.Context(), 2*timeoutPeers)
	defer cancel()
	o, err := s.a.overviewOf(ctx, s.user, span{}, span{}, lookAge)
	if err != nil {
		return err
	}
	if err := s.send("overview", o); err != nil {
		return err
	}
	moved, all := s.movedLeaders(ctx)
	for _, e := range moved {
		if err := s.send("leader", e); err != nil {
			return err
		}
	}
	if !all {
		if err := s.send("catalog", map[string]any{"revision": s.mark.Revision(), "complete": false}); err != nil {
			return err
		}
	}
	if !s.user.monitors() {
		return nil
	}
	for _, e := range s.changedAlarms(ctx) {
		if err := s.send("alarm", e); err != nil {
			return err
		}
	}
	return nil
}

// leaderMoved tells that a queue is led by another node; "" is none.
type leaderMoved struct {
	VHost string `json:"vhost"`
	Name  string `json:"name"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// movedLeaders are the queues that are led by another node than at the last look; all is false if there are more than are told one by one.
func (s *eventStream) movedLeaders(ctx context.Context) (list []leaderMoved, all bool) {
	was, since := s.table, s.revision
	s.table, s.revision = s.a.queueTableOf(ctx, lookAge), s.a.cfg.Broker.Mark().Revision()
	if was == nil || was == s.table {
		return nil, true
	}
	all = true
	seen, lost := map[string]bool{}, map[uint64]bool{}
	for _, v := range s.a.cfg.Broker.VhostInfos() {
		seen[v.Name] = s.a.sees(s.user, v.Name)
	}
	for _, q := range s.a.cfg.Broker.QueueNames("") {
		from, to, told := was.of(q.ID).leader, s.table.of(q.ID).leader, s.lost[q.ID]
		// A queue's id is the revision that made it: a later one has no former leader. The first leader of one that was just being made
		// is no news either, but that of one of which it was told that nobody leads it is.
		if from != to && q.ID <= since && (from != "" || told) && seen[q.VHost] {
			if len(list) < changesMax {
				list = append(list, leaderMoved{q.VHost, q.Name, from, to})
			} else {
				all = false
			}
			told = to == ""
		}
		if told {
			lost[q.ID] = true
		}
	}
	s.lost = lost
	return list, all
}

// nodeChanged tells that a node has come or gone.
type nodeChanged struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	Known   bool   `json:"known"` // false: the cluster has forgotten it
}

func (s *eventStream) changedNodes() (list []nodeChanged) {
	now := map[string]bool{}
	for _, n := range s.a.cfg.Cluster.Nodes() {
		now[n.Name] = n.Running
		if was, known := s.nodes[n.Name]; !known || was != n.Running {
			list = append(list, nodeChanged{n.Name, n.Running, true})
		}
	}
	for name := range s.nodes {
		if _, known := now[name]; !known {
			list = append(list, nodeChanged{name, false, false})
		}
	}
	s.nodes = now
	return list
}

// alarmChanged tells of a node's alarms.
type alarmChanged struct {
	Node   string `json:"node"`
	Memory bool   `json:"memory"`
	Disk   bool   `json:"disk"`
}

// changedAlarms are those that are not as they were. To begin with there are none, and a node that is down or forgotten has none.
func (s *eventStream) changedAlarms(ctx context.Context) (list []alarmChanged) {
	now := map[string]alarmChanged{}
	for _, n := range s.a.nodes(ctx) {
		e := alarmChanged{Node: n.Name}
		switch {
		case n.NodeStats != nil:
			e.Memory, e.Disk = n.MemAlarm, n.DiskAlarm
		case n.Running:
			if was, known := s.alarms[n.Name]; known {
				e = was // nobody knows
			}
		}
		now[n.Name] = e
		if was := s.alarms[n.Name]; was.Memory != e.Memory || was.Disk != e.Disk {
			list = append(list, e)
		}
	}
	for name, was := range s.alarms {
		if _, known := now[name]; !known && (was.Memory || was.Disk) {
			list = append(list, alarmChanged{Node: name})
		}
	}
	s.alarms = now
	return list
}

// send writes one event. A reader that does not take it in time is cut off: it finds the stream ended, and asks anew.
func (s *eventStream) send(event string, data any) error {
	var buf bytes.Buffer
	fmt.Fprintf(&buf, "event: %s\ndata: ", event)
	if err := encode(&buf, data); err != nil { // it ends the line
		return err
	}
	buf.WriteByte('\n')
	if err := s.ctl.SetWriteDeadline(time.Now().Add(eventPatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write(buf.Bytes()); err != nil {
		return err
	}
	return s.ctl.Flush()
}
