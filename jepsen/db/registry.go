package db

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/warrenmq/warren/jepsen/network"
)

// systems are all there are.
var systems = map[string]func(network.Network, Options) (DB, error){
	"warren":   NewWarren,
	"rabbitmq": NewRabbitMQ,
}

// Options are what a system is made with.
type Options struct {
	// Nodes is the size of the cluster.
	Nodes int
	// Binary is the path of the node's binary, or of the folder that a system's packages are unpacked in, where
	// the system is not installed.
	Binary string
	// Dir is an existing folder for data and logs.
	Dir string
	// Failpoints says that the binary was built with the tag failpoints, and so can be broken from
	// within: without, Break, Arm, SetClock, SetForget and States answer ErrUnsupported.
	Failpoints bool
	// Env is added to the nodes' environment, as "NAME=value".
	Env []string
}

// Names returns the names of all systems.
func Names() []string { return slices.Sorted(maps.Keys(systems)) }

// New prepares a cluster of the system of that name without starting it.
func New(name string, net network.Network, opts Options) (DB, error) {
	prepare, known := systems[name]
	if !known {
		return nil, fmt.Errorf("no system %q: there are %s", name, strings.Join(Names(), ", "))
	}
	return prepare(net, opts)
}

// NodeNames returns the names of the nodes of a cluster of that size.
func NodeNames(nodes int) []string {
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node%d", i+1)
	}
	return names
}
