package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the range that the kernel gives to outgoing
// connections, so that none of those can take a node's port while it is down.
const (
	portMin = 20000
	portMax = 32000
)

// given are the ports that this process has handed out. A port of a node that is down looks free, and
// to try whether it is takes it for a moment from a node that is being started.
var given struct {
	sync.Mutex
	ports map[int]bool
	// blocks are the ports that no other process of tests gives to its nodes, by their first.
	blocks []int
	locks  []net.Listener
}

// blockSize is how many ports a process takes for itself at a time.
const blockSize = 200

// reserve takes one more block, as long as there is one: another process's nodes that are down have not left their ports. A name
// of a Unix socket that is in no folder is the lock. It belongs to the network namespace, as ports do, and goes with the process.
func reserve() {
	for _, n := range rand.Perm((portMax - portMin) / blockSize) {
		first := portMin + n*blockSize
		l, err := net.Listen("unix", fmt.Sprintf("@warren-test-ports-%d", first))
		if err == nil {
			given.blocks, given.locks = append(given.blocks, first), append(given.locks, l)
			return
		}
	}
}

// candidate is a port of this process's blocks, or any if others have them all.
func candidate() int {
	if len(given.blocks) == 0 {
		return portMin + rand.IntN(portMax-portMin)
	}
	return given.blocks[rand.IntN(len(given.blocks))] + rand.IntN(blockSize)
}

// givenMax is how many ports are remembered; the clusters that had the first of so many are long gone.
const givenMax = (portMax - portMin) * 3 / 4

// freePorts returns n different ports of 127.0.0.1 that were free, for TCP and
// UDP, when it looked, and that it has not returned before.
func freePorts(n int) ([]int, error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil || len(given.ports)+n > givenMax {
		given.ports = map[int]bool{}
	}
	for len(given.ports)+n > len(given.blocks)*blockSize*3/4 {
		before := len(given.blocks)
		if reserve(); len(given.blocks) == before {
			break // others have the rest
		}
	}
	var ports []int
	for range 200 * n {
		if len(ports) == n {
			return ports, nil
		}
		port := candidate()
		if given.ports[port] || !free(port) {
			continue
		}
		given.ports[port] = true
		ports = append(ports, port)
	}
	return nil, errors.New("too few free ports")
}

// FreePorts returns n ports of 127.0.0.1 for more listeners of nodes, as those of a Cluster are chosen.
func FreePorts(n int) ([]int, error) { return freePorts(n) }

func free(port int) bool {
	addr := loopback(port)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	defer u.Close()
	return true
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Addrs are the addresses one node listens on, host:port.
type Addrs struct{ AMQP, HTTP, GRPC, Cluster, Gossip string }

// addrsAt returns addresses for a node: the default ports of a host of its own, or
// free ports of loopback for host "".
func addrsAt(host string) (Addrs, error) {
	if host != "" {
		at := func(port string) string { return net.JoinHostPort(host, port) }
		return Addrs{at("5672"), at("15672"), at("5680"), at("5681"), at("5682")}, nil
	}
	p, err := freePorts(5)
	if err != nil {
		return Addrs{}, fmt.Errorf("choose ports: %w", err)
	}
	return Addrs{loopback(p[0]), loopback(p[1]), loopback(p[2]), loopback(p[3]), loopback(p[4])}, nil
}
