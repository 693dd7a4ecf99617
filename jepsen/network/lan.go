package network

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// clientsNumber is the host number of Clients; nodes count from 1.
const clientsNumber = 200

// Lan carries IP packets between hosts in network namespaces.
type Lan struct {
	hosts map[string]*host
	ports []*port
	links map[Pair]*link
	work  sync.WaitGroup

	carried, dropped atomic.Uint64
}

// port is where a host is plugged in.
type port struct {
	name   string
	number byte // the last of its address
	tun    *os.File
	// links lead from here to the hosts, by the last byte of their addresses. It is not
	// changed after OpenLan.
	links [256]*link
}

// OpenLan makes a host for each node. The process must be Inside.
func OpenLan(nodes []string) (*Lan, error) {
	if !Inside() {
		return nil, errors.New("a Lan needs a process in a network namespace of its own")
	}
	l := &Lan{hosts: map[string]*host{}, links: map[Pair]*link{}}
	for i, name := range nodes {
		h, err := newHost(name, i+1)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.hosts[name] = h
		l.ports = append(l.ports, &port{name: name, number: byte(i + 1), tun: h.tun})
	}
	// All threads of this process are in one namespace, but for those of the hosts.
	tun, err := newTun("warren0", clientsNumber, mtu)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the host %s: %w", Clients, err), l.Close())
	}
	l.ports = append(l.ports, &port{name: Clients, number: clientsNumber, tun: tun})
	for _, from := range l.ports {
		for _, to := range l.ports {
			if from == to {
				continue
			}
			k := newLink(to.tun, l)
			l.links[Pair{from.name, to.name}], from.links[to.number] = k, k
		}
	}
	for _, p := range l.ports {
		l.work.Go(func() { l.carry(p) })
	}
	return l, nil
}

// carry passes on what one host sends, until its device is closed.
func (l *Lan) carry(p *port) {
	buf := make([]byte, mtu+64)
	for {
		n, err := p.tun.Read(buf)
		if err != nil {
			return
		}
		if k := p.links[destination(buf[:n])]; k != nil {
			k.send(buf[:n])
		}
	}
}

// destination returns the last byte of a packet's destination, 0 if that is not in the
// Lan.
func destination(packet []byte) byte {
	if len(packet) < 20 || packet[0]>>4 != 4 || packet[16] != 10 || packet[17] != 77 || packet[18] != 0 {
		return 0
	}
	return packet[19]
}

// Kind implements Network.
func (l *Lan) Kind() string { return "namespaces" }

// Place implements Network.
func (l *Lan) Place(node string) (Place, error) {
	h := l.hosts[node]
	if h == nil {
		return Place{}, fmt.Errorf("no host %q", node)
	}
	for _, p := range l.ports {
		if p.name == node {
			host := address(int(p.number))
			return Place{Host: host, Run: h.run, Expose: func(port string) error { return h.expose(host, port) }}, nil
		}
	}
	return Place{}, fmt.Errorf("no port for %q", node)
}

// Harm implements Network.
func (l *Lan) Harm(pairs []Pair, state Link) error {
	for _, p := range pairs {
		k := l.links[p]
		if k == nil {
			return fmt.Errorf("no link from %q to %q", p.From, p.To)
		}
		k.state.Store(&state)
	}
	return nil
}

// Heal implements Network.
func (l *Lan) Heal() {
	for _, k := range l.links {
		k.state.Store(&Link{})
	}
}

// Packets implements Network.
func (l *Lan) Packets() (carried, dropped uint64) { return l.carried.Load(), l.dropped.Load() }

// Close implements Network. Processes that were started in the hosts get no packets any
// more.
func (l *Lan) Close() error {
	for _, h := range l.hosts {
		h.close()
	}
	for _, p := range l.ports {
		p.tun.Close()
	}
	for _, k := range l.links {
		k.close()
	}
	l.work.Wait()
	return nil
}
