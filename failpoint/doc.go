// Package failpoint marks steps at which a test can stop or kill a node.
//
// It exists only in builds with the tag `failpoints`. In all others its functions
// are empty and inlined away, and Enabled is a false constant, so that a point costs
// nothing and a released binary has no way to arm one.
//
// In a build with the tag, a point is armed by its name, the id of the queue whose
// leader or mover passes it, and the number of the pass that counts. What happens then:
//
//	kill   the process ends by SIGKILL, before anything that follows the point
//	hold   the goroutine that passes waits until it is released, a minute at most
//	count  nothing; the passes are counted, as they are for the others
//
// Points are armed by the environment variable WARREN_FAILPOINTS when the process
// starts, as in "move.routed:17=kill@3;move.taken=count", or while it runs over HTTP (see
// Handler), where what is held is seen and released and the links to other nodes are cut.
//
// A process in whose environment WARREN_SEEDED_FAULT names a Fault has that bug, so that a test sees
// whether the harnesses find it.
//
// A point is passed outside of locks and of the pure packages: a held goroutine holds
// nothing but its own work up.
package failpoint
