package definitions

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/policy"
)

// Options say how a document is imported.
type Options struct {
	// VHost takes everything, whatever the document says; users, permissions and virtual hosts are left out then. Empty:
	// each object says where it belongs.
	VHost string
	// DefaultUser stays as it is if it is there.
	DefaultUser string
	// Hashing is how passwords are hashed that the document has in the clear.
	Hashing auth.Hashing
	// User is whose shovels they are.
	User string
	// SkipUnsupported leaves out what Warren does not have, in place of refusing the document.
	SkipUnsupported bool
}

// Plan is what an import is to do. It is immutable.
type Plan struct {
	// changes by stage, each in the order of the document.
	stages [stages][]change
	// report has what is not changed.
	report Report
}

// The stages, one after the other: what others refer to comes first.
const (
	stageVhosts = iota
	stageUsers
	stagePermissions
	stageParameters
	stagePolicies
	stageExchanges
	stageQueues
	stageBindings
	stageShovels // they begin at once
	stages
)

// change is one object to make or change. One of what follows Change is set.
type change struct {
	Change

	commands []catalog.Command // one after the other
	queue    *broker.QueueDeclare
	exchange *broker.ExchangeDeclare
}

// planner compares a document with a view.
type planner struct {
	doc      *Document
	view     *catalog.View
	opt      Options
	plan     *Plan
	problems []Problem
	// seen has the text of each object of the document, to find those that are there twice.
	seen map[Item]string
	// limits of virtual hosts once they are imported.
	limits map[string]limits
	// exchanges of the document by vhost and name, queues likewise; newQueues counts those to make.
	exchanges map[[2]string]*broker.ExchangeDeclare
	queues    map[[2]string]bool
	newQueues map[string]int
	vhosts    map[string]*catalog.Vhost
	users     map[string]bool
	bonds     map[destination]map[bond]bool // of the view, as far as they were asked for
}

// Make compares a document with a view. The error is [*Invalid].
func Make(d *Document, v *catalog.View, opt Options) (*Plan, error) {
	p := &planner{
		doc: d, view: v, opt: opt, plan: &Plan{report: Report{Counts: map[Kind]Count{}, Changes: []Change{}, Skipped: []Note{}}},
		seen: map[Item]string{}, limits: map[string]limits{}, exchanges: map[[2]string]*broker.ExchangeDeclare{}, queues: map[[2]string]bool{},
		newQueues: map[string]int{}, vhosts: map[string]*catalog.Vhost{}, users: map[string]bool{}, bonds: map[destination]map[bond]bool{},
	}
	for _, key := range d.Unknown {
		p.skip(Item{Kind: KindKey, Name: key}, "unknown")
	}
	for h := range v.Vhosts() {
		p.vhosts[h.Name] = h
	}
	for u := range v.Users() {
		p.users[u.Name] = true
	}
	if opt.VHost == "" {
		p.planAccess()
	} else {
		p.leaveAccess()
	}
	p.planParameters()
	p.planPolicies()
	p.planExchanges()
	p.planQueues()
	p.planBindings()
	p.checkQueueLimits()
	if len(p.problems) > 0 {
		return nil, &Invalid{p.problems}
	}
	return p.plan, nil
}

// leaveAccess tells what of the whole cluster is not imported into one virtual host.
func (p *planner) leaveAccess() {
	for key, n := range map[string]int{
		"users": len(p.doc.Users), "vhosts": len(p.doc.Vhosts), "permissions": len(p.doc.Permissions),
		"topic_permissions": len(p.doc.TopicPermissions), "global_parameters": len(p.doc.GlobalParameters),
	} {
		if n > 0 {
			p.skip(Item{Kind: KindKey, Name: key}, "not imported into a single virtual host")
		}
	}
	slices.SortFunc(p.plan.report.Skipped, func(a, b Note) int { return strings.Compare(a.Name, b.Name) })
}

// home is the virtual host that an object goes into; ok is false if there is none, which is a problem.
func (p *planner) home(item *Item, says string) (ok bool) {
	item.VHost = says
	if p.opt.VHost != "" {
		item.VHost = p.opt.VHost
	}
	switch {
	case item.VHost == "":
		p.problem(*item, "Virtual host does not exist and is not specified in definitions file.")
	case p.vhosts[item.VHost] == nil:
		p.problem(*item, "Please create virtual host \"%s\" prior to importing definitions.", item.VHost)
	default:
		return true
	}
	return false
}

// again reports whether the document has had the object before; with another content that is a problem.
func (p *planner) again(item Item, content any) bool {
	text := string(raw(content))
	before, ok := p.seen[item]
	if ok && before != text {
		p.problem(item, "is there twice, and differs")
	}
	p.seen[item] = text
	return ok
}

func (p *planner) skip(item Item, format string, args ...any) {
	p.plan.report.Skipped = append(p.plan.report.Skipped, Note{item, fmt.Sprintf(format, args...)})
	p.plan.report.count(item.Kind, func(c *Count) { c.Skipped++ })
}

func (p *planner) problem(item Item, format string, args ...any) {
	if len(p.problems) < problemsMax {
		p.problems = append(p.problems, Problem{Item: item, Reason: fmt.Sprintf(format, args...)})
	}
}

// unsupported is a problem unless such things are left out.
func (p *planner) unsupported(item Item, format string, args ...any) {
	if p.opt.SkipUnsupported {
		p.skip(item, format, args...)
		return
	}
	p.problem(item, format, args...)
	if n := len(p.problems); n > 0 && p.problems[n-1].Item == item {
		p.problems[n-1].Unsupported = true
	}
}

// checked is unsupported for what the catalog refuses of commands.
func (p *planner) checked(item Item, commands ...catalog.Command) bool {
	for _, cmd := range commands {
		if err := catalog.Check(cmd); err != nil {
			p.unsupported(item, "%s", reason(err))
			return false
		}
	}
	return true
}

// reason is an error in the words that people are to see.
func reason(err error) string {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return e.Text
	}
	return err.Error()
}

// add puts a change into a stage: an update if there are differences and the object is there, nothing without.
func (p *planner) add(stage int, item Item, there bool, differences []Difference, c change) {
	if there && len(differences) == 0 {
		p.plan.report.count(item.Kind, func(c *Count) { c.Unchanged++ })
		return
	}
	c.Change = Change{Item: item, Action: ActionCreate}
	if there {
		c.Action, c.Differences = ActionUpdate, differences
	}
	p.plan.stages[stage] = append(p.plan.stages[stage], c)
}

// fields are those of an object by their names, of the types that JSON has.
type fields map[string]any

// differences are the fields of want that have has otherwise.
func differences(have, want fields) (list []Difference) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !reflect.DeepEqual(have[name], want[name]) {
			list = append(list, Difference{name, have[name], want[name]})
		}
	}
	return list
}

// planExchanges plans the exchanges.
func (p *planner) planExchanges() {
	for i := range p.doc.Exchanges {
		x := &p.doc.Exchanges[i]
		item := Item{Kind: KindExchange, Name: x.Name}
		switch {
		case !p.home(&item, x.VHost) || p.again(item, x):
			continue
		case x.Name == "":
			p.skip(item, "the default exchange is always there")
			continue
		case broker.ReservedName(x.Name):
			if p.view.Exchange(item.VHost, x.Name) == nil && !catalog.SystemExchange(x.Name) {
				p.skip(item, "names that begin with amq. are reserved")
			}
			continue
		}
		d := &broker.ExchangeDeclare{Name: x.Name, Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: x.Arguments.Table}
		if _, err := broker.CheckExchange(item.VHost, *d); err != nil {
			p.unsupported(item, "%s", reason(err))
			continue
		}
		p.exchanges[[2]string{item.VHost, x.Name}] = d
		there := p.view.Exchange(item.VHost, x.Name)
		if there != nil {
			if list := differences(exchangeFields(exchangeOf(there, "")), exchangeFields(*x)); len(list) > 0 {
				p.skip(item, "%s", stays(list))
				continue
			}
		}
		p.add(stageExchanges, item, there != nil, nil, change{exchange: d})
	}
}

func exchangeFields(x Exchange) fields {
	return fields{"type": x.Type, "durable": x.Durable, "auto_delete": x.AutoDelete, "internal": x.Internal, "arguments": textOfTable(x.Arguments.Table)}
}

// stays says why a queue or an exchange is not imported.
func stays(list []Difference) string {
	parts := make([]string, len(list))
	for i, d := range list {
		parts[i] = fmt.Sprintf("%s is %v, not %v", d.Field, d.From, d.To)
	}
	return "is there already, and stays as it is: " + strings.Join(parts, ", ")
}

// planQueues plans the queues.
func (p *planner) planQueues() {
	for i := range p.doc.Queues {
		q := &p.doc.Queues[i]
		item := Item{Kind: KindQueue, Name: q.Name}
		switch {
		case !p.home(&item, q.VHost) || p.again(item, q):
			continue
		case broker.ReservedName(q.Name):
			p.skip(item, "names that begin with amq. are reserved")
			continue
		}
		d, ok := p.queue(item, q)
		if !ok {
			continue
		}
		p.queues[[2]string{item.VHost, q.Name}] = true
		there := p.view.Queue(item.VHost, q.Name)
		if there != nil {
			list := differences(queueFields(queueOf(there, "")), queueFields(declared(d)))
			if len(list) > 0 {
				p.skip(item, "%s", stays(list))
				continue
			}
		} else {
			p.newQueues[item.VHost]++
		}
		p.add(stageQueues, item, there != nil, nil, change{queue: d})
	}
}

// queue is how a queue is to be declared: its arguments name its type unless that is the one that it has anyway.
func (p *planner) queue(item Item, q *Queue) (d *broker.QueueDeclare, ok bool) {
	d = &broker.QueueDeclare{Name: q.Name, Durable: q.Durable, AutoDelete: q.AutoDelete, Arguments: q.Arguments.Table}
	argument, named := d.Arguments.Get("x-queue-type")
	switch {
	case q.Type == "" && !named:
		d.Arguments = broker.WithDefaultType(*d, p.vhosts[item.VHost])
	case q.Type == "" || named && argument == q.Type:
	case named:
		p.problem(item, "type is '%s', and x-queue-type '%v'", q.Type, argument)
		return nil, false
	case !slices.Contains(broker.QueueTypes(), q.Type):
		p.unsupported(item, "unsupported queue type '%s'", q.Type)
		return nil, false
	case q.Type != broker.TypeOf(nil):
		d.Arguments = broker.WithType(d.Arguments, q.Type)
	}
	if err := broker.CheckQueue(item.VHost, *d); err != nil {
		p.unsupported(item, "%s", reason(err))
		return nil, false
	}
	return d, true
}

func queueFields(q Queue) fields {
	// A queue is classic whether its arguments say so or not.
	args := q.Arguments.Clone()
	args.Delete("x-queue-type")
	return fields{"type": broker.TypeOf(q.Arguments.Table), "durable": q.Durable, "auto_delete": q.AutoDelete, "arguments": textOfTable(args)}
}

// checkQueueLimits refuses more queues than a virtual host may have. The words are RabbitMQ's.
func (p *planner) checkQueueLimits() {
	for _, name := range slices.Sorted(maps.Keys(p.newQueues)) {
		n, now := p.newQueues[name], p.view.QueuesIn(name)
		limit, ok := p.limits[name]["max-queues"]
		if h := p.view.Vhost(name); !ok && h != nil {
			limit, ok = h.Limits.Queues.Value, h.Limits.Queues.Bounds()
		}
		if ok && limit >= 0 && int64(now+n) > limit {
			p.problem(Item{Kind: KindVhost, Name: name}, "Adding %d queue(s) to virtual host \"%s\" would exceed the limit of %d queue(s). "+
				"This virtual host currently has %d queue(s) defined.", n, name, limit, now)
		}
	}
}

// cmqKeys are those of mirrored classic queues, which RabbitMQ 4 has no more, and federationKeys of a plugin. Policies are
// imported without them.
var (
	cmqKeys        = []string{"ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure"}
	federationKeys = []string{"federation-upstream", "federation-upstream-set", "federation-upstream-pattern"}
)

// policy plans a policy or an operator policy.
func (p *planner) policy(item Item, from *Policy, operator bool) {
	definition, err := policy.ParseDefinition(ofPairs(from.Definition))
	if err != nil {
		p.problem(item, "%v", err)
		return
	}
	for _, key := range cmqKeys {
		if definition.Delete(key) {
			p.skip(Item{Kind: KindKey, VHost: item.VHost, Name: key}, "of %s '%s': every durable queue is replicated", strings.ReplaceAll(string(item.Kind), "_", " "), item.Name)
		}
	}
	for _, key := range federationKeys {
		if definition.Delete(key) {
			p.skip(Item{Kind: KindKey, VHost: item.VHost, Name: key}, "of %s '%s': there is no federation", strings.ReplaceAll(string(item.Kind), "_", " "), item.Name)
		}
	}
	if len(definition) == 0 {
		p.skip(item, "nothing is left of it")
		return
	}
	applyTo := policy.All
	if from.ApplyTo != nil {
		applyTo = policy.ParseApplyTo(*from.ApplyTo)
	}
	want, err := policy.New(policy.Spec{
		VHost: item.VHost, Name: item.Name, Operator: operator, Pattern: from.Pattern, ApplyTo: applyTo,
		Priority: from.Priority, Definition: definition,
	})
	if e, ok := errors.AsType[*policy.Invalid](err); ok {
		p.unsupported(item, "%s", strings.Join(e.Reasons, ", "))
		return
	}
	cmd := &catalog.PutPolicy{Policy: want.Spec}
	if !p.checked(item, cmd) {
		return
	}
	have := p.view.Policies(item.VHost).Find(operator, item.Name)
	var list []Difference
	if have != nil {
		list = differences(policyFields(have), policyFields(want))
	}
	p.add(stagePolicies, item, have != nil, list, change{commands: []catalog.Command{cmd}})
}

func policyFields(p *policy.Policy) fields {
	return fields{"pattern": p.Pattern, "apply-to": p.ApplyTo.String(), "priority": p.Priority, "definition": textOfTable(p.Definition)}
}

func (p *planner) planPolicies() {
	for i := range p.doc.Policies {
		from := &p.doc.Policies[i]
		item := Item{Kind: KindPolicy, Name: from.Name}
		if p.home(&item, from.VHost) && !p.again(item, from) {
			p.policy(item, from, false)
		}
	}
}
