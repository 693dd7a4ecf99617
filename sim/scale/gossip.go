package scale

import (
	"errors"
	"io"
	"log"
	"math"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// gossipFormula is what memberlist's settings say of n idle members: packets a second that a node sends, and rounds of
// push and pull a second that it begins. Each member probes one other per ProbeInterval and answers one probe in the
// mean; gossip itself sends nothing while there is no news; above 32 members push and pull become rarer.
func gossipFormula(n int) (packets, pulls float64) {
	c := memberlist.DefaultLANConfig() // as package member configures it
	if n < 2 {
		return 0, 0
	}
	scale := 1.0
	if n > 32 {
		scale = math.Ceil(math.Log2(float64(n))-math.Log2(32)) + 1
	}
	return 2 / c.ProbeInterval.Seconds(), 1 / (scale * c.PushPullInterval.Seconds())
}

// newsFormula is how many packets a piece of news costs the cluster at most: each member passes it on
// RetransmitMult * ceil(log10(n+1)) times.
func newsFormula(n int) int {
	c := memberlist.DefaultLANConfig()
	return n * c.RetransmitMult * int(math.Ceil(math.Log10(float64(n+1))))
}

// gossipNet connects real memberlists in memory and counts. Its time is that of the bubble it is used in.
type gossipNet struct {
	mu    sync.Mutex
	nodes map[string]*gossipPort

	packets, packetBytes, streams, streamBytes atomic.Int64
}

type gossipPort struct {
	n       *gossipNet
	addr    gossipAddr
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
	once    sync.Once
}

type gossipAddr string

func (gossipAddr) Network() string  { return "memory" }
func (a gossipAddr) String() string { return string(a) }

func (n *gossipNet) open(i int) *gossipPort {
	p := &gossipPort{
		n: n, addr: gossipAddr(net.JoinHostPort("10.0.0."+strconv.Itoa(i), "7946")),
		packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn, 64), done: make(chan struct{}),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[p.addr.String()] = p
	return p
}

func (n *gossipNet) at(addr string) *gossipPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[addr]
}

func (p *gossipPort) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	host, port, err := net.SplitHostPort(p.addr.String())
	if err != nil {
		return nil, 0, err
	}
	number, err := strconv.Atoi(port)
	return net.ParseIP(host), number, err
}

func (p *gossipPort) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	p.n.packets.Add(1)
	p.n.packetBytes.Add(int64(len(b)))
	if to := p.n.at(addr); to != nil {
		select {
		case to.packets <- &memberlist.Packet{Buf: b, From: p.addr, Timestamp: now}:
		case <-to.done:
		default: // as UDP does
		}
	}
	return now, nil
}

func (p *gossipPort) PacketCh() <-chan *memberlist.Packet { return p.packets }
func (p *gossipPort) StreamCh() <-chan net.Conn           { return p.streams }

func (p *gossipPort) DialTimeout(addr string, _ time.Duration) (net.Conn, error) {
	to := p.n.at(addr)
	if to == nil {
		return nil, errors.New("refused")
	}
	p.n.streams.Add(1)
	a, b := net.Pipe()
	select {
	case to.streams <- gossipConn{b, p.n}:
		return gossipConn{a, p.n}, nil
	case <-to.done:
		return nil, errors.New("refused")
	}
}

func (p *gossipPort) Shutdown() error {
	p.n.mu.Lock()
	delete(p.n.nodes, p.addr.String())
	p.n.mu.Unlock()
	p.once.Do(func() { close(p.done) })
	return nil
}

type gossipConn struct {
	net.Conn
	n *gossipNet
}

func (c gossipConn) Write(b []byte) (int, error) {
	c.n.streamBytes.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// gossipRun is what real memberlists did.
type gossipRun struct {
	Nodes                    int
	Packets, PacketBytes     float64 // of a node in a second while nothing changes
	Pulls, PullBytes         float64 // the same; bytes of both ways
	NewsPackets              int64   // of all, beyond the idle ones, in the time from a crash until all know it
	NewsAfter                time.Duration
	everyoneKnew, tooFewMade bool
}

// runGossip runs n real memberlists for some virtual minutes. It must be called in a bubble.
func runGossip(n int, idle time.Duration) (g gossipRun, err error) {
	g.Nodes = n
	network := &gossipNet{nodes: map[string]*gossipPort{}}
	var lists []*memberlist.Memberlist
	defer func() {
		for _, l := range lists {
			err = errors.Join(err, l.Shutdown())
		}
		time.Sleep(time.Minute) // probes under way end
	}()
	for i := range n {
		c := memberlist.DefaultLANConfig()
		c.Name, c.Label, c.Transport = string(nodeName(i))+"#1", rigCluster, network.open(i+1)
		c.Delegate = gossipMeta{}
		c.Logger = log.New(io.Discard, "", 0)
		l, err := memberlist.Create(c)
		if err != nil {
			return g, err
		}
		lists = append(lists, l)
		if i > 0 {
			if _, err := l.Join([]string{"10.0.0.1:7946"}); err != nil {
				return g, err
			}
		}
	}
	// Gossip passes a piece of news on a bounded number of times, so somebody may miss one. What is missed comes with a pull, a minute later or
	// two where there are many.
	for range 5 {
		time.Sleep(time.Minute)
		g.tooFewMade = false
		for _, l := range lists {
			g.tooFewMade = g.tooFewMade || l.NumMembers() != n
		}
		if !g.tooFewMade {
			break
		}
	}
	read := func() [4]float64 {
		return [4]float64{float64(network.packets.Load()), float64(network.packetBytes.Load()), float64(network.streams.Load()), float64(network.streamBytes.Load())}
	}
	before := read()
	time.Sleep(idle)
	after := read()
	per := idle.Seconds() * float64(n)
	g.Packets, g.PacketBytes = (after[0]-before[0])/per, (after[1]-before[1])/per
	g.Pulls, g.PullBytes = (after[2]-before[2])/per, (after[3]-before[3])/per

	sent, began := network.packets.Load(), time.Now()
	err = lists[n-1].Shutdown()
	lists = lists[:n-1]
	for !g.everyoneKnew && time.Since(began) < 5*time.Minute {
		time.Sleep(100 * time.Millisecond)
		g.everyoneKnew = true
		for _, l := range lists {
			g.everyoneKnew = g.everyoneKnew && l.NumMembers() == n-1
		}
	}
	g.NewsAfter = time.Since(began)
	g.NewsPackets = network.packets.Load() - sent - int64(g.Packets*g.NewsAfter.Seconds()*float64(n-1))
	return g, err
}

// gossipMeta tells as much as a node does (package member).
type gossipMeta struct{}

func (gossipMeta) NodeMeta(int) []byte             { return make([]byte, 200) }
func (gossipMeta) NotifyMsg([]byte)                {}
func (gossipMeta) GetBroadcasts(int, int) [][]byte { return nil }
func (gossipMeta) LocalState(bool) []byte          { return nil }
func (gossipMeta) MergeRemoteState([]byte, bool)   {}
