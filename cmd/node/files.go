package main

import (
	"math"
	"syscall"

	"github.com/warrenmq/warren/config"
	gateway "github.com/warrenmq/warren/gateway/amqp"
)

// fileShares are how many connections clients may have open, so that they leave enough of the process's files to the log, the catalog and the links between nodes,
// which end the node if they get none.
type fileShares struct {
	amqp, grpc int
	http       int // of each listener
	strangers  int // of the cluster address
}

// httpConnectionsMin is what an HTTP listener may have however few files there are: probes and metrics go by it, too.
const httpConnectionsMin = 16

// Of the cluster address, how many connections may be open on which no node of the cluster has shown itself: nodes do so at once.
const (
	strangersMin = 16
	strangersMax = 256
)

// sharesOf divides the files that a process may have open: a half for AMQP, an eighth for gRPC and a thirty-second for each HTTP listener, of which there are five at
// most, and for strangers at the cluster address, but no more than the given.
func sharesOf(files uint64, most fileShares) fileShares {
	share := func(part uint64, least, most int) int { return int(min(uint64(most), max(uint64(least), files/part))) }
	return fileShares{
		amqp: share(2, 1, most.amqp),
		grpc: share(8, 1, most.grpc),
		http: share(32, httpConnectionsMin, most.http), strangers: share(32, strangersMin, most.strangers),
	}
}

// shareFiles lowers c's bound of connections to what the process's files allow, and returns that of gRPC.
func (n *running) shareFiles(c *gateway.Config) (grpc int) {
	files := openFilesMax()
	shares := sharesOf(files, fileShares{amqp: c.ConnectionsMax, grpc: c.ConnectionsMax})
	wanted := c.OpenMax
	if wanted == config.ConnectionMaxInfinity {
		wanted = gateway.ConnectionsMin
	}
	if shares.amqp < wanted {
		n.log.Warn("few files may be open (ulimit -n): so few connections of clients, too", "files", files, "amqp", shares.amqp, "grpc", shares.grpc)
	}
	c.ConnectionsMax = shares.amqp
	return shares.grpc
}

// openFilesMax is how many files the process may have open, which Go's runtime has raised as far as it may; MaxUint64 if that is not known.
func openFilesMax() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxUint64
	}
	return limit.Cur
}
