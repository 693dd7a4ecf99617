package definitions

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// atOnce is how many changes of a stage are under way at a time: enough for the catalog's leader to make one write of
// several, and few beside what it takes from clients.
const atOnce = 32

// failuresMax bounds the failures that are told.
const failuresMax = 100

// Cluster makes changes, one at a time for each caller; a *[broker.Broker]. Its errors are *[broker.Error].
type Cluster interface {
	Define(ctx context.Context, cmd catalog.Command) (catalog.Result, error)
	// DefineQueue and DefineExchange make nothing if there is one of the name: was is that one, nil if it is gone again.
	DefineQueue(ctx context.Context, vhost string, d broker.QueueDeclare) (made bool, was *catalog.Queue, err error)
	DefineExchange(ctx context.Context, vhost string, d broker.ExchangeDeclare) (made bool, was *catalog.Exchange, err error)
	// Everywhere waits a moment until all living nodes know of the changes.
	Everywhere(ctx context.Context)
}

// Preview tells what Run would do.
func (p *Plan) Preview() Report {
	r := p.begin()
	r.DryRun = true
	for _, stage := range p.stages {
		for i := range stage {
			r.made(&stage[i].Change)
		}
	}
	return r
}

// Vhosts are those whose policies the plan changes.
func (p *Plan) Vhosts() (names []string) {
	for _, c := range p.stages[stagePolicies] {
		if !slices.Contains(names, c.VHost) {
			names = append(names, c.VHost)
		}
	}
	return names
}

// begin is a report of what is not changed.
func (p *Plan) begin() Report {
	r := p.report
	r.Counts = maps.Clone(r.Counts)
	r.Changes = []Change{}
	return r
}

func (r *Report) made(c *Change) {
	r.Changes = append(r.Changes, *c)
	r.count(c.Kind, func(n *Count) {
		if c.Action == ActionCreate {
			n.Created++
		} else {
			n.Updated++
		}
	})
}

// Run makes the changes. When one fails those of its stage that are under way are waited for, and nothing else is begun: the
// report says what was made and what was not, and the error is the first failure. A second run of a new plan goes on from there.
func (p *Plan) Run(ctx context.Context, c Cluster) (Report, error) {
	r := p.begin()
	var failed error
	for _, stage := range p.stages {
		if failed != nil {
			r.NotTried += len(stage)
			continue
		}
		failed = r.run(ctx, c, stage)
	}
	c.Everywhere(ctx)
	return r, failed
}

// run makes the changes of one stage.
func (r *Report) run(ctx context.Context, c Cluster, stage []change) (failed error) {
	var mu sync.Mutex // of failed
	outcomes := make([]outcome, len(stage))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(atOnce, len(stage)) {
		workers.Go(func() {
			for i := range next {
				outcomes[i] = stage[i].make(ctx, c)
				mu.Lock()
				if failed == nil {
					failed = outcomes[i].err
				}
				mu.Unlock()
			}
		})
	}
	tried := 0
	for ; tried < len(stage); tried++ {
		mu.Lock()
		stop := failed != nil || ctx.Err() != nil
		mu.Unlock()
		if stop {
			break
		}
		next <- tried
	}
	close(next)
	workers.Wait()
	r.NotTried += len(stage) - tried
	for i := range stage[:tried] {
		r.tell(&stage[i].Change, outcomes[i])
	}
	if failed == nil && tried < len(stage) {
		failed = broker.Errorf(broker.TimedOut, "operation timed out")
	}
	return failed
}

// outcome is what became of one change.
type outcome struct {
	// there: somebody else has made the object since the plan was; differs says how it is not what the plan says.
	there   bool
	differs []Difference
	// gone is why a binding was not made: somebody has deleted one of its ends since the plan was.
	gone error
	err  error
}

// tell adds what became of a change.
func (r *Report) tell(c *Change, o outcome) {
	switch {
	case o.err != nil:
		r.count(c.Kind, func(n *Count) { n.Failed++ })
		if len(r.Failed) < failuresMax {
			r.Failed = append(r.Failed, Note{c.Item, reason(o.err)})
		}
	case o.gone != nil:
		r.count(c.Kind, func(n *Count) { n.Skipped++ })
		r.Skipped = append(r.Skipped, Note{c.Item, reason(o.gone)})
	case len(o.differs) > 0:
		r.count(c.Kind, func(n *Count) { n.Skipped++ })
		r.Skipped = append(r.Skipped, Note{c.Item, stays(o.differs)})
	case o.there:
		r.count(c.Kind, func(n *Count) { n.Unchanged++ })
	default:
		r.made(c)
	}
}

// make makes one change.
func (c *change) make(ctx context.Context, to Cluster) (o outcome) {
	switch {
	case c.queue != nil:
		made, was, err := to.DefineQueue(ctx, c.VHost, *c.queue)
		o.there, o.err = !made, err
		if was != nil {
			o.differs = differences(queueFields(queueOf(was, "")), queueFields(declared(c.queue)))
		}
	case c.exchange != nil:
		made, was, err := to.DefineExchange(ctx, c.VHost, *c.exchange)
		o.there, o.err = !made, err
		if was != nil {
			o.differs = differences(exchangeFields(exchangeOf(was, "")), exchangeFields(exchangeDeclared(c.exchange)))
		}
	}
	for _, cmd := range c.commands {
		if o.err == nil {
			_, o.err = to.Define(ctx, cmd)
		}
	}
	if e, ok := errors.AsType[*broker.Error](o.err); ok && e.Kind == broker.NotFound && c.Kind == KindBinding {
		o.gone, o.err = o.err, nil // as if it had not been there when the plan was made
	}
	return o
}

// declared and exchangeDeclared are a queue and an exchange as definitions have them.
func declared(d *broker.QueueDeclare) Queue {
	return Queue{Durable: d.Durable, AutoDelete: d.AutoDelete, Arguments: arguments{d.Arguments}}
}

func exchangeDeclared(d *broker.ExchangeDeclare) Exchange {
	return Exchange{Type: d.Type, Durable: d.Durable, AutoDelete: d.AutoDelete, Internal: d.Internal, Arguments: arguments{d.Arguments}}
}

// Refused tells whether an import failed because of what it says, not because the cluster cannot do it now.
func Refused(err error) bool {
	if _, ok := errors.AsType[*Invalid](err); ok {
		return true
	}
	e, ok := errors.AsType[*broker.Error](err)
	return ok && e.Kind != broker.Unavailable && e.Kind != broker.TimedOut && e.Kind != broker.Internal
}
