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

// newHost makes the namespace of host number i. Its processes find resolvConf in /etc/resolv.conf, unless that is "".
func newHost(name string, s subnet, i int, resolvConf string) (*host, error) {
	h := &host{name: name, work: make(chan func()), done: make(chan struct{})}
	made := make(chan error)
	// Ends at close. The thread ends with it, since it is never unlocked: no other
	// goroutine must ever run in the namespace.
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			h.tun, err = newTun("eth0", s, i)
		}
		if err == nil && resolvConf != "" {
			if err = resolveBy(resolvConf); err != nil {
				err = errors.Join(err, h.tun.Close())
			}
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

// resolveBy has the calling thread, and what is started by it, find text in /etc/resolv.conf.
func resolveBy(text string) error {
	f, err := os.CreateTemp("", "warren-resolv-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // mounted, it lives on; what stays is a small file in the folder for such
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Nothing that is mounted here is to be seen elsewhere.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	if err := unix.Mount(f.Name(), "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /etc/resolv.conf: %w", err)
	}
	return nil
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
