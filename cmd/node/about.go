package main

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/level"
)

// aboutRetry is the pause between two attempts to tell the catalog about this node.
const aboutRetry = time.Second

// told is a listener's address as others can use it: with the advertised host in place of an unspecified one.
func (n *running) told(ln net.Listener) string {
	addr := ln.Addr().String()
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return addr
	}
	ours, _, err := net.SplitHostPort(n.gossip.Self().GossipAddr)
	if err != nil {
		return addr
	}
	return net.JoinHostPort(ours, port)
}

// tellAbout enters into the catalog what a registration does not say, as soon as the cluster's level has room for it.
func (n *running) tellAbout(cat *catalog.Catalog) {
	about := &catalog.NodeAbout{
		ID: n.identity.NodeID(), Incarnation: n.since.Load(), Zone: n.cfg.Zone, Version: buildVersion(), Level: level.Now,
		Listeners: n.tellListeners(),
	}
	ctx, cancel := context.WithCancel(context.Background())
	raised := make(chan struct{}, 1)
	cat.Subscribe(func(_, now *catalog.View) {
		if now.Level() >= 2 {
			select {
			case raised <- struct{}{}:
			default:
			}
		}
	})
	var work sync.WaitGroup
	work.Go(func() {
		select {
		case <-raised:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			_, err := cat.Propose(ctx, about)
			if err == nil {
				return
			}
			n.log.Info("the catalog is not told about this node yet", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(aboutRetry):
			}
		}
	})
	n.onClose("about this node", func() error {
		cancel()
		work.Wait()
		return nil
	})
}

// tellListeners are where clients, and who watches over this node, find it, as "protocol host:port".
func (n *running) tellListeners() (all []string) {
	for _, l := range []struct {
		protocol string
		ln       net.Listener
	}{
		{"amqp", n.listeners.amqp},
		{"amqp/ssl", n.listeners.amqps},
		{"http", n.listeners.http},
		{"https", n.listeners.https},
		{"grpc", n.listeners.grpc},
		{"http/prometheus", n.listeners.metrics},
		{"health", n.listeners.health},
		{"debug", n.listeners.debug},
	} {
		if l.ln != nil {
			all = append(all, l.protocol+" "+n.told(l.ln))
		}
	}
	return all
}
