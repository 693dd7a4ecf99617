package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/definitions"
)

// Bounds of loading definitions when a node starts.
const (
	// definitionsWait is how long clients of a cluster that never had any wait for them.
	definitionsWait = time.Minute
	// definitionsGrace is how long a node leaves them to the one that leads the catalog, which may have another file or none.
	definitionsGrace = 10 * time.Second
	definitionsPoll  = 100 * time.Millisecond
	definitionsRetry = time.Second
)

// checkDefinitions reads the definitions to load. Where the node may found a cluster a file that is missing or wrong ends
// the start, so that it is told at once. Later messages are more: a node that belongs to a cluster starts without.
func (n *running) checkDefinitions(context.Context) error {
	if n.cfg.LoadDefinitions == "" {
		return nil
	}
	raw, err := readDefinitions(n.cfg.LoadDefinitions)
	founds := n.newcomer && n.cfg.BootstrapExpect > 0
	if err == nil && founds {
		err = definitions.Check(raw, n.cfg.DefaultUser)
	}
	switch {
	case err == nil:
		n.definitionsFile = raw
	case founds:
		return fmt.Errorf("load-definitions: %w", err)
	default:
		n.log.Error("no definitions are loaded", "err", err)
	}
	return nil
}

func readDefinitions(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, definitions.BytesMax+1))
	if err == nil {
		_, err = definitions.Parse(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return raw, nil
}

// openDefinitions makes what exports and imports, and has the node's definitions loaded. Clients of a cluster that never
// had any are let in when they are there.
func (n *running) openDefinitions(ctx context.Context) error {
	n.definitions = definitions.NewService(n.broker, func() definitions.Source {
		product, version := n.cfg.Product()
		return definitions.Source{Product: product, Version: version, Cluster: n.ClusterName()}
	}, n.cfg.DefaultUser, n.hashing(), n.log)
	if n.definitionsFile == nil {
		return nil
	}
	loading, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	loaded := make(chan struct{})
	first := n.newcomer && n.catalog.Load().View().DefinitionsHash() == ""
	done.Go(func() {
		defer close(loaded)
		n.loadDefinitions(loading, n.definitionsFile)
	})
	n.onClose("definitions", func() error {
		stop()
		done.Wait()
		return nil
	})
	if !first {
		return nil // its clients have waited for long enough
	}
	select {
	case <-loaded:
	case <-time.After(definitionsWait):
		n.log.Error("clients are let in before the definitions are loaded", "after", definitionsWait)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// loadDefinitions loads a file unless the cluster has loaded the same last, whoever did. The node that leads the catalog
// does it; the others look after it if it does not. It ends when they are loaded or refused, or with ctx.
func (n *running) loadDefinitions(ctx context.Context, raw []byte) {
	hash, began := definitions.Hash(raw), time.Now()
	for wait := time.Duration(0); ; wait = definitionsPoll {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		cat := n.catalog.Load()
		switch view := cat.View(); {
		case view.DefinitionsHash() == hash:
			n.log.Info("definitions are loaded", "file", n.cfg.LoadDefinitions, "hash", hash)
			return
		case view.Level() < definitions.LevelNoted:
			continue // nodes of an older program would not know that they are loaded
		case registered(view) < n.cfg.BootstrapExpect && time.Since(began) < definitionsWait:
			continue // replicas are to be on all founders
		case !cat.Leading() && time.Since(began) < definitionsGrace:
			continue
		}
		_, _, err := n.definitions.Import(ctx, raw, definitions.Request{SkipUnchanged: true})
		switch {
		case err == nil || errors.Is(err, context.Canceled):
		case definitions.Refused(err):
			n.log.Error("definitions are refused", "file", n.cfg.LoadDefinitions, "err", err)
			return
		default:
			n.log.Warn("definitions are not loaded yet", "file", n.cfg.LoadDefinitions, "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(definitionsRetry):
			}
		}
	}
}

// registered is how many nodes the cluster has.
func registered(v *catalog.View) (n int) {
	for node := range v.Nodes() {
		if !node.Superseded {
			n++
		}
	}
	return n
}
