// Package contain keeps a fault of this program from ending the node when a single client has met it: a panic in the work for one connection, call or request
// ends that, and the node goes on. A client that comes back would else end one node after the other.
//
// A panic leaves what it was changing half changed. So it is contained only where that is the client's own:
//
//   - A panic that has passed through the code on which guarantees rest (Core) ends the process, as it would without this package.
//   - A lock that was left held would stop whoever needs it. After each contained panic all locks are tried that others share (Locks); one that does not
//     become free ends the process.
//
// See docs/adr/0057-faults-of-one-client.md.
package contain
