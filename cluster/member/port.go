package member

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// port is the gossip port, shared by lobby and memberlist. It is the transport
// memberlist is given; streams that open with the lobby's magic never get there.
type port struct {
	inner *memberlist.NetTransport
	ring  *ring
	lobby func(conn net.Conn, r *bufio.Reader)

	packets chan *memberlist.Packet
	streams chan net.Conn

	pumping sync.Once
	mu      sync.Mutex
	open    bool // memberlist listens to the channels
	closing bool
	done    chan struct{} // closed when closing begins
	drained chan struct{} // closed when the inner transport has ended
	work    sync.WaitGroup
	slots   chan struct{} // one for each stream whose first byte is awaited, or in the lobby
	states  chan struct{} // one for each stream that memberlist was handed
}

var _ memberlist.NodeAwareTransport = (*port)(nil)

const (
	streamsMax    = 64              // inbound streams not yet handed on
	streamTimeout = 2 * time.Second // for the first byte, and for a lobby exchange
	bindTries     = 10              // for a free port that is free for UDP too
)

// listen binds the port; nothing is received before start. lobby is called on a
// goroutine of its own for each lobby stream and closes nothing.
func listen(addr string, logger *log.Logger, keys *ring, lobby func(net.Conn, *bufio.Reader)) (*port, error) {
	host, number, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	p := &port{
		ring: keys, lobby: lobby, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		done: make(chan struct{}), drained: make(chan struct{}), slots: make(chan struct{}, streamsMax), states: make(chan struct{}, statesMax),
	}
	for range bindTries {
		p.inner, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{host}, BindPort: number, Logger: logger,
		})
		if err == nil || number != 0 {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen for gossip on %s: %w", addr, err)
	}
	return p, nil
}

// splitAddr splits host:port; the host is a literal address, "" meaning all
// interfaces.
func splitAddr(addr string) (host string, number int, err error) {
	host, s, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("gossip address %q: %w", addr, err)
	}
	if number, err = strconv.Atoi(s); err != nil || number < 0 || number > 65535 {
		return "", 0, fmt.Errorf("gossip address %q: bad port", addr)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	if net.ParseIP(host) == nil {
		ips, err := net.LookupIP(host)
		if err != nil || len(ips) == 0 {
			return "", 0, fmt.Errorf("gossip address %q: no such host: %w", addr, err)
		}
		host = ips[0].String()
	}
	return host, number, nil
}

// addr is where the port listens.
func (p *port) addr(host string) string {
	return net.JoinHostPort(host, strconv.Itoa(p.inner.GetAutoBindPort()))
}

func (p *port) start() { p.pumping.Do(func() { p.work.Go(p.pump) }) }

// pump takes everything the inner transport receives, so that it is never blocked when it
// has to end, until it has ended.
func (p *port) pump() {
	for {
		select {
		case packet := <-p.inner.PacketCh():
			var ok bool
			if packet.Buf, ok = p.ring.openPacket(packet.Buf, packet.From.String()); ok && p.isOpen() {
				select {
				case p.packets <- packet:
				case <-p.done:
				}
			}
		case conn := <-p.inner.StreamCh():
			p.accept(conn)
		case <-p.drained:
			return
		}
	}
}

func (p *port) isOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open && !p.closing
}

// accept finds out on a goroutine of its own whom a stream is for. Beyond streamsMax it is
// dropped.
func (p *port) accept(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		_ = conn.Close() // nothing was exchanged
		return
	}
	select {
	case p.slots <- struct{}{}:
		p.work.Go(func() {
			defer func() { <-p.slots }()
			p.sort(conn)
		})
	default:
		_ = conn.Close()
	}
}

func (p *port) sort(conn net.Conn) {
	r := bufio.NewReader(conn)
	_ = conn.SetDeadline(time.Now().Add(streamTimeout)) // fails only on a closed connection, as does the Peek
	first, err := r.Peek(1)
	switch {
	case err != nil:
		_ = conn.Close()
	case first[0] == lobbyMagic[0]:
		p.lobby(conn, r)
		_ = conn.Close()
	case !p.isOpen():
		_ = conn.Close()
	case first[0] == sealedFirst:
		sealed, err := p.ring.acceptSealed(conn, r)
		if err != nil {
			_ = conn.Close()
			return
		}
		p.hand(sealed)
	case p.ring.mode == EncryptionOn:
		_ = conn.Close()
	default:
		p.hand(&peekedConn{Conn: conn, r: r})
	}
}

// hand gives a stream to memberlist, within streamTimeout if it has many.
func (p *port) hand(conn net.Conn) {
	late := time.NewTimer(streamTimeout)
	defer late.Stop()
	select {
	case p.states <- struct{}{}:
	case <-late.C:
		_ = conn.Close()
		return
	case <-p.done:
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{}) // memberlist sets its own
	conn = bounded(conn, asked, func() { <-p.states })
	select {
	case p.streams <- conn:
	case <-p.done:
		_ = conn.Close()
	}
}

// dialled is the stream that memberlist gets for one to addr.
func (p *port) dialled(addr string, conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return conn, err
	}
	if p.ring.sealsTo(addr) {
		conn = p.ring.openSealed(conn)
	}
	return bounded(conn, answered, nil), nil
}

// packet is what is sent to addr in place of b.
func (p *port) packet(b []byte, addr string) []byte {
	if p.ring.sealsTo(addr) {
		return p.ring.sealPacket(b)
	}
	return b
}

// peekedConn is a connection whose first bytes are in r.
type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *peekedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// admit lets memberlist's traffic through.
func (p *port) admit() {
	p.mu.Lock()
	p.open = true
	p.mu.Unlock()
}

// FinalAdvertiseAddr implements memberlist.Transport. Package member always gives an
// address to advertise.
func (p *port) FinalAdvertiseAddr(ip string, number int) (net.IP, int, error) {
	return p.inner.FinalAdvertiseAddr(ip, number)
}

// WriteTo implements memberlist.Transport.
func (p *port) WriteTo(b []byte, addr string) (time.Time, error) {
	return p.inner.WriteTo(p.packet(b, addr), addr)
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (p *port) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return p.inner.WriteToAddress(p.packet(b, a.Addr), a)
}

// DialTimeout implements memberlist.Transport.
func (p *port) DialTimeout(addr string, d time.Duration) (net.Conn, error) {
	conn, err := p.inner.DialTimeout(addr, d)
	return p.dialled(addr, conn, err)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (p *port) DialAddressTimeout(a memberlist.Address, d time.Duration) (net.Conn, error) {
	conn, err := p.inner.DialAddressTimeout(a, d)
	return p.dialled(a.Addr, conn, err)
}

// PacketCh implements memberlist.Transport.
func (p *port) PacketCh() <-chan *memberlist.Packet { return p.packets }

// StreamCh implements memberlist.Transport.
func (p *port) StreamCh() <-chan net.Conn { return p.streams }

// Shutdown implements memberlist.Transport. It waits for all goroutines of the port and is safe
// twice.
func (p *port) Shutdown() error {
	p.mu.Lock()
	again := p.closing
	p.closing = true
	p.mu.Unlock()
	if again {
		p.work.Wait()
		return nil
	}
	close(p.done)
	p.start()
	err := p.inner.Shutdown()
	close(p.drained)
	p.work.Wait()
	return err
}
