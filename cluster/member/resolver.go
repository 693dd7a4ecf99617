package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Times of looking names up.
const (
	lookupInterval = time.Second      // between two lookups of a name, at least
	lookupTimeout  = 20 * time.Second // for one: resolvers ask several servers under several names, 5 s each
	lookupWait     = 200 * time.Millisecond
	lookupIPsMax   = 256 // of one name; more are left out
)

// resolver looks the configured names up, again and again, each for itself and without anybody waiting for a slow one: an answer counts
// from when it comes. What a name stood for last goes on while its server fails, until it is said that there is no such name.
type resolver struct {
	log     *slog.Logger
	resolve func(ctx context.Context, host string) ([]string, error)
	ctx     context.Context // ends at Close
	work    *sync.WaitGroup
	news    func() // there are addresses that were not there before

	mu    sync.Mutex
	known map[string]*lookedUp
}

// lookedUp is a name. resolver.mu guards it.
type lookedUp struct {
	ips   []string
	said  string        // how the last lookup ended, for the log
	began time.Time     // of the last lookup
	done  chan struct{} // closed when that has ended
}

// lookup returns what the hosts stand for as far as it is known, after at most lookupWait.
func (r *resolver) lookup(hosts []string) map[string][]string {
	var pending []chan struct{}
	r.mu.Lock()
	for _, h := range hosts {
		l := r.known[h]
		if l == nil {
			l = &lookedUp{done: make(chan struct{})}
			close(l.done)
			r.known[h] = l
		}
		select {
		case <-l.done:
			if time.Since(l.began) < lookupInterval || r.ctx.Err() != nil {
				continue
			}
			l.began, l.done = time.Now(), make(chan struct{})
			r.work.Go(func() { r.ask(h, l) })
		default:
		}
		pending = append(pending, l.done)
	}
	r.mu.Unlock()
	patience := time.NewTimer(lookupWait)
	defer patience.Stop()
	for _, done := range pending {
		select {
		case <-done:
			continue
		case <-patience.C:
		case <-r.ctx.Done():
		}
		break
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string][]string, len(hosts))
	for _, h := range hosts {
		out[h] = r.known[h].ips
	}
	return out
}

// ask looks one name up.
func (r *resolver) ask(host string, l *lookedUp) {
	ctx, cancel := context.WithTimeout(r.ctx, lookupTimeout)
	defer cancel()
	ips, err := r.resolve(ctx, host)
	slices.Sort(ips)
	ips = slices.Compact(ips)
	ips = ips[:min(len(ips), lookupIPsMax)]
	r.mu.Lock()
	defer r.mu.Unlock()
	close(l.done)
	said := fmt.Sprint(ips)
	if err != nil {
		said = err.Error()
		ips = l.ips
		if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
			ips = nil
		}
	}
	if said != l.said && r.ctx.Err() == nil {
		l.said = said
		if err != nil {
			r.log.Info("a join address was not resolved", "host", host, "err", err)
		} else {
			r.log.Info("a join address was resolved", "host", host, "addrs", ips)
		}
	}
	fresh := slices.ContainsFunc(ips, func(ip string) bool { return !slices.Contains(l.ips, ip) })
	l.ips = ips
	if fresh {
		r.news()
	}
}

// canonical writes an address in the one way in which addresses are compared. Names stay.
func canonical(addr string) string {
	if a, err := netip.ParseAddrPort(addr); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
	}
	return addr
}

// outwards returns the address of this machine from which it would reach others: that of the way to everywhere, else
// of any network that it is on; IPv4 first. "" if there is none but loopback. Nothing is sent.
func outwards() string {
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} { // addresses for documentation, nobody's
		conn, err := net.Dial("udp", to)
		if err != nil {
			continue
		}
		from, err := netip.ParseAddrPort(conn.LocalAddr().String())
		_ = conn.Close() // nothing was sent
		if err == nil && from.Addr().Unmap().IsGlobalUnicast() {
			return from.Addr().Unmap().String()
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	var ips []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap().IsGlobalUnicast() {
			ips = append(ips, p.Addr().Unmap())
		}
	}
	if len(ips) == 0 {
		return ""
	}
	return slices.MinFunc(ips, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() }).String()
}
