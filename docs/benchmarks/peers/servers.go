package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	peerNodes    = 3
	timeoutStart = 3 * time.Minute
)

// startNATS starts a cluster of NATS servers with JetStream. sync is the sync_interval, "" for the default.
func startNATS(ctx context.Context, binary, dir, sync string) (list, _ []*process, err error) {
	ports, err := freePorts(2 * peerNodes)
	if err != nil {
		return nil, nil, err
	}
	var routes []string
	for n := range peerNodes {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[peerNodes+n]))
	}
	if sync != "" {
		sync = "sync_interval: " + sync
	}
	for n := range peerNodes {
		name := fmt.Sprintf("n%d", n+1)
		home := filepath.Join(dir, name)
		if err := os.MkdirAll(home, 0o755); err != nil {
			return list, nil, err
		}
		conf := fmt.Sprintf("server_name: %s\nlisten: 127.0.0.1:%d\njetstream {\n  store_dir: %q\n  %s\n}\ncluster {\n  name: peers\n  listen: 127.0.0.1:%d\n  routes: [%s]\n}\n",
			name, ports[n], filepath.Join(home, "data"), sync, ports[peerNodes+n], strings.Join(routes, ", "))
		file := filepath.Join(home, "nats.conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			return list, nil, err
		}
		p, err := launch(name, home, os.Environ(), binary, "-c", file)
		if err != nil {
			return list, nil, err
		}
		p.url = fmt.Sprintf("nats://127.0.0.1:%d", ports[n])
		list = append(list, p)
	}
	for _, p := range list {
		if err := p.accepts(ctx, strings.TrimPrefix(p.url, "nats://")); err != nil {
			return list, nil, err
		}
	}
	return list, nil, awaitNATS(ctx, list[0].url)
}

// awaitNATS waits until a replicated stream can be made: then the servers have a leader.
func awaitNATS(ctx context.Context, url string) error {
	c, err := natsDriver{}.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		err := c.Declare("first", nil)
		if err == nil {
			return c.Delete("first")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
