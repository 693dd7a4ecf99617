package management

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/stats"
)

// Connections are the client connections of one node.
type Connections interface {
	// List describes the open ones, in any order.
	List() []Connection
	// Close ends the one of that name with CONNECTION_FORCED and the text, and
	// reports whether there was one. It does not wait for the end.
	Close(name, text string) bool
	// Channels describes the open channels of these, in any order, but for their ConsumerDetails.
	Channels() []Channel
}

// Connection is the JSON form of a client's connection.
type Connection struct {
	Name  string `json:"name"` // "peer:port -> host:port"
	Node  string `json:"node"` // the name of the node, as its operator gave it
	User  string `json:"user"`
	VHost string `json:"vhost"`
	// UserWhoPerformedAction is the user, as RabbitMQ shows it a second time.
	UserWhoPerformedAction string         `json:"user_who_performed_action"`
	UserProvidedName       string         `json:"user_provided_name,omitempty"`
	Type                   string         `json:"type"`     // "network"
	Protocol               string         `json:"protocol"` // "AMQP 0-9-1"
	State                  string         `json:"state"`    // "running" or "blocked"
	AuthMechanism          string         `json:"auth_mechanism"`
	PeerHost               string         `json:"peer_host"`
	PeerPort               int            `json:"peer_port"`
	Host                   string         `json:"host"`
	Port                   int            `json:"port"`
	SSL                    bool           `json:"ssl"`
	SSLProtocol            string         `json:"ssl_protocol,omitempty"` // "tlsv1.3"
	SSLCipher              string         `json:"ssl_cipher,omitempty"`
	PeerCertSubject        string         `json:"peer_cert_subject,omitempty"`
	PeerCertIssuer         string         `json:"peer_cert_issuer,omitempty"`
	PeerCertValidity       string         `json:"peer_cert_validity,omitempty"`
	Channels               int            `json:"channels"`
	ChannelMax             int            `json:"channel_max"`
	FrameMax               int            `json:"frame_max"`    // bytes
	Timeout                int            `json:"timeout"`      // heartbeat, seconds; 0: none
	ConnectedAt            int64          `json:"connected_at"` // milliseconds since 1970
	ClientProperties       map[string]any `json:"client_properties"`
	ReceivedBytes          uint64         `json:"recv_oct"`
	SentBytes              uint64         `json:"send_oct"`
	ReceivedDetails        Details        `json:"recv_oct_details"`
	SentDetails            Details        `json:"send_oct_details"`

	// home is the peer that has it, as Config.Call takes it; "" for this node.
	home string
}

// key orders a node's connections, and is stable while they are open.
func (c *Connection) key() string { return fmt.Sprintf("%020d %s", c.ConnectedAt, c.Name) }

func byKey(a, b Connection) int { return cmp.Compare(a.key(), b.key()) }

// reasonDefault is what a client is told when the request gives no X-Reason.
const reasonDefault = "Closed via management plugin"

func (a *API) routeConnections() {
	a.handle("GET /api/connections", a.listConnections)
	a.handle("GET /api/connections/{name}", a.getConnection)
	a.handle("DELETE /api/connections/{name}", a.closeConnection)
	a.handle("GET /api/connections/username/{user}", func(r *http.Request, u User) (any, error) {
		user := r.PathValue("user")
		if !u.sees(user) {
			return nil, errNotAuthorised
		}
		return a.listSomeConnections(r, u, func(c *Connection) bool { return c.User == user })
	})
	a.handle("DELETE /api/connections/username/{user}", a.closeConnectionsOf)
	a.in("GET /api/vhosts/{vhost}/connections", func(r *http.Request, u User, vhost string) (any, error) {
		return a.listSomeConnections(r, u, func(c *Connection) bool { return c.VHost == vhost })
	})
}

// listConnections shows what the user may see. A node that does not answer is
// left out: its part is missing, which the log tells.
func (a *API) listConnections(r *http.Request, u User) (any, error) {
	return a.listSomeConnections(r, u, func(*Connection) bool { return true })
}

func (a *API) listSomeConnections(r *http.Request, u User, wanted func(*Connection) bool) (any, error) {
	all, err := a.connections(r.Context())
	if err != nil {
		a.cfg.Logger.Warn("connections of some nodes are missing", "err", err)
	}
	return paged(r, slices.DeleteFunc(all, func(c Connection) bool { return !wanted(&c) || !maySee(u, &c) }))
}

func maySee(u User, c *Connection) bool { return u.sees(c.User) }

func (a *API) getConnection(r *http.Request, u User) (any, error) {
	data, err := spanOf(r, "data_rates")
	if err != nil {
		return nil, err
	}
	c, err := a.findConnection(r, u)
	if err != nil {
		return nil, err
	}
	h := a.past(r.Context(), stats.Key{Kind: stats.Connection, Name: c.Name}, data)
	c.ReceivedDetails = h.details(c.ReceivedDetails.Rate, func(s *stats.Set) uint64 { return s[stats.Received] })
	c.SentDetails = h.details(c.SentDetails.Rate, func(s *stats.Set) uint64 { return s[stats.Sent] })
	return c, nil
}

// findConnection returns the connection that the path names, for a user who may
// see it. That nobody has it is only said when all nodes have answered.
func (a *API) findConnection(r *http.Request, u User) (*Connection, error) {
	all, err := a.connections(r.Context())
	i := slices.IndexFunc(all, func(c Connection) bool { return c.Name == r.PathValue("name") })
	switch {
	case i < 0 && err != nil:
		return nil, err
	case i < 0:
		return nil, errNotFound
	case !maySee(u, &all[i]):
		return nil, errNotAuthorised
	}
	return &all[i], nil
}

func (a *API) closeConnection(r *http.Request, u User) (any, error) {
	if u.monitors() {
		return nil, a.closeAnywhere(r)
	}
	c, err := a.findConnection(r, u)
	if err != nil {
		return nil, err
	}
	closed, err := a.endConnection(r, c)
	if err == nil && !closed {
		err = errNotFound // it ended in between
	}
	return nil, err
}

// closeAnywhere ends the connection that the path names, for a user who may see all: the node that has it is not looked for in the lists of all nodes, which tools that close
// many would have made for each. That nobody has it is only said when all nodes have answered.
func (a *API) closeAnywhere(r *http.Request) error {
	req := peerRequest{Op: opClose, Name: r.PathValue("name"), Reason: closeReason(r)}
	if a.cfg.Connections.Close(req.Name, req.Reason) {
		return nil
	}
	ctx, found := context.WithCancel(r.Context())
	defer found()
	var closed atomic.Bool
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		var resp peerClosed
		if err := a.ask(ctx, node, req, &resp); err != nil || !resp.Closed {
			return err
		}
		closed.Store(true)
		found()
		return nil
	})
	switch {
	case closed.Load():
		return nil
	case err != nil:
		return err
	}
	return errNotFound
}

func closeReason(r *http.Request) string { return cmp.Or(r.Header.Get("X-Reason"), reasonDefault) }

// closeConnectionsOf ends a user's connections, also when there are none.
func (a *API) closeConnectionsOf(r *http.Request, u User) (any, error) {
	user := r.PathValue("user")
	if user != u.Name && !u.may(auth.TagAdministrator) {
		return nil, errNotAuthorised
	}
	all, err := a.connections(r.Context())
	errs := []error{err}
	for i := range all {
		if all[i].User == user {
			_, err := a.endConnection(r, &all[i])
			errs = append(errs, err)
		}
	}
	return nil, errors.Join(errs...)
}

// endConnection ends a connection on the node that has it; closed is false if it had ended.
func (a *API) endConnection(r *http.Request, c *Connection) (closed bool, err error) {
	reason := closeReason(r)
	if c.home == "" {
		return a.cfg.Connections.Close(c.Name, reason), nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeoutPeers)
	defer cancel()
	var resp peerClosed
	err = a.ask(ctx, c.home, peerRequest{Op: opClose, Name: c.Name, Reason: reason}, &resp)
	return resp.Closed, err
}

// connections asks every node. With an error the list is that of those who
// answered.
func (a *API) connections(ctx context.Context) ([]Connection, error) {
	all := a.cfg.Connections.List()
	if all == nil {
		all = []Connection{} // [] in JSON
	}
	var mu sync.Mutex
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		for after := ""; ; {
			var page peerPage
			if err := a.ask(ctx, node, peerRequest{Op: opList, After: after}, &page); err != nil {
				return err
			}
			for i := range page.Connections {
				page.Connections[i].home = node
			}
			mu.Lock()
			all = append(all, page.Connections...)
			mu.Unlock()
			if !page.More || len(page.Connections) == 0 {
				return nil
			}
			after = page.Connections[len(page.Connections)-1].key()
		}
	})
	slices.SortFunc(all, byKey)
	return all, err
}

// page encodes a part of the local list, for another node.
func (a *API) page(after string) ([]byte, error) {
	list := a.cfg.Connections.List()
	slices.SortFunc(list, byKey)
	list = slices.DeleteFunc(list, func(c Connection) bool { return c.key() <= after })
	size := 0
	for i := range list {
		raw, err := json.Marshal(&list[i])
		if err != nil {
			return nil, err
		}
		if size += len(raw); size > pageBytes && i > 0 {
			return json.Marshal(peerPage{Connections: list[:i], More: true})
		}
	}
	return json.Marshal(peerPage{Connections: list})
}
