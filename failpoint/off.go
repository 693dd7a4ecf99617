//go:build !failpoints

package failpoint

import (
	"context"
	"net"
)

// Enabled tells whether this build has failpoints.
const Enabled = false

// Pass is called at a point by what works for the queue.
func Pass(Point, uint64) {}

// Passing is a function that passes the point, nil if there are no failpoints.
func Passing(Point, uint64) func() { return nil }

// Sown tells whether this process has the fault: never in this build.
func Sown(Fault) bool { return false }

// Dialer opens connections whose bytes Handler can stop, nil if there are no failpoints.
func Dialer() func(ctx context.Context, addr string) (net.Conn, error) { return nil }
