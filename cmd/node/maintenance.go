package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/warrenmq/warren/catalog"
	gateway "github.com/warrenmq/warren/gateway/amqp"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/transport"
)

// keepStanding has the catalog know whether this node drains, until ctx ends.
func (n *running) keepStanding(ctx context.Context) {
	cat, id := n.catalog.Load(), n.identity.NodeID()
	cat.Subscribe(func(old, now *catalog.View) {
		if old == nil || old.NodeState(id) != now.NodeState(id) {
			n.standing.poke()
		}
	})
	n.standing.keep(ctx)
}

// goesAway tells whether a node is not to get leaderships, as the catalog knows.
func (n *running) goesAway(id transport.NodeID) bool {
	return n.catalog.Load().View().NodeState(id) != catalog.NodeRegular
}

// NodeByName finds a node of the cluster; ok is false if there is none of that name.
func (n *running) NodeByName(name string) (id string, ok bool) {
	node := n.catalog.Load().View().NodeByName(name)
	if node == nil {
		return "", false
	}
	return string(node.ID), true
}

// Self is this node.
func (n *running) Self() string { return string(n.identity.NodeID()) }

// serveAMQP accepts clients on plain, and with TLS on secure unless that is nil.
func (n *running) serveAMQP(plain, secure net.Listener) {
	serve := func(ln net.Listener) {
		if err := n.amqp.Serve(ln); !errors.Is(err, gateway.ErrServerClosed) {
			n.failed <- fmt.Errorf("amqp server: %w", err)
		}
	}
	proxies, _ := n.cfg.Proxies() // they were checked
	go serve(behindProxies(plain, proxies))
	if secure != nil {
		go serve(tls.NewListener(behindProxies(secure, proxies), n.clientTLS.ServerConfig(n.clientAuth())))
	}
}

// reopen listens for clients again, at the addresses that the node had before.
func (n *running) reopen() error {
	n.amqp.CloseListeners() // if a drain was broken off before it did
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	n.grpc.Leave(gone)
	return n.acceptClients()
}

// acceptClients listens at the addresses of the closed listeners for clients, and serves who comes.
func (n *running) acceptClients() error {
	plain, err := net.Listen("tcp", n.listeners.amqp.Addr().String())
	if err != nil {
		return fmt.Errorf("amqp-addr: %w", err)
	}
	var secure net.Listener
	if n.listeners.amqps != nil {
		if secure, err = net.Listen("tcp", n.listeners.amqps.Addr().String()); err != nil {
			return errors.Join(fmt.Errorf("amqps-addr: %w", err), plain.Close())
		}
	}
	ours, err := net.Listen("tcp", n.listeners.grpc.Addr().String())
	if err != nil {
		err = errors.Join(fmt.Errorf("grpc-addr: %w", err), plain.Close())
		if secure != nil {
			err = errors.Join(err, secure.Close())
		}
		return err
	}
	n.serveGRPC(ours)
	n.serveAMQP(plain, secure)
	return nil
}

// socketName is the control socket in the data folder, and socketBytesMax what the system allows for its path.
const (
	socketName     = "control.sock"
	socketBytesMax = 107
)

// serveControl serves the management API on a socket that only the user who runs the node can open: who may is
// an administrator, without a password. Recovering the cluster is possible there only, from early on: the node is not ready then. Nor is it for who wants
// to know why, to whom it shows its log and its settings.
func (n *running) serveControl() error {
	path := filepath.Join(n.cfg.DataDir, socketName)
	if len(path) > socketBytesMax {
		n.log.Warn("no control socket: its path is too long", "path", path, "max", socketBytesMax)
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // the folder is this process's alone: an old one is of a process that has ended
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, ln.Close())
	}
	mux := http.NewServeMux()
	n.serveProbes(mux)
	starting := management.NewStarting(n, n.log)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		if !n.ready.Load() && starting.Knows(r) {
			starting.ServeHTTP(w, management.AsOperator(r))
			return
		}
		n.serveManagement(w, management.AsOperator(r))
	})
	mux.HandleFunc("POST /api/warren/recovery/cluster", n.serveRecoverCluster)
	n.serveOn("control socket", mux, ln, nil)
	return nil
}
