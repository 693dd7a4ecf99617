package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	gateway "github.com/warrenmq/warren/gateway/amqp"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/metrics"
)

// phase is what a node is doing as a whole.
type phase int32

const (
	starting phase = iota
	serving
	draining // on its way to drained
	drained  // without clients and leaderships, until it is revived or stopped
	stopping
)

var phaseNames = []string{"starting", "serving", "draining", "drained", "stopping"}

func (p phase) String() string { return phaseNames[p] }

// Bounds of the steps by which a node leaves; see docs/adr/0026-order-of-stopping.md. The steps together and the
// end of the process share Config.StopTimeout.
const (
	timeoutState   = time.Second     // for the catalog to note that the node drains
	timeoutYield   = 2 * time.Second // for another node to lead the catalog
	timeoutQuiet   = 2 * time.Second // for the answers to what was read of publishers: those of the first wave, and once more for the others
	timeoutClients = 5 * time.Second // for clients to answer connection.close, beside the waves and their answers
	timeoutGoodbye = time.Second     // for other nodes to take note that this one ends
	timeoutMemory  = 2 * time.Second // for the catalog to delete the queues in this node's memory
	timeoutRest    = time.Second     // for queues to take what the ends of connections gave back
	shutdownWaves  = 20
	shutdownEvery  = 100 * time.Millisecond
	quorumTick     = 200 * time.Millisecond
	// closeShare is the part of StopTimeout that is kept for the end of the process.
	closeShare = 3
	// timeoutClose is the shortest bound for it.
	timeoutClose = 10 * time.Second
)

// inWaves is how clients of AMQP are sent away. Each wave takes twice shutdownEvery at most when timeoutQuiet has passed.
var inWaves = gateway.ShutdownOptions{Waves: shutdownWaves, Every: shutdownEvery, Quiet: timeoutQuiet}

// maintenance is a request to drain or to revive the node.
type maintenance struct {
	drain bool
	limit time.Duration
	done  chan maintained // capacity 1
}

// maintained is its answer.
type maintained struct {
	left management.Drained
	err  error
}

var (
	errStops  = errors.New("the node is being stopped")
	errDrains = errors.New("the node is being drained or revived already")
	errBroken = errors.New("the drain was broken off: the node is revived")
)

// lifecycle has what the goroutine of live shares with those who ask.
type lifecycle struct {
	requests chan maintenance
	ended    chan struct{} // closed when live takes no requests any more

	// shut: a drain has closed the listeners for clients, or was about to.
	shut atomic.Bool

	mu    sync.Mutex
	steps map[string]time.Duration // of the newest drain or stop
}

func newLifecycle() lifecycle {
	return lifecycle{requests: make(chan maintenance), ended: make(chan struct{}), steps: map[string]time.Duration{}}
}

// life describes it to metrics.
func (n *running) life() metrics.Life {
	unready := n.readiness().Step
	n.lifecycle.mu.Lock()
	defer n.lifecycle.mu.Unlock()
	return metrics.Life{
		State: phase(n.phase.Load()).String(), States: phaseNames, Unready: unready, Unreadies: unreadySteps, Steps: maps.Clone(n.lifecycle.steps),
	}
}

// Maintain drains this node, or revives it. It returns when that is done, or could not be in time.
func (n *running) Maintain(ctx context.Context, drain bool, limit time.Duration) (management.Drained, error) {
	if limit <= 0 {
		limit = n.cfg.DrainTimeout
	}
	m := maintenance{drain: drain, limit: limit, done: make(chan maintained, 1)}
	select {
	case n.lifecycle.requests <- m:
	case <-n.lifecycle.ended:
		return management.Drained{}, errStops
	case <-ctx.Done():
		return management.Drained{}, ctx.Err()
	}
	select {
	case a := <-m.done:
		return a.left, a.err
	case <-ctx.Done(): // it goes on
		return management.Drained{}, ctx.Err()
	}
}

// live serves until ctx ends or a part fails, and then leaves in the order that harms clients least. It is the only one
// that changes the node's phase.
func (n *running) live(ctx context.Context) error {
	n.phase.Store(int32(serving))
	// Whatever is under way ends when the node is to stop.
	work, interrupt := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() { n.awaitLogs(work) })
	working.Go(func() { n.watchLag(work) })
	working.Go(func() { n.keepStanding(work) })
	working.Go(func() { n.keepShovels(work) })
	care := upkeep{n: n, work: work, working: &working}
	var err error
	for going := true; going; {
		select {
		case <-ctx.Done():
			going = false
		case err = <-n.failed:
			going = false
		case <-care.busy:
			care.ended()
		case m := <-n.lifecycle.requests:
			care.asked(m)
		}
	}
	n.phase.Store(int32(stopping))
	care.stop()
	close(n.lifecycle.ended)
	interrupt()
	working.Wait()
	n.phase.Store(int32(stopping)) // a drain or revival that just ended has set it, too
	if errors.Is(context.Cause(ctx), errRenewed) {
		steps, cancel := context.WithTimeout(context.Background(), timeoutRenew)
		defer cancel()
		n.leave(steps, leaving{}) // nobody leads the catalog, and others begin anew at the same time
		return err
	}
	n.stop()
	return err
}

// upkeep has drains and revivals carried out, one at a time. It belongs to the goroutine of live.
type upkeep struct {
	n       *running
	work    context.Context // they end with it
	working *sync.WaitGroup

	busy     chan struct{}           // closed at the end of the one under way; nil if there is none
	breakOff context.CancelCauseFunc // of the drain under way; nil if there is none
	next     *maintenance            // a revival that has broken a drain off, and waits for its end
}

// asked takes a request. A revival breaks a drain off: nobody who drains the wrong node is to wait for that.
func (u *upkeep) asked(m maintenance) {
	switch {
	case u.busy == nil:
		u.begin(m)
	case m.drain || u.breakOff == nil || u.next != nil:
		m.done <- maintained{err: errDrains}
	default:
		u.next = &m
		u.breakOff(errBroken)
	}
}

func (u *upkeep) begin(m maintenance) {
	ctx, cancel := context.WithCancelCause(u.work)
	if m.drain {
		u.breakOff = cancel
	}
	ended := make(chan struct{})
	u.busy = ended
	u.working.Go(func() {
		defer close(ended)
		defer cancel(nil)
		m.done <- u.n.maintain(ctx, m)
	})
}

// ended notes that the request under way has ended.
func (u *upkeep) ended() {
	u.busy, u.breakOff = nil, nil
	if m := u.next; m != nil {
		u.next = nil
		u.begin(*m)
	}
}

// stop answers who waits: nothing is begun any more.
func (u *upkeep) stop() {
	if u.next != nil {
		u.next.done <- maintained{err: errStops}
	}
}

// stop leaves, and stops doing so when it is asked to stop once more.
func (n *running) stop() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	steps, cancel := context.WithTimeout(context.Background(), n.cfg.StopTimeout-n.cfg.StopTimeout/closeShare)
	defer cancel()
	left := make(chan struct{})
	go func() { // waited for below
		defer close(left)
		n.leave(steps, leaving{leaders: n.cfg.StopTimeout / 2})
	}()
	select {
	case <-left:
	case <-again:
		n.log.Warn("asked again to stop: not waiting for clients and other nodes any more")
		cancel()
		<-left
	}
}

// maintain carries out one request. The phase is serving or drained before, and after.
func (n *running) maintain(ctx context.Context, m maintenance) maintained {
	ctx, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	if !m.drain {
		err := n.revive(ctx)
		return maintained{err: err}
	}
	if phase(n.phase.Load()) != drained {
		n.phase.Store(int32(draining))
	}
	left := n.leave(ctx, leaving{maintenance: true, quorum: n.cfg.AwaitQuorum, leaders: m.limit / 2})
	n.phase.CompareAndSwap(int32(draining), int32(drained))
	if brokenOff(ctx) {
		return maintained{left: left, err: errBroken}
	}
	return maintained{left: left}
}

// brokenOff tells whether a drain is to do nothing more.
func brokenOff(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errBroken) }

// leaving says how a node leaves.
type leaving struct {
	// maintenance: it stays there, drained, and the catalog is told.
	maintenance bool
	// quorum and leaders bound the waiting for queues that need this node, and the moves of leaders.
	quorum, leaders time.Duration
}

// leave takes a node out of its cluster and away from its clients, step by step. Each step has its own bound, and what
// it did not do by then is left to what happens when a node dies. ctx bounds all of them.
func (n *running) leave(ctx context.Context, how leaving) management.Drained {
	n.log.Info("leaving", "maintenance", how.maintenance)
	begun := time.Now()
	if how.maintenance {
		n.lookAtShovels()
		n.step(ctx, "state", timeoutState, func(ctx context.Context) { n.standing.tell(ctx, true) })
		n.step(ctx, "quorum", how.quorum, n.awaitQuorum)
	}
	if !n.lifecycle.shut.Load() { // after a drain, nobody has come for longer
		n.step(ctx, "lame duck", n.cfg.LameDuck, func(ctx context.Context) { <-ctx.Done() })
	}
	if brokenOff(ctx) {
		return management.Drained{}
	}
	n.lifecycle.shut.Store(true)
	n.step(ctx, "listeners", time.Minute, func(context.Context) { n.amqp.CloseListeners() })
	var left management.Drained
	// Leaders first: a client that is sent away would meet the searching of its queues' leaders elsewhere.
	n.step(ctx, "leaders", how.leaders, func(ctx context.Context) {
		d := n.host.Drain(ctx, n.goesAway)
		left.Moved, left.Stayed = d.Moved, d.Stayed
	})
	n.step(ctx, "catalog", timeoutYield, func(ctx context.Context) {
		if err := n.catalog.Load().Yield(ctx, n.goesAway); err != nil && len(n.livePeers()) > 0 {
			n.log.Warn("the catalog's leadership stays", "err", err)
		}
		left.LeadsCatalog = n.catalog.Load().Leading()
	})
	if brokenOff(ctx) {
		return left
	}
	n.step(ctx, "publishers", timeoutQuiet, func(ctx context.Context) { left.Unanswered = n.amqp.Quiesce(ctx, inWaves) })
	if brokenOff(ctx) { // the clients that are here stay
		return left
	}
	left.Clients = n.amqp.Stats().Connections + n.grpc.Sessions()
	left.Unanswered += n.sendAway(ctx, how.maintenance)
	n.step(ctx, "settlements", timeoutRest, func(ctx context.Context) {
		if queues := n.broker.AwaitRest(ctx); queues > 0 {
			n.log.Warn("settlements of clients may be lost", "queues", queues)
		}
	})
	if !how.maintenance && len(n.livePeers()) > 0 {
		n.step(ctx, "memory", timeoutMemory, n.broker.Forsake)
	}
	n.log.Info("clients and queues are handed over", "queues_moved", left.Moved, "queues_stayed", left.Stayed,
		"clients", left.Clients, "without_answers", left.Unanswered, "after", time.Since(begun))
	return left
}

// sendAway ends the clients of both protocols at the same time: those of one are not held up by one of the other that does not
// read. It returns how many of gRPC, and of AMQP beyond the first wave, had something without a result.
func (n *running) sendAway(ctx context.Context, maintenance bool) (unanswered int) {
	var others sync.WaitGroup
	var of struct{ grpc, amqp int }
	others.Go(func() {
		n.step(ctx, "grpc clients", timeoutClients, func(ctx context.Context) { of.grpc = n.grpc.Leave(ctx) })
	})
	n.step(ctx, "clients", timeoutClients+timeoutQuiet+2*shutdownWaves*shutdownEvery, func(ctx context.Context) {
		end := n.amqp.Shutdown
		if maintenance {
			end = n.amqp.Expel
		}
		var err error
		if of.amqp, err = end(ctx, inWaves); err != nil {
			n.log.Warn("clients did not end their connections in time and were cut off", "err", err)
		}
	})
	others.Wait()
	return of.grpc + of.amqp
}

// step runs one step of leave.
func (n *running) step(ctx context.Context, name string, limit time.Duration, do func(context.Context)) {
	begun := time.Now()
	if limit > 0 {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		do(ctx)
	}
	took := time.Since(begun)
	n.lifecycle.mu.Lock()
	n.lifecycle.steps[name] = took
	n.lifecycle.mu.Unlock()
	n.log.Debug("step of leaving", "step", name, "took", took)
}

// awaitQuorum waits until every queue here, and the catalog, has its quorum without this node.
func (n *running) awaitQuorum(ctx context.Context) {
	for {
		critical, catalog := n.host.Critical(), n.catalog.Load().Critical()
		if critical == 0 && !catalog { // as far as this node knows: the others are asked last
			ask, cancel := context.WithTimeout(ctx, criticalWait)
			critical = len(n.host.CriticalGroups(ask))
			cancel()
			if critical == 0 {
				return
			}
		}
		select {
		case <-time.After(quorumTick):
		case <-ctx.Done():
			if brokenOff(ctx) {
				return
			}
			n.log.Warn("queues, or the catalog, lose their quorum with this node", "queues", critical, "catalog", catalog)
			return
		}
	}
}

// revive undoes a drain: clients may come, and leaders.
func (n *running) revive(ctx context.Context) error {
	if phase(n.phase.Load()) == serving {
		return nil
	}
	if n.lifecycle.shut.Load() {
		if err := n.reopen(); err != nil {
			return fmt.Errorf("listeners: %w", err)
		}
		n.lifecycle.shut.Store(false)
	}
	n.amqp.Resume()
	n.standing.tell(ctx, false)
	n.host.Revive()
	n.catalog.Load().Willing()
	n.phase.Store(int32(serving))
	n.log.Info("revived")
	return nil
}

// close takes the node down in reverse of how it was built. A part that hangs is an error: the process ends
// without it.
func (n *running) close() error {
	n.ready.Store(false)
	var part atomic.Pointer[string]
	ended := make(chan struct{})
	go func() { // ends with the last part, or with the process
		defer close(ended)
		for _, c := range slices.Backward(n.closers) {
			part.Store(&c.name)
			begun := time.Now()
			if err := c.end(); err != nil {
				n.log.Warn("not closed cleanly", "part", c.name, "err", err)
			}
			n.log.Debug("closed", "part", c.name, "after", time.Since(begun))
		}
	}()
	limit := max(timeoutClose, n.cfg.StopTimeout/closeShare)
	select {
	case <-ended:
		n.log.Info("stopped")
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s did not end within %v", *part.Load(), limit)
	}
}
