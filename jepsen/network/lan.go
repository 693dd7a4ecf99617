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

// LanConfig describes a Lan.
type LanConfig struct {
	// Nodes get the host numbers from 1 on.
	Nodes []string
	// Number, 0 to 255, tells the Lans of one process apart.
	Number byte
	// IPv6 gives the hosts addresses of IPv6 and no others.
	IPv6 bool
	// ResolvConf, when not nil, is called with the address of Clients and returns what the hosts' processes find in
	// /etc/resolv.conf. Without it they find the machine's.
	ResolvConf func(clients string) string
}

// Lan carries IP packets between hosts in network namespaces.
type Lan struct {
	net   subnet
	hosts map[string]*host
	ports []*port
	links map[Pair]*link
	work  sync.WaitGroup

	// routes has the index of the port of each address's last byte, counted from 1; 0: nobody has it.
	routes   atomic.Pointer[[256]byte]
	renumber sync.Mutex
	newest   int // number that Readdress gave

	carried, dropped atomic.Uint64
}

// port is where a host is plugged in.
type port struct {
	name   string
	number int // of its host; Lan.renumber guards it
	tun    *os.File
	// links lead from here to the hosts, by the index of their ports. It is not
	// changed after OpenLan.
	links []*link
}

// OpenLan makes a host for each node. The process must be Inside.
func OpenLan(cfg LanConfig) (*Lan, error) {
	if !Inside() {
		return nil, errors.New("a Lan needs a process in a network namespace of its own")
	}
	l := &Lan{net: subnet{number: cfg.Number, v6: cfg.IPv6}, hosts: map[string]*host{}, links: map[Pair]*link{}}
	l.routes.Store(&[256]byte{})
	resolvConf := ""
	if cfg.ResolvConf != nil {
		resolvConf = cfg.ResolvConf(l.net.address(clientsNumber))
	}
	for i, name := range cfg.Nodes {
		h, err := newHost(name, l.net, i+1, resolvConf)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.hosts[name] = h
		l.ports = append(l.ports, &port{name: name, number: i + 1, tun: h.tun})
	}
	// All threads of this process are in one namespace, but for those of the hosts.
	tun, err := newTun(fmt.Sprintf("warren%d", cfg.Number), l.net, clientsNumber)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the host %s: %w", Clients, err), l.Close())
	}
	l.ports = append(l.ports, &port{name: Clients, number: clientsNumber, tun: tun})
	for _, from := range l.ports {
		from.links = make([]*link, len(l.ports))
		for i, to := range l.ports {
			if from == to {
				continue
			}
			k := newLink(to.tun, l)
			l.links[Pair{from.name, to.name}], from.links[i] = k, k
		}
	}
	l.route()
	for _, p := range l.ports {
		l.work.Go(func() { l.carry(p) })
	}
	return l, nil
}

// route makes the table of who has which address.
func (l *Lan) route() {
	var routes [256]byte
	for i, p := range l.ports {
		routes[p.number] = byte(i + 1)
	}
	l.routes.Store(&routes)
}

// Renumber gives hosts other numbers, from 1 to 199, and with them other addresses, as pods get when they are made anew. A
// host may take the number of one that gets another at the same time. What listens or is connected there at the former address
// hears nothing any more.
func (l *Lan) Renumber(numbers map[string]int) error {
	l.renumber.Lock()
	defer l.renumber.Unlock()
	after := map[int]string{}
	for _, p := range l.ports {
		n, ok := numbers[p.name]
		if !ok {
			n = p.number
		}
		if other := after[n]; other != "" || ok && (n < 1 || n >= clientsNumber) {
			return fmt.Errorf("number %d for %s: it is taken by %q or out of range", n, p.name, other)
		}
		after[n] = p.name
	}
	for _, p := range l.ports {
		n, ok := numbers[p.name]
		if !ok || n == p.number {
			continue
		}
		old := p.number
		if err := l.hosts[p.name].run(func() error { return l.net.renumber("eth0", old, n) }); err != nil {
			return fmt.Errorf("renumber %s: %w", p.name, err)
		}
		p.number = n
	}
	l.route()
	return nil
}

// Readdress gives a host an address that nobody has, and that nobody had for as long as possible.
func (l *Lan) Readdress(node string) error {
	l.renumber.Lock()
	l.newest = max(l.newest, len(l.hosts))
	for routes, tries := l.routes.Load(), 0; tries == 0 || routes[l.newest] != 0 && tries < clientsNumber; tries++ {
		l.newest = l.newest%(clientsNumber-1) + 1
	}
	number := l.newest
	l.renumber.Unlock()
	return l.Renumber(map[string]int{node: number})
}

// ClientsAddress is the IP address of Clients.
func (l *Lan) ClientsAddress() string { return l.net.address(clientsNumber) }

// carry passes on what one host sends, until its device is closed.
func (l *Lan) carry(p *port) {
	buf := make([]byte, mtu+64)
	for {
		n, err := p.tun.Read(buf)
		if err != nil {
			return
		}
		to := l.routes.Load()[l.net.destination(buf[:n])]
		if to == 0 {
			continue
		}
		if k := p.links[to-1]; k != nil {
			k.send(buf[:n])
		}
	}
}

// Kind implements Network.
func (l *Lan) Kind() string { return "namespaces" }

// Place implements Network.
func (l *Lan) Place(node string) (Place, error) {
	h := l.hosts[node]
	if h == nil {
		return Place{}, fmt.Errorf("no host %q", node)
	}
	l.renumber.Lock()
	defer l.renumber.Unlock()
	for _, p := range l.ports {
		if p.name == node {
			host := l.net.address(p.number)
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
