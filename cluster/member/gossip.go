package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sync/errgroup"
)

// Config describes a Gossip.
type Config struct {
	// Node is this node's identity; required.
	Node NodeID
	// Boot counts the starts of this node's process; it must grow with each.
	Boot uint64
	// Bind is the gossip address to listen on, host:port; required. Port 0 takes any.
	Bind string
	// Advertise is the host others should use, "" to find out: the host of Bind, or
	// the address from which this machine reaches others.
	Advertise string
	// ClusterAddr is where this node's mesh listens, as others reach it; required. Its host
	// may be unspecified.
	ClusterAddr string
	// Join are gossip addresses, host:port, of any nodes; names may resolve to
	// several, and this node's own may be among them. Names are looked up again while the node looks for others.
	Join []string
	// BookPath is the file of the address book, "" for none.
	BookPath string
	// Belongs tells whether a node is in the cluster's catalog, for a book that is full; nil: none is known to be. It must be quick.
	Belongs func(NodeID) bool
	// ClusterName is what operators call the cluster. In the lobby a node does not hear another one that has another name; "" has none.
	ClusterName string
	// Encryption says what is sealed, nothing if "". Keys are those to begin with, needed unless it is off; see
	// ParseKeys and Gossip.SetKeys.
	Encryption Encryption
	Keys       [][]byte
	// Logger may be nil.
	Logger *slog.Logger
	// Resolve looks up a host name; the system's resolver if nil.
	Resolve func(ctx context.Context, host string) ([]string, error)
}

// Times of looking for others.
const (
	lobbyInterval = 200 * time.Millisecond // between rounds of lobby questions
	aloneInterval = 300 * time.Millisecond // between attempts to join while alone
	joinInterval  = 10 * time.Second       // the same in company; heals a split of the gossip
	joinsMax      = 16                     // attempts to join at a time
	leaveWait     = 250 * time.Millisecond // for the news of leaving to spread
	advertiseWait = 5 * time.Second        // for the address of the advertised name
)

// Gossip is a node's membership. All methods are safe for concurrent use. Goroutines
// end at Close.
type Gossip struct {
	cfg     Config
	log     *slog.Logger
	stdlog  *log.Logger // for memberlist
	port    *port
	ring    *ring
	lobby   lobby
	names   *resolver
	book    *book
	roster  roster
	ip      string // advertised host
	changed chan struct{}

	mu        sync.Mutex
	info      Info
	list      *memberlist.Memberlist // nil before SetCluster
	listeners []func()

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	wake   chan struct{} // seek should look; capacity 1
	work   sync.WaitGroup
	closed sync.Once
}

// Open binds the gossip port and starts to look for others in the lobby.
func Open(cfg Config) (*Gossip, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Resolve == nil {
		cfg.Resolve = net.DefaultResolver.LookupHost
	}
	g := &Gossip{
		cfg: cfg, log: cfg.Logger, lobby: lobby{heard: make(map[NodeID]heard)},
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1),
	}
	for _, a := range cfg.Join {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, fmt.Errorf("join address %q: %w", a, err)
		}
	}
	var err error
	if g.book, err = openBook(cfg.BookPath, g.belongs); errors.Is(err, errBook) {
		g.log.Warn("the node begins without an address book; if it does not find the others, give their addresses by --join", "err", err)
	} else if err != nil {
		return nil, err
	}
	g.stdlog = slog.NewLogLogger(levelHandler{cfg.Logger.Handler()}, slog.LevelDebug)
	if g.ring, err = newRing(cfg.Encryption, cfg.Keys); err != nil {
		return nil, err
	}
	if g.port, err = listen(cfg.Bind, g.stdlog, g.ring, g.answerLobby); err != nil {
		return nil, err
	}
	g.ip = g.advertised()
	g.info = Info{
		Node: cfg.Node, Boot: cfg.Boot,
		ClusterAddr: withHost(cfg.ClusterAddr, g.ip), GossipAddr: g.port.addr(g.ip), ClusterName: cfg.ClusterName,
	}
	if _, err := encodeMeta(g.info); err != nil {
		return nil, errors.Join(err, g.port.Shutdown())
	}
	if err := g.info.validate(); err != nil {
		return nil, errors.Join(fmt.Errorf("this node's own info: %w", err), g.port.Shutdown())
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.names = &resolver{log: g.log, resolve: cfg.Resolve, ctx: g.ctx, work: &g.work, news: g.look, known: map[string]*lookedUp{}}
	g.port.start()
	g.work.Go(g.seek)
	g.work.Go(g.tell)
	return g, nil
}

// belongs tells whether a node is a member, or is known to be one that is away.
func (g *Gossip) belongs(id NodeID) bool {
	return id == g.cfg.Node || g.roster.has(id) || g.cfg.Belongs != nil && g.cfg.Belongs(id)
}

// advertised returns the host to tell others.
func (g *Gossip) advertised() string {
	return cmp.Or(g.cfg.Advertise, g.bound())
}

// bound returns the address from which this node is heard by others, if nothing lies between.
func (g *Gossip) bound() string {
	host, _, err := splitAddr(g.cfg.Bind)
	if err == nil && !net.ParseIP(host).IsUnspecified() {
		return host
	}
	return cmp.Or(outwards(), "127.0.0.1")
}

// advertisedIP returns the address to tell others, where they need one and a name may be advertised. While nobody knows what the name stands for it is
// the one from which the node is heard: others look the name up themselves, and a node need not wait for a name server to run.
func (g *Gossip) advertisedIP() string {
	if net.ParseIP(g.ip) != nil {
		return g.ip
	}
	ctx, cancel := context.WithTimeout(g.ctx, advertiseWait)
	defer cancel()
	ips, err := g.cfg.Resolve(ctx, g.ip)
	for _, v4 := range []bool{true, false} {
		for _, s := range ips {
			if ip := net.ParseIP(s); ip != nil && (ip.To4() != nil) == v4 {
				return s
			}
		}
	}
	g.log.Warn("the advertised host was not resolved", "host", g.ip, "err", err, "in its place", g.bound())
	return g.bound()
}

// self returns this node's info.
func (g *Gossip) self() Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.info
}

// Self returns what this node tells about itself.
func (g *Gossip) Self() Info { return g.self() }

// Visitors returns the nodes that were heard of in the lobby within the last seconds, with
// and without a cluster. The addresses are hints: ask the nodes themselves before
// deciding anything.
func (g *Gossip) Visitors() []Info { return g.lobby.infos(false) }

// Members returns the live members of the cluster as gossip sees them, this node
// included; nil before SetCluster.
func (g *Gossip) Members() []Info {
	g.mu.Lock()
	list := g.list
	g.mu.Unlock()
	if list == nil {
		return nil
	}
	newest := g.roster.newest()
	out := make([]Info, 0, len(newest))
	for _, i := range newest {
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(string(a.Node), string(b.Node)) })
	return out
}

// Resolve returns the address of a node's mesh as it was last heard of, alive or
// not. It has the form of transport.Config.Resolve.
func (g *Gossip) Resolve(id NodeID) (addr string, ok bool) {
	i, ok := g.book.lookup(id)
	return i.ClusterAddr, ok
}

// OnChange adds a listener for changes of Members, Visitors and addresses. It runs on one
// goroutine; several changes may come as one.
func (g *Gossip) OnChange(f func()) {
	g.mu.Lock()
	g.listeners = append(g.listeners, f)
	g.mu.Unlock()
	g.notify()
}

func (g *Gossip) notify() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// tell runs listeners and keeps the book's file until Close.
func (g *Gossip) tell() {
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.changed:
		}
		if id := g.self().ClusterID; id != "" {
			if err := g.book.save(id); err != nil {
				g.log.Warn("the address book was not saved", "err", err)
			}
		}
		g.mu.Lock()
		listeners := slices.Clone(g.listeners)
		g.mu.Unlock()
		for _, f := range listeners {
			f()
		}
	}
}

// SetCluster tells the node's cluster and starts gossip in it. Further calls with the
// same id do nothing, with another one they fail.
func (g *Gossip) SetCluster(id string) error {
	ip := g.advertisedIP()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case id == "" || len(id) > idBytesMax:
		return fmt.Errorf("cluster id %.*q cannot be used", idBytesMax, id)
	case g.info.ClusterID == id:
		return nil
	case g.info.ClusterID != "":
		return fmt.Errorf("node belongs to cluster %s, not to %s", g.info.ClusterID, id)
	case g.ctx.Err() != nil:
		return errors.New("gossip closed")
	}
	info := g.info
	info.ClusterID = id
	d, err := newDelegate(g, info)
	if err != nil {
		return err
	}
	g.port.admit()
	list, err := memberlist.Create(g.listConfig(info, ip, d))
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	g.info, g.list = info, list
	g.look()
	return nil
}

// look has seek look for others now.
func (g *Gossip) look() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// listConfig is memberlist's configuration. The name is of this start of the process: a node that
// comes back at another address is a new member, so that nothing has to wait
// until its former address is declared dead.
func (g *Gossip) listConfig(info Info, ip string, d *delegate) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = string(info.Node) + "#" + strconv.FormatUint(info.Boot, 10)
	c.Label = info.ClusterID
	c.Transport = g.port
	_, number, _ := net.SplitHostPort(info.GossipAddr) // made by port.addr
	c.AdvertiseAddr = ip
	c.AdvertisePort, _ = strconv.Atoi(number) // made by port.addr
	c.TCPTimeout = 2 * time.Second
	c.UDPBufferSize -= len(packetHead) + sealOverhead
	c.EnableCompression = false       // a ping has a hundred bytes: it gets no shorter, and compressing was half of an idle node's garbage
	c.ProbeInterval = 2 * time.Second // nothing is decided by it, see package detector
	c.Logger = g.stdlog
	c.Delegate, c.Events, c.Merge, c.Alive = d, d, d, d
	return c
}

// seek looks for others until Close: in the lobby while there is no cluster, then by
// joining its gossip.
func (g *Gossip) seek() {
	for {
		wait := lobbyInterval
		g.mu.Lock()
		list, cluster := g.list, g.info.ClusterID
		g.mu.Unlock()
		addrs := g.targets(cluster)
		if list == nil {
			g.askAll(addrs)
		} else {
			wait = g.join(list, addrs)
		}
		t := time.NewTimer(wait)
		select {
		case <-g.ctx.Done():
			t.Stop()
			return
		case <-g.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// targets returns the gossip addresses to try: the configured ones, names resolved, and those of nodes
// heard of.
func (g *Gossip) targets(cluster string) []string {
	self := g.self()
	var out []string
	add := func(addr string) {
		if addr = canonical(addr); addr != canonical(self.GossipAddr) && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	var hosts []string
	for _, a := range g.cfg.Join {
		if host, _, _ := net.SplitHostPort(a); net.ParseIP(host) == nil { // checked by Open
			hosts = append(hosts, host)
		}
	}
	ips := g.names.lookup(hosts)
	for _, a := range g.cfg.Join {
		host, number, _ := net.SplitHostPort(a)
		if net.ParseIP(host) != nil {
			add(a)
		}
		for _, ip := range ips[host] {
			add(net.JoinHostPort(ip, number))
		}
	}
	for _, i := range g.lobby.infos(false) {
		if cluster == "" || i.ClusterID == cluster {
			add(i.GossipAddr)
		}
	}
	if cluster != "" {
		for _, i := range g.book.all(cluster) {
			if i.Node != self.Node {
				add(i.GossipAddr)
			}
		}
	}
	return out
}

// askAll asks everybody at once.
func (g *Gossip) askAll(addrs []string) {
	var all sync.WaitGroup
	for _, a := range addrs {
		all.Go(func() {
			if err := g.askLobby(g.ctx, a); err != nil {
				g.log.Debug("nobody answers in the lobby", "addr", a, "err", err)
			}
		})
	}
	all.Wait()
}

// join tries the addresses that are no live member's, side by side, since one at which nobody is may take seconds, and returns how
// long to wait before the next time.
func (g *Gossip) join(list *memberlist.Memberlist, addrs []string) time.Duration {
	live := g.roster.addrs()
	var all errgroup.Group
	all.SetLimit(joinsMax)
	for _, a := range addrs {
		if live[a] || g.ctx.Err() != nil {
			continue
		}
		all.Go(func() error {
			if _, err := list.Join([]string{a}); err != nil {
				g.log.Debug("a gossip address was not joined", "addr", a, "err", err)
			} else if g.ring.mode == EncryptionOn {
				// One that accepts seals to who has sealed a packet, and this one hears nothing else: not the news of the next seconds
				// either, if it came to speak only with its first probe.
				_ = list.SendToAddress(memberlist.Address{Addr: a}, nil)
			}
			return nil
		})
	}
	_ = all.Wait() // always nil
	if list.NumMembers() > 1 {
		return joinInterval
	}
	return aloneInterval
}

// SetKeys replaces the keys at once: the first seals, all open.
func (g *Gossip) SetKeys(keys [][]byte) error {
	if g.ring.mode == EncryptionOff {
		return errors.New("gossip is not encrypted")
	}
	return g.ring.set(keys)
}

// KeyStats are figures about keys.
type KeyStats struct {
	Mode         Encryption
	Fingerprints []string // of the keys, the one that seals first
	Unopened     uint64   // packets, records and lobby messages that no key has opened
}

// KeyStats returns the figures.
func (g *Gossip) KeyStats() KeyStats {
	return KeyStats{Mode: g.ring.mode, Fingerprints: g.ring.fingerprints(), Unopened: g.ring.unopened.Load()}
}

// Close leaves the gossip and releases the port. It is safe twice.
func (g *Gossip) Close() error {
	var err error
	g.closed.Do(func() {
		g.mu.Lock()
		g.cancel()
		list := g.list
		g.mu.Unlock()
		g.work.Wait()
		if list != nil {
			if e := list.Leave(leaveWait); e != nil {
				g.log.Debug("the news of leaving did not spread", "err", e)
			}
			err = list.Shutdown()
		}
		err = errors.Join(err, g.port.Shutdown())
	})
	return err
}
