package client_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warrenmq/warren/test/cluster"
)

// nodes is the cluster that the examples use, which the first of them starts: one node.
var nodes struct {
	once    sync.Once
	dir     string
	cluster *cluster.Cluster
}

// addresses are the gRPC addresses of the cluster.
func addresses() []string {
	nodes.once.Do(func() {
		must(func() (err error) {
			if nodes.dir, err = os.MkdirTemp("", "warren-client-"); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			binary, err := cluster.Build(ctx, nodes.dir)
			if err != nil {
				return err
			}
			nodes.cluster, err = cluster.Start(ctx, cluster.Config{Nodes: 1, Binary: binary, Dir: nodes.dir})
			return err
		}())
	})
	return []string{nodes.cluster.Node(0).GRPCAddr()}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	if nodes.cluster != nil {
		if crashes := nodes.cluster.Crashes(); crashes != "" {
			fmt.Fprintln(os.Stderr, crashes)
			code = 1
		}
		must(nodes.cluster.Close())
	}
	if nodes.dir != "" {
		must(os.RemoveAll(nodes.dir))
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
