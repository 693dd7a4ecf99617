package network

import (
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// subnet is the network of a Lan: 10.77.NUMBER.0/24, or fd77:0:0:NUMBER::/64.
type subnet struct {
	number byte
	v6     bool
}

// address returns the address of host number i, from 1 to 254.
func (s subnet) address(i int) string {
	if s.v6 {
		return net.IP(s.v6Address(i)).String()
	}
	return fmt.Sprintf("10.77.%d.%d", s.number, i)
}

func (s subnet) v6Address(i int) []byte {
	return []byte{0xfd, 0x77, 0, 0, 0, 0, 0, s.number, 0, 0, 0, 0, 0, 0, 0, byte(i)}
}

// destination returns the last byte of a packet's destination, 0 if that is not in the subnet.
func (s subnet) destination(packet []byte) byte {
	switch {
	case s.v6:
		if len(packet) < 40 || packet[0]>>4 != 6 || string(packet[24:39]) != string(s.v6Address(0)[:15]) {
			return 0
		}
		return packet[39]
	case len(packet) < 20 || packet[0]>>4 != 4 || packet[16] != 10 || packet[17] != 77 || packet[18] != s.number:
		return 0
	}
	return packet[19]
}

// configure gives a device its address and brings it and loopback up.
func (s subnet) configure(device string, i int) error {
	err := errors.Join(
		bringUp("lo"),
		control(device, unix.SIOCSIFMTU, number(mtu)),
		control(device, unix.SIOCSIFTXQLEN, number(backlog)),
	)
	if s.v6 {
		// Addresses of IPv6 are kept only by devices that are up.
		return errors.Join(err, bringUp(device), s.v6Control(device, unix.SIOCSIFADDR, i))
	}
	return errors.Join(err, s.v4Control(device, i), bringUp(device))
}

// renumber replaces a device's address.
func (s subnet) renumber(device string, from, to int) error {
	if s.v6 {
		return errors.Join(s.v6Control(device, unix.SIOCDIFADDR, from), s.v6Control(device, unix.SIOCSIFADDR, to))
	}
	return s.v4Control(device, to)
}

// v4Control sets the one address of IPv4.
func (s subnet) v4Control(device string, i int) error {
	return errors.Join(
		control(device, unix.SIOCSIFADDR, inet(10, 77, s.number, byte(i))),
		control(device, unix.SIOCSIFNETMASK, inet(255, 255, 255, 0)),
	)
}

// v6Control adds or removes an address of IPv6.
func (s subnet) v6Control(device string, request uintptr, i int) error {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return fmt.Errorf("configure %s: %w", device, err)
	}
	// As struct in6_ifreq of the kernel.
	req := struct {
		addr   [16]byte
		prefix uint32
		index  int32
	}{[16]byte(s.v6Address(i)), 64, int32(dev.Index)}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("configure %s: %w", device, err)
	}
	defer unix.Close(fd) //nolint:errcheck // a socket that was never connected
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return fmt.Errorf("configure %s (request %#x): %w", device, request, errno)
	}
	if request == unix.SIOCSIFADDR {
		return s.awaitV6(i)
	}
	return nil
}

// awaitV6 waits until a new address can be bound: the kernel makes it valid a moment later.
func (s subnet) awaitV6(i int) error {
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := net.ListenPacket("udp6", net.JoinHostPort(s.address(i), "0"))
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return fmt.Errorf("use %s: %w", s.address(i), err)
		}
	}
}
