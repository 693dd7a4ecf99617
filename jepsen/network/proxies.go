package network

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Proxies passes on the streams between nodes that run on loopback. Each node advertises
// a port at which this process listens. Who connects there is told by the kernel's table of
// sockets, so that each ordered pair of nodes has its own Link. Membership gossip is not
// proxied: it carries addresses only.
type Proxies struct {
	nodes []string
	gates map[Pair]*gate

	mu     sync.Mutex
	relays []*relay
}

// OpenProxies makes links between the nodes.
func OpenProxies(nodes []string) (*Proxies, error) {
	p := &Proxies{nodes: nodes, gates: map[Pair]*gate{}}
	for _, from := range nodes {
		for _, to := range nodes {
			if from != to {
				p.gates[Pair{from, to}] = newGate()
			}
		}
	}
	return p, nil
}

// Kind implements Network.
func (p *Proxies) Kind() string { return "proxies" }

// Place implements Network.
func (p *Proxies) Place(node string) (Place, error) {
	return Place{Advertise: func(cluster string) (string, error) { return p.listen(node, cluster) }}, nil
}

// listen makes the port at which others reach a node's address, and returns it.
func (p *Proxies) listen(node, addr string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r := newRelay(l, func(conn net.Conn) (net.Conn, *gate, *gate, error) {
		from, err := p.owner(conn.RemoteAddr(), conn.LocalAddr())
		if err != nil {
			return nil, nil, nil, err
		}
		other, err := net.DialTimeout("tcp", addr, 3*time.Second)
		return other, p.gates[Pair{from, node}], p.gates[Pair{node, from}], err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relays = append(p.relays, r)
	return l.Addr().String(), nil
}

// Harm implements Network. The links of Clients are not proxied.
func (p *Proxies) Harm(pairs []Pair, state Link) error {
	for _, pair := range pairs {
		g := p.gates[pair]
		if g == nil {
			return fmt.Errorf("no proxy from %q to %q", pair.From, pair.To)
		}
		g.set(state)
	}
	return nil
}

// Heal implements Network.
func (p *Proxies) Heal() {
	for _, g := range p.gates {
		g.set(Link{})
	}
}

// Packets implements Network: it counts the parts of streams that passed, and how often one was
// held up.
func (p *Proxies) Packets() (carried, dropped uint64) {
	for _, g := range p.gates {
		carried += g.carried.Load()
		dropped += g.held.Load()
	}
	return carried, dropped
}

// Close implements Network.
func (p *Proxies) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.relays {
		r.close()
	}
	return nil
}

// owner returns the node whose process has the socket with these addresses.
func (p *Proxies) owner(local, remote net.Addr) (string, error) {
	inode, err := socketInode(local, remote)
	if err != nil {
		return "", err
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return "", err
	}
	for _, dir := range processes {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // it has ended, or is not ours
		}
		node := p.named(string(line))
		if node != "" && hasSocket(dir, inode) {
			return node, nil
		}
	}
	return "", fmt.Errorf("no node has the socket %v", local)
}

// named returns the node whose command line it is, or "".
func (p *Proxies) named(line string) string {
	args := strings.Split(line, "\x00")
	for i, a := range args[:len(args)-1] {
		for _, n := range p.nodes {
			if a == "--node-id" && args[i+1] == n {
				return n
			}
		}
	}
	return ""
}

// hasSocket tells whether the process of a folder of /proc has a socket open.
func hasSocket(dir, inode string) bool {
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return false
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(dir, "fd", f.Name())); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

// socketInode finds a TCP socket of this machine by its addresses.
func socketInode(local, remote net.Addr) (string, error) {
	// The table is of a thread: the first one may be that of a Lan's host.
	f, err := os.Open("/proc/thread-self/net/tcp")
	if err != nil {
		return "", err
	}
	defer f.Close()
	want, err1 := hexAddr(local)
	peer, err2 := hexAddr(remote)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local remote state queues timers retransmits uid timeout inode
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && fields[1] == want && fields[2] == peer {
			return fields[9], nil
		}
	}
	return "", errors.Join(fmt.Errorf("no socket %v", local), lines.Err())
}

// hexAddr writes an IPv4 address as /proc/net/tcp does on little-endian machines.
func hexAddr(a net.Addr) (string, error) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.To4() == nil {
		return "", fmt.Errorf("%v is not an IPv4 address", a)
	}
	ip := tcp.IP.To4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], tcp.Port), nil
}
