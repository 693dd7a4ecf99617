package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// mtu is above Ethernet's, so that fewer packets must be carried for the same bytes.
	mtu = 9000
	// backlog is how many packets a device keeps that this process has not read yet.
	backlog = 4096
)

// newTun makes a device in the network namespace of the calling thread, with the
// address of host i in the network of all hosts, and brings it up. Each read of the
// file is a packet that the host sends, each write one that it gets.
func newTun(name string, s subnet, i int) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	file := func() error {
		req, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return fmt.Errorf("make the device %s: %w", name, err)
		}
		return s.configure(name, i)
	}
	if err := file(); err != nil {
		_ = unix.Close(fd) // nothing was done with it
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// bringUp brings a device of the calling thread's namespace up.
func bringUp(device string) error {
	return control(device, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return nil
	})
}

// control does one request to a device of the calling thread's namespace.
func control(device string, request uint, set func(*unix.Ifreq) error) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("configure %s: %w", device, err)
	}
	defer unix.Close(s) //nolint:errcheck // a socket that was never connected
	req, err := unix.NewIfreq(device)
	if err == nil {
		err = set(req)
	}
	if err == nil {
		err = unix.IoctlIfreq(s, request, req)
	}
	if err != nil {
		return fmt.Errorf("configure %s (request %#x): %w", device, request, err)
	}
	return nil
}

func number(n uint32) func(*unix.Ifreq) error {
	return func(r *unix.Ifreq) error { r.SetUint32(n); return nil }
}

func inet(a ...byte) func(*unix.Ifreq) error {
	return func(r *unix.Ifreq) error { return r.SetInet4Addr(a) }
}
