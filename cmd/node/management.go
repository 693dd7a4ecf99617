package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/cluster/detector"
	gateway "github.com/warrenmq/warren/gateway/amqp"
	rpc "github.com/warrenmq/warren/gateway/grpc"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/stats"
	"github.com/warrenmq/warren/transport"
)

// methodManagement is the call by which one node's management API asks
// another's.
const methodManagement uint8 = 0x38

// openManagement builds the management API on what runs by now.
func (n *running) openManagement() {
	n.openSampler()
	n.manager = management.New(management.Config{
		Login: n.logInHTTP, LoginByCertificate: n.logInByCertificate, LoginByToken: n.logInByBearer, Renew: n.broker.Renew, HashPassword: n.hashPassword,
		Broker:      n.broker,
		HoldUp:      n.grpc.HoldUp,
		Replicas:    n.operator(),
		Health:      checks{n},
		Steward:     n.steward,
		Shovels:     n.shovels,
		Local:       n,
		GossipKeys:  n.gossipKeyStats,
		Connections: connections{node: n.cfg.NodeID, server: n.amqp, rpc: n.grpc, sampler: n.sampler},
		Sampler:     n.sampler,
		Churn:       n.sampleChurn,
		Product:     n.cfg.Product,
		Cluster:     n,
		Backups:     n,
		Definitions: n.definitions,
		Peers:       n.livePeers,
		Call: func(ctx context.Context, node string, req []byte) ([]byte, error) {
			return n.mesh.Call(ctx, transport.NodeID(node), methodManagement, req)
		},
		Logger: n.log,
	})
	n.onClose("streams of events", func() error {
		n.manager.EndStreams() // else the HTTP server would wait for them
		return nil
	})
	n.mesh.HandleCall(methodManagement, func(ctx context.Context, _ transport.NodeID, req []byte) ([]byte, error) {
		return n.manager.Answer(ctx, req)
	})
}

// serveManagement answers requests once the node is ready.
func (n *running) serveManagement(w http.ResponseWriter, r *http.Request) {
	if !n.ready.Load() {
		http.Error(w, errNotReady.Error()+": "+n.readiness().Reason, http.StatusServiceUnavailable)
		return
	}
	n.manager.ServeHTTP(w, r)
}

// Level is the level of the cluster; see package cluster/level.
func (n *running) Level() int { return n.catalog.Load().View().Level() }

// RaiseLevel takes the cluster to a level.
func (n *running) RaiseLevel(ctx context.Context, to int) error {
	return n.catalog.Load().RaiseLevel(ctx, to)
}

// livePeers are the other nodes of the cluster that are not known to be dead.
func (n *running) livePeers() (nodes []string) {
	for node := range n.catalog.Load().View().Nodes() {
		if node.ID != n.identity.NodeID() && !node.Superseded && n.detector.State(node.ID) != detector.Dead {
			nodes = append(nodes, string(node.ID))
		}
	}
	return nodes
}

// connections are the gateways' connections as the management API sees them.
type connections struct {
	node    string
	server  *gateway.Server
	rpc     *rpc.Server
	sampler *stats.Sampler
}

func (c connections) List() []management.Connection {
	all := c.server.Connections()
	list := make([]management.Connection, len(all))
	for i := range all {
		list[i] = c.describe(&all[i])
	}
	for _, i := range c.rpc.Connections() {
		list = append(list, c.describeRPC(&i))
	}
	return list
}

// describeRPC describes a connection of gRPC. Its streams are its channels.
func (c connections) describeRPC(i *rpc.ConnectionInfo) management.Connection {
	peer, peerPort := management.HostPort(i.Peer)
	host, port := management.HostPort(i.Local)
	conn := management.Connection{
		Name: i.Name, Node: c.node, User: i.User, UserWhoPerformedAction: i.User, VHost: i.VHost, Type: "network", Protocol: "gRPC", State: "running",
		AuthMechanism: i.Mechanism, PeerHost: peer, PeerPort: peerPort, Host: host, Port: port, Channels: i.Streams, ConnectedAt: i.Opened.UnixMilli(),
		ClientProperties: map[string]any{"product": i.Agent},
	}
	if i.TLS != nil {
		describeTLS(&conn, i.TLS)
	}
	return conn
}

func (c connections) describe(i *gateway.ConnectionInfo) management.Connection {
	state := "running"
	if i.Blocked != "" {
		state = "blocked"
	}
	peer, peerPort := management.HostPort(i.Peer)
	host, port := management.HostPort(i.Local)
	conn := management.Connection{
		Name: i.Name, Node: c.node, User: i.User, UserWhoPerformedAction: i.User, VHost: i.VHost,
		UserProvidedName: i.ClientName, Type: "network", Protocol: "AMQP 0-9-1", State: state, AuthMechanism: i.Mechanism,
		PeerHost: peer, PeerPort: peerPort, Host: host, Port: port,
		Channels: i.Channels, ChannelMax: int(i.ChannelMax), FrameMax: int(i.FrameMax),
		Timeout: int(i.Heartbeat / time.Second), ConnectedAt: i.Opened.UnixMilli(),
		ClientProperties: i.ClientProperties.JSON(),
		ReceivedBytes:    i.ReceivedBytes, SentBytes: i.WrittenBytes,
	}
	rates := c.sampler.Rates(gateway.ConnectionKey(i.Name))
	conn.ReceivedDetails.Rate, conn.SentDetails.Rate = rates[stats.Received], rates[stats.Sent]
	if i.TLS != nil {
		describeTLS(&conn, i.TLS)
	}
	return conn
}

// describeTLS fills in RabbitMQ's columns of a connection over TLS.
func describeTLS(conn *management.Connection, s *tls.ConnectionState) {
	conn.SSL = true
	// crypto/tls writes "TLS 1.3", RabbitMQ "tlsv1.3".
	conn.SSLProtocol = strings.ToLower(strings.Replace(tls.VersionName(s.Version), " ", "v", 1))
	conn.SSLCipher = tls.CipherSuiteName(s.CipherSuite)
	if len(s.PeerCertificates) == 0 {
		return
	}
	c := s.PeerCertificates[0]
	conn.PeerCertSubject, conn.PeerCertIssuer = auth.DistinguishedName(c.RawSubject), auth.DistinguishedName(c.RawIssuer)
	conn.PeerCertValidity = c.NotBefore.UTC().Format(time.RFC3339) + " - " + c.NotAfter.UTC().Format(time.RFC3339)
}

func (c connections) Close(name, text string) bool {
	return c.server.CloseConnection(name, text) || c.rpc.CloseConnection(name, text)
}
