// Command make has three nodes of a program write a Scene, kills them, and packs their folders. One of them takes snapshots midway, so that
// there are queues in both forms.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/warrenmq/warren/test/cluster"
	"github.com/warrenmq/warren/test/upgrade"
)

func main() {
	binary := flag.String("binary", "", "the program, built with failpoints")
	out := flag.String("out", "", "the file to write")
	flag.Parse()
	if err := run(*binary, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(binary, out string) (err error) {
	dir, err := os.MkdirTemp("", "warren-upgrade-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Config{Nodes: 3, Binary: binary, Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	release, err := upgrade.Scene{Midway: func(ctx context.Context) error { return snapshots(ctx, c.Node(0)) }}.Make(ctx, c)
	defer release()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, c.Logs())
	}
	if err := c.KillAll(); err != nil {
		return err
	}
	folders, err := os.MkdirTemp(dir, "folders-")
	if err != nil {
		return err
	}
	for _, n := range c.Nodes() {
		if err := os.Rename(n.DataDir(), filepath.Join(folders, n.Name)); err != nil {
			return err
		}
	}
	return upgrade.Pack(folders, out)
}

// snapshots has a node take a snapshot of each queue that was ever used and drop the log behind it.
func snapshots(ctx context.Context, n *cluster.Node) error {
	queues, err := n.Queues(ctx)
	taken := 0
	for i := 0; err == nil && i < len(queues); i++ {
		if _, err = n.Snapshot(ctx, queues[i].ID); err == nil {
			taken++
		} else if strings.Contains(err.Error(), "nothing new to snapshot") {
			err = nil
		}
	}
	if err == nil && taken < 5 {
		err = fmt.Errorf("%d snapshots of %d queues", taken, len(queues))
	}
	return err
}
