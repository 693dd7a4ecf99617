package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// host is a network namespace with one device. It lives as long as its thread, or a
// process that was started in it.
type host struct {
	name string
	tun  *os.File
	work chan func() // done by the thread in the namespace
	done chan struct{}
	once sync.Once

	mu     sync.Mutex
	relays []*relay
}

// newHost makes the namespace of host number i.
func newHost(name string, i int) (*host, error) {
	h := &host{name: name, work: make(chan func()), done: make(chan struct{})}
	made := make(chan error)
	// Ends at close. The thread ends with it, since it is never unlocked: no other
	// goroutine must ever run in the namespace.
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			h.tun, err = newTun("eth0", i, mtu)
		}
		made <- err
		if err != nil {
			return
		}
		for {
			select {
			case f := <-h.work:
				f()
			case <-h.done:
				return
			}
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make the host %s: %w", name, err)
	}
	return h, nil
}

// run calls f in the namespace. A process that f starts is in it, and ends with the
// host if it asks for the death of its parent.
func (h *host) run(f func() error) error {
	result := make(chan error, 1)
	select {
	case h.work <- func() { result <- f() }:
		return <-result
	case <-h.done:
		return errors.New("the host is closed")
	}
}

// dial connects to an IP address from within the host.
func (h *host) dial(network, addr string) (conn net.Conn, err error) {
	err = h.run(func() error {
		// The socket is made by this thread: for a single address the dialer starts no goroutine.
		d := net.Dialer{Timeout: 3 * time.Second}
		conn, err = d.Dial(network, addr)
		return err
	})
	return conn, err
}

// expose passes streams to a port of the host on to the port of its loopback.
func (h *host) expose(ip, port string) error {
	var l net.Listener
	if err := h.run(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(ip, port))
		return err
	}); err != nil {
		return err
	}
	r := newRelay(l, func(net.Conn) (net.Conn, *gate, *gate, error) {
		other, err := h.dial("tcp", net.JoinHostPort("127.0.0.1", port))
		return other, nil, nil, err
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relays = append(h.relays, r)
	return nil
}

func (h *host) close() {
	h.once.Do(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, r := range h.relays {
			r.close()
		}
		close(h.done)
		h.tun.Close()
	})
}
