//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// bodySize is that of TARGETS row 7; ackSize that of an answer.
	bodySize, ackSize = 1024, 8
	// batch is how many messages the spare follower gets at a time (docs/adr/0015).
	batch     = 10
	blockSize = 4096
	logSize   = 16 << 20
)

// disk is a file written past the page cache, a block for each message, over and over.
type disk struct {
	fd    int
	at    int64
	block []byte
}

// openDisk makes the file, with all of its blocks written once. The process owns it until it ends.
func openDisk(dir string) (*disk, error) {
	path := filepath.Join(dir, fmt.Sprint("log-", os.Getpid()))
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	memory := make([]byte, 2*blockSize)
	skip := blockSize - int(uintptr(unsafe.Pointer(&memory[0]))%blockSize) // O_DIRECT wants the block aligned
	d := &disk{fd: fd, block: memory[skip : skip+blockSize]}
	for range logSize / blockSize {
		if err := d.write(nil); err != nil {
			return nil, err
		}
	}
	return d, unix.Fdatasync(fd)
}

func (d *disk) write(message []byte) error {
	copy(d.block, message)
	if _, err := unix.Pwrite(d.fd, d.block, d.at); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	d.at = (d.at + blockSize) % logSize
	return nil
}

// append writes a message and syncs it. A node without a disk does nothing.
func (d *disk) append(message []byte) error {
	if d == nil {
		return nil
	}
	if err := d.write(message); err != nil {
		return err
	}
	return unix.Fdatasync(d.fd)
}

// node is what a process of the chain was started with.
type node struct {
	links         string
	dir           string
	needed, spare string // addresses of the leader's followers
	disk          *disk
	addresses     io.Writer // gets the address that the node listens at
}

func (n *node) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		_, err = fmt.Fprintln(n.addresses, l.Addr())
	}
	return l, err
}

// follow writes what comes and answers.
func (n *node) follow() error {
	l, err := n.listen()
	if err != nil {
		return err
	}
	return accept(l, n.links, func(leader link) error {
		for {
			message, err := leader.receive()
			if err != nil {
				return err
			}
			if err := n.disk.append(message); err != nil {
				return err
			}
			if err := leader.send(message[:ackSize]); err != nil {
				return err
			}
		}
	})
}

// lead takes messages from a publisher, has them written by a follower and by itself at once, confirms them and delivers them. Acks are read, and that is all.
func (n *node) lead(ctx context.Context) error {
	needed, err := dial(ctx, n.links, n.needed)
	if err != nil {
		return err
	}
	spare, err := dial(ctx, n.links, n.spare)
	if err != nil {
		return err
	}
	l, err := n.listen()
	if err != nil {
		return err
	}
	var clients [2]*frames
	for i := range clients {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		clients[i] = newFrames(c)
	}
	publisher, consumer := clients[0], clients[1]
	written, failed := make(chan struct{}, 1), make(chan error, 4)
	drain := func(from link, each func()) {
		for {
			if _, err := from.receive(); err != nil {
				failed <- err
				return
			}
			each()
		}
	}
	go drain(needed, func() { written <- struct{}{} })
	go drain(spare, func() {})
	go drain(consumer, func() {})
	go func() { failed <- n.replicate(publisher, consumer, needed, spare, written) }()
	return <-failed
}

func (n *node) replicate(publisher, consumer, needed, spare link, written <-chan struct{}) error {
	var late []byte
	for {
		message, err := publisher.receive()
		if err != nil {
			return err
		}
		if err := needed.send(message); err != nil {
			return err
		}
		if late = append(late, message...); len(late) == batch*bodySize {
			if err := spare.send(late); err != nil {
				return err
			}
			late = late[:0]
		}
		runtime.Gosched() // gRPC's writer sends before the sync takes the processor, as Warren's flusher lets it
		if err := n.disk.append(message); err != nil {
			return err
		}
		<-written
		if err := publisher.send(message[:ackSize]); err != nil {
			return err
		}
		if err := consumer.send(message); err != nil {
			return err
		}
	}
}
