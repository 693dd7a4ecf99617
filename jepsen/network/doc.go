// Package network is the network between the nodes under test, and between them and
// the clients: each ordered pair of hosts is a Link that can be cut, slowed down and
// made to lose packets while the run goes on.
//
// There are two kinds:
//
//   - Lan: each node is in a network namespace of its own with an address of its own, and
//     this process carries every IP packet between them. Whatever the nodes say to each
//     other passes through it, over TCP and UDP, and a harmed link looks to them as one
//     does: packets do not arrive. It needs root, or a kernel that lets users have
//     namespaces and /dev/net/tun.
//   - Proxies: the nodes are on loopback and are told addresses at which this process
//     listens and passes on what they say, for every ordered pair. It needs nothing. Streams can be
//     held up, but what was sent is not lost; a node's own kernel sees no harm.
//
// Duties of the caller, in order: Enter as the first thing of main or TestMain, Open,
// start the nodes through Run, harm links, Close.
package network
