package definitions

import (
	"fmt"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/exchange"
)

// planBindings plans the bindings. Those of queues and exchanges that the document does not carry, such as exclusive ones,
// are in what RabbitMQ exports.
func (p *planner) planBindings() {
	for i := range p.doc.Bindings {
		b := &p.doc.Bindings[i]
		item := Item{Kind: KindBinding, Name: fmt.Sprintf("%s -> %s %s (%s)", b.Source, b.DestinationType, b.Destination, b.RoutingKey)}
		if !p.home(&item, b.VHost) {
			continue
		}
		arguments := textOfTable(b.Arguments.Table)
		if len(b.Arguments.Table) > 0 {
			item.Name += " " + arguments
		}
		if p.again(item, b) {
			continue
		}
		if b.DestinationType != destQueue && b.DestinationType != destExchange {
			p.problem(item, "destination_type is neither queue nor exchange")
			continue
		}
		if b.Source == "" {
			p.skip(item, "bindings of the default exchange are always there")
			continue
		}
		d := catalog.Binding{Vhost: item.VHost, Source: b.Source, Destination: b.Destination, ToExchange: b.DestinationType == destExchange, Key: b.RoutingKey, Arguments: b.Arguments.Table}
		source, typ, args := p.source(item.VHost, b.Source)
		switch {
		case !source:
			p.skip(item, "there is no exchange '%s'", b.Source)
		case d.ToExchange && !p.hasExchange(item.VHost, b.Destination) || !d.ToExchange && !p.hasQueue(item.VHost, b.Destination):
			p.skip(item, "there is no %s '%s'", b.DestinationType, b.Destination)
		default:
			if err := exchange.ValidateBinding(typ, args, d.Key, d.Arguments); err != nil {
				p.unsupported(item, "%s", reason(err))
			} else if cmd := (&catalog.Bind{Binding: d}); p.checked(item, cmd) {
				p.add(stageBindings, item, p.hasBinding(&d, arguments), nil, change{commands: []catalog.Command{cmd}})
			}
		}
	}
}

// source is the exchange that a binding is of, as it is or will be.
func (p *planner) source(vhost, name string) (ok bool, typ exchange.Type, args amqp.Table) {
	if x := p.view.Exchange(vhost, name); x != nil {
		return true, x.Type, x.Arguments
	}
	if d := p.exchanges[[2]string{vhost, name}]; d != nil {
		typ, err := exchange.ParseType(d.Type)
		return err == nil, typ, d.Arguments
	}
	// A new virtual host has those that are in every one.
	typ, ok = catalog.SystemExchangeType(name)
	return ok, typ, nil
}

func (p *planner) hasExchange(vhost, name string) bool {
	ok, _, _ := p.source(vhost, name)
	return ok
}

func (p *planner) hasQueue(vhost, name string) bool {
	return p.queues[[2]string{vhost, name}] || p.view.Queue(vhost, name) != nil
}

// hasBinding tells whether there is a binding whose arguments have that text, of whatever types they are.
func (p *planner) hasBinding(b *catalog.Binding, arguments string) bool {
	if p.view.Binding(b) != nil {
		return true
	}
	if len(b.Arguments) == 0 {
		return false
	}
	return p.bondsOf(destination{b.Vhost, b.Destination, b.ToExchange})[bond{b.Source, b.Key, arguments}]
}

// destination is what bindings lead to, bond one of its bindings with the text of its arguments.
type (
	destination struct {
		vhost, name string
		exchange    bool
	}
	bond struct{ source, key, arguments string }
)

// bondsOf are the bindings that a destination has. They are looked up once: it may have thousands, and as many in the document.
func (p *planner) bondsOf(d destination) map[bond]bool {
	if bonds, ok := p.bonds[d]; ok {
		return bonds
	}
	bonds := map[bond]bool{}
	for have := range p.view.BindingsTo(d.vhost, d.name, d.exchange) {
		bonds[bond{have.Source, have.Key, textOfTable(have.Arguments)}] = true
	}
	p.bonds[d] = bonds
	return bonds
}
