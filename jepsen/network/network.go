package network

import (
	"errors"
	"fmt"
	"time"
)

// Clients is the host of the harness itself and of its clients.
const Clients = "clients"

// Link is the state of the way from one host to another. The zero value is sound.
type Link struct {
	// Cut drops everything.
	Cut bool
	// Delay is added to every packet, and a random part of Jitter on top.
	Delay, Jitter time.Duration
	// Loss is the part of packets that are dropped, 0 to 1. Proxies cannot drop a part of a
	// stream: they hold it up for a while instead.
	Loss float64
	// BytesPerSecond bounds what passes; 0: no bound. Packets wait, and are dropped when
	// too many do.
	BytesPerSecond int
}

func (l Link) sound() bool { return l == Link{} }

// String describes the link for reports.
func (l Link) String() string {
	switch {
	case l.Cut:
		return "cut"
	case l.sound():
		return "sound"
	}
	s := ""
	if l.Delay > 0 || l.Jitter > 0 {
		s = fmt.Sprintf(" delay %v+%v", l.Delay, l.Jitter)
	}
	if l.Loss > 0 {
		s += fmt.Sprintf(" loss %.0f%%", 100*l.Loss)
	}
	if l.BytesPerSecond > 0 {
		s += fmt.Sprintf(" %d kB/s", l.BytesPerSecond/1000)
	}
	return s[1:]
}

// Pair is an ordered pair of hosts.
type Pair struct{ From, To string }

// Network is a Lan or Proxies. Its methods may be called by any goroutine.
type Network interface {
	// Kind is "namespaces" or "proxies".
	Kind() string
	// Place tells how a node is started here.
	Place(node string) (Place, error)
	// Harm sets the state of links, in one direction each.
	Harm(pairs []Pair, l Link) error
	// Heal makes all links sound.
	Heal()
	// Packets returns what was carried and what was dropped since Open: packets of a Lan,
	// chunks of streams of Proxies.
	Packets() (carried, dropped uint64)
	// Close takes the network down. The nodes must have ended.
	Close() error
}

// Movable is a Network whose hosts can get other addresses.
type Movable interface {
	Network
	// Readdress gives the host of a node that does not run an address that no other has.
	Readdress(node string) error
}

// Place is where a node runs.
type Place struct {
	// Host is the IP address that the node listens on, all ports of which are its own; "":
	// loopback, at ports that are free.
	Host string
	// Run, when not nil, calls start so that the process it starts is in that place, and returns its
	// error.
	Run func(start func() error) error
	// Expose, when not nil, passes streams to a port of Host on to the same port of the place's
	// loopback, until Close: the node sees clients that come over the network as ones on its
	// own machine, as it wants them to be for the user guest.
	Expose func(port string) error
	// Advertise, when not nil, is told the address at which the node listens for other nodes, and
	// returns the one that they are to use.
	Advertise func(cluster string) (string, error)
}

// Open returns a Lan if this process can have one, else Proxies.
func Open(nodes []string) (Network, error) {
	if !Inside() {
		return OpenProxies(nodes)
	}
	lan, err := OpenLan(LanConfig{Nodes: nodes})
	if err == nil {
		return lan, nil
	}
	// There is a namespace without devices: nothing but loopback, which is down.
	if up := bringUp("lo"); up != nil {
		return nil, errors.Join(err, up)
	}
	return OpenProxies(nodes)
}
