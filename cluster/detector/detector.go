package detector

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/transport"
)

// Network is what the detector needs of the transport; *transport.Mesh has it.
type Network interface {
	// Peer returns the newest measurement of a node.
	Peer(transport.NodeID) transport.PeerStatus
	// OnPeerChange registers a callback for a stream that came up, went down or
	// was refused. It is called from the transport's goroutines.
	OnPeerChange(func(transport.PeerStatus))
	// Call asks a node and waits for its answer.
	Call(ctx context.Context, to transport.NodeID, method uint8, request []byte) ([]byte, error)
	// HandleCall registers the answer to a method.
	HandleCall(method uint8, handler func(ctx context.Context, from transport.NodeID, request []byte) ([]byte, error))
}

// Config tunes a Detector. Zero fields take the defaults of Default.
type Config struct {
	// Local is this node.
	Local transport.NodeID
	// Net measures the peers and carries the questions.
	Net Network
	// Silence is the attended time without an answer after which a node is a
	// suspect; default 1.5 s. Too small flaps, too large delays failover.
	Silence time.Duration
	// StretchMax bounds what this node's own lateness adds to Silence and Hearing; default 8 s. With
	// Silence and what a node that is heard gets on top it should stay below the lease of raft, 15 s.
	StretchMax time.Duration
	// Hearing is the silence up to which this node tells others that it hears a
	// peer; default 750 ms, three ping periods.
	Hearing time.Duration
	// Tick is the period of the check; default 100 ms.
	Tick time.Duration
	// Voters are the nodes whose word counts for the cluster's catalog. It must be quick. Nil: none are known.
	Voters func() []transport.NodeID
	// AskTimeout bounds the first round of questions about a suspect; default 300 ms. Each
	// further round may take twice as long, up to AskTimeoutMax, default 3 s: answers of nodes
	// that are far away, or behind a slow link, must have the time to come.
	AskTimeout, AskTimeoutMax time.Duration
	// Logger receives state changes; default slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Silence, 1500*time.Millisecond)
	def(&c.StretchMax, 8*time.Second)
	def(&c.Hearing, 750*time.Millisecond)
	def(&c.Tick, 100*time.Millisecond)
	def(&c.AskTimeout, 300*time.Millisecond)
	def(&c.AskTimeoutMax, 3*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate reports every problem of the configuration at once.
func (c Config) Validate() error {
	var errs []error
	if c.Local == "" {
		errs = append(errs, errors.New("detector: local node id is empty"))
	}
	if c.Net == nil {
		errs = append(errs, errors.New("detector: network is missing"))
	}
	return errors.Join(errs...)
}

// Event is a verdict: State is Alive or Dead; or, with Suspect, the news that others do not hear a node either, without being enough for a verdict, see
// Detector.UnheardBy.
type Event struct {
	Node  transport.NodeID
	State State
	// At is the local time of the verdict.
	At time.Time
	// Refused tells, for Dead, that the node's port refused a connection: the
	// process is gone rather than slow.
	Refused bool
	// Left tells, for Dead, that the process has said itself that it ends. Refused is set then, too.
	Left bool
	// Restarted tells, for Dead, that another process of the same node answers
	// already. Alive follows at once.
	Restarted bool
}

// Detector watches the peers of one node.
type Detector struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	kick   chan struct{} // a stream changed; capacity 1
	rounds chan round    // finished rounds of questions

	mu     sync.Mutex // guards the rest; held shortly, never while calling out
	peers  map[transport.NodeID]*watched
	gone   map[transport.NodeID]bool // see Gone; it only grows, by one for each storage that is replaced
	tell   []transport.NodeID        // of gone: to be told of
	subs   map[int]*subscriber
	subSeq int
}

// subscriber is told of verdicts.
type subscriber struct {
	fn func(Event)
	// follows: it has been told what held when it came, and is told of what follows.
	follows bool
}

// watched is a peer and the moving parts around it.
type watched struct {
	peer
	asking   bool          // a round of questions is under way
	askNext  time.Time     // no earlier round than this
	patience time.Duration // of the next round; 0: the first one since it is a suspect
	verdict  Event         // the newest one, zero if there was none
	// unheard is by whom a suspect was not heard in the newest round that has not condemned it, this node included. It is replaced, not changed.
	unheard []transport.NodeID
}

// New starts a detector that watches nobody yet; see SetPeers.
func New(cfg Config) (*Detector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Detector{
		cfg: cfg.withDefaults(), ctx: ctx, cancel: cancel,
		kick:   make(chan struct{}, 1),
		rounds: make(chan round),
		peers:  make(map[transport.NodeID]*watched),
		gone:   make(map[transport.NodeID]bool),
		subs:   make(map[int]*subscriber),
	}
	d.cfg.Net.HandleCall(MethodOpinion, d.answer)
	d.cfg.Net.HandleCall(MethodGoodbye, d.goodbye)
	d.cfg.Net.OnPeerChange(func(transport.PeerStatus) { d.poke() })
	d.wg.Go(d.run)
	return d, nil
}

// Close stops the detector and waits for its goroutines. It is safe twice.
func (d *Detector) Close() error {
	d.cancel()
	d.wg.Wait()
	return nil
}

// SetPeers replaces the watched nodes. The local node may be in the list and is
// left out. A node that stays keeps its verdict.
func (d *Detector) SetPeers(nodes []transport.NodeID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := make(map[transport.NodeID]*watched, len(nodes))
	for _, n := range nodes {
		if n == d.cfg.Local || d.gone[n] {
			continue
		}
		if w, ok := d.peers[n]; ok {
			next[n] = w
			continue
		}
		next[n] = &watched{}
	}
	d.peers = next
}

// Gone says that nodes never answer again, because a newer storage has taken the name of each: they are dead from now on, without asking anybody, and do not
// count among the others. One may be replaced before it was missed, and whatever waits for it must not wait for a node that nobody watches.
func (d *Detector) Gone(nodes []transport.NodeID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range nodes {
		if n == d.cfg.Local || d.gone[n] {
			continue
		}
		d.gone[n] = true
		if w := d.peers[n]; w == nil || w.state != Dead {
			d.tell = append(d.tell, n)
		}
		delete(d.peers, n)
	}
	if len(d.tell) > 0 {
		d.poke()
	}
}

// poke has the loop look now.
func (d *Detector) poke() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// State returns the verdict about a node; this node is always alive.
func (d *Detector) State(n transport.NodeID) State {
	if n == d.cfg.Local {
		return Alive
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone[n] {
		return Dead
	}
	if w, ok := d.peers[n]; ok {
		return w.state
	}
	return Unknown
}

// Ended tells whether a node is dead and its process seems to have ended: it said so, or its port refused the newest
// connection. One that is silent may be slow or cut off.
func (d *Detector) Ended(n transport.NodeID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, watched := d.peers[n]
	return d.gone[n] || watched && w.state == Dead && (w.refused || w.left != 0)
}

// UnheardBy are the nodes that do not hear a suspect, this one included, as they said when they were asked last; nil if it is no suspect. They are too few
// for a verdict, but may be most of those whose votes make it a leader.
func (d *Detector) UnheardBy(n transport.NodeID) []transport.NodeID {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w, watched := d.peers[n]; watched && w.state == Suspect {
		return w.unheard
	}
	return nil
}

// Subscribe registers fn for the newest verdict about each node, if there is one already, and for every later one, and returns its
// removal. A node is built while others come and go: who is interested only later must not take the dead for living, nor the reverse. fn runs
// on the detector's goroutine, must be quick and must not call Close.
func (d *Detector) Subscribe(fn func(Event)) (cancel func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subSeq++
	id := d.subSeq
	d.subs[id] = &subscriber{fn: fn}
	d.poke()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.subs, id)
	}
}

// run is the detector's only decision maker.
func (d *Detector) run() {
	att := attention{tick: d.cfg.Tick}
	last := time.Now()
	lim := limits{d.cfg.Silence, d.cfg.Hearing}
	timer := time.NewTimer(d.cfg.Tick)
	defer timer.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case r := <-d.rounds:
			d.publish(d.judge(r, lim))
			continue
		case <-d.kick:
		case <-timer.C:
			timer.Reset(d.cfg.Tick)
		}
		d.welcome()
		now := time.Now()
		attended := att.pass(now.Sub(last))
		last = now
		lim = limits{att.stretch(d.cfg.Silence, d.cfg.StretchMax), att.stretch(d.cfg.Hearing, d.cfg.StretchMax)}
		d.publish(d.look(now, attended, lim))
	}
}

// limits are Config.Silence and Config.Hearing, stretched by how late this process runs.
type limits struct{ silence, hearing time.Duration }

// welcome tells new subscribers what holds.
func (d *Detector) welcome() {
	d.mu.Lock()
	var fresh []func(Event)
	for _, s := range d.subs {
		if !s.follows {
			s.follows = true
			fresh = append(fresh, s.fn)
		}
	}
	var events []Event
	if len(fresh) > 0 {
		events = d.verdictsLocked()
	}
	d.mu.Unlock()
	for _, fn := range fresh {
		for _, e := range events {
			fn(e)
		}
	}
}

// verdictsLocked are those that have been told and hold.
func (d *Detector) verdictsLocked() (events []Event) {
	for n := range d.gone {
		if !slices.Contains(d.tell, n) {
			events = append(events, Event{Node: n, State: Dead, At: time.Now(), Refused: true})
		}
	}
	for _, w := range d.peers {
		if w.verdict.State != Unknown {
			e := w.verdict
			e.Refused = e.Refused && (w.refused || w.left != 0) // another process may be there by now
			events = append(events, e)
		}
	}
	return events
}

// look takes one measurement of every peer and starts the questions it calls for.
func (d *Detector) look(now time.Time, attended time.Duration, lim limits) []Event {
	statuses := d.measure()
	d.mu.Lock()
	defer d.mu.Unlock()
	var events []Event
	for _, n := range d.tell {
		events = append(events, Event{Node: n, State: Dead, At: now, Refused: true})
	}
	d.tell = nil
	for n, w := range d.peers {
		status, measured := statuses[n]
		if !measured {
			continue // watched since just now
		}
		before := w.state
		switch w.observe(status, attended, lim.silence, lim.hearing) {
		case stepAlive:
			events = append(events, Event{Node: n, State: Alive, At: now})
		case stepLeft:
			events = append(events, Event{Node: n, State: Dead, At: now, Refused: true, Left: true})
		case stepRestarted:
			events = append(events, Event{Node: n, State: Dead, At: now, Restarted: true}, Event{Node: n, State: Alive, At: now})
		case stepAsk:
			if before != Suspect {
				d.cfg.Logger.Warn("node is suspected", "node", n, "refused", w.refused, "silent", w.silent)
			}
			if !w.asking && !now.Before(w.askNext) {
				w.asking = true
				others, patience := d.othersLocked(n), max(w.patience, d.cfg.AskTimeout)
				w.patience = min(2*patience, max(d.cfg.AskTimeout, d.cfg.AskTimeoutMax))
				d.wg.Go(func() { d.ask(n, others, patience) })
			}
		}
		if w.state != Suspect {
			w.patience, w.unheard = 0, nil
		}
	}
	d.noteLocked(events)
	return events
}

// noteLocked keeps verdicts for those who subscribe later.
func (d *Detector) noteLocked(events []Event) {
	for _, e := range events {
		if w := d.peers[e.Node]; w != nil {
			w.verdict = e
		}
	}
}

// measure asks the network about every watched node, without holding mu.
func (d *Detector) measure() map[transport.NodeID]transport.PeerStatus {
	d.mu.Lock()
	nodes := slices.Collect(maps.Keys(d.peers))
	d.mu.Unlock()
	statuses := make(map[transport.NodeID]transport.PeerStatus, len(nodes))
	for _, n := range nodes {
		statuses[n] = d.cfg.Net.Peer(n)
	}
	return statuses
}

func (d *Detector) publish(events []Event) {
	if len(events) == 0 {
		return
	}
	d.mu.Lock()
	subs := make([]func(Event), 0, len(d.subs))
	for _, s := range d.subs {
		if s.follows {
			subs = append(subs, s.fn)
		}
	}
	d.mu.Unlock()
	for _, e := range events {
		if e.State == Suspect {
			d.cfg.Logger.Debug("node is not heard by some", "node", e.Node)
		} else {
			d.cfg.Logger.Info("node verdict", "node", e.Node, "state", e.State.String(), "refused", e.Refused, "left", e.Left)
		}
		for _, fn := range subs {
			fn(e)
		}
	}
}
