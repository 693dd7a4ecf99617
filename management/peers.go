package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// peerVersion is that of the messages between the APIs of two nodes.
const peerVersion = 1

// pageBytes is about how much of a list one answer of another node holds.
const pageBytes = 256 << 10

// peerRequest is what one node's API asks another's.
type peerRequest struct {
	Version int    `json:"version"`
	Op      string `json:"op"`
	// Name and Reason belong to opClose, Name and VHost to opRestartShovel.
	Name   string `json:"name,omitempty"`
	Reason string `json:"reason,omitempty"`
	// After is the key of the last item of the page before; "" asks for the first.
	After string `json:"after,omitempty"`
	// VHost and Revision belong to opSettle.
	VHost    string `json:"vhost,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	// Drain and LimitMS belong to opMaintain.
	Drain   bool  `json:"drain,omitempty"`
	LimitMS int64 `json:"limit_ms,omitempty"`
	// Queue belongs to opReplica and opIncoming, and with To to opMoveLeader.
	Queue uint64 `json:"queue,omitempty"`
	To    string `json:"to,omitempty"`
	// Queues belongs to opDetails.
	Queues []uint64 `json:"queues,omitempty"`
	// Past belongs to opPast.
	Past *peerPast `json:"past,omitempty"`
	// Reset belongs to opLogins.
	Reset bool `json:"reset,omitempty"`
}

const (
	opList  = "connections"       // answer: peerPage
	opClose = "close_connections" // answer: peerClosed
	// opSettle waits until a change of policies is in effect on the queues that the node
	// leads; answer: peerSettled
	opSettle = "settle_policies"
	// opGossipKeys asks for fingerprints; answer: GossipKeys
	opGossipKeys = "gossip_keys"
	// opStats asks what the node's process has and uses; answer: NodeStats
	opStats = "node_stats"
	// opMaintain drains the node or revives it; answer: Drained
	opMaintain = "maintain"
	// opReplica asks for the node's replica of a queue; answer: peerReplica
	opReplica = "replica"
	// opMoveLeader has a queue's leader hand over; answer: peerMoved
	opMoveLeader = "move_leader"
	// opTable asks for the figures of queues; answer: see encodeTable
	opTable = "queue_table"
	// opDetails asks for details of queues; answer: peerDetails
	opDetails = "queue_details"
	// opIncoming asks by which exchanges clients have published into a queue; answer: peerIncoming
	opIncoming = "incoming"
	// opPast asks for samples; answer: peerSets
	opPast = "past"
	// opTotals asks what is counted of the node and its virtual hosts; answer: peerTotals
	opTotals = "totals"
	// opChannels and opConsumers ask for those of the node, as opList does for connections
	opChannels  = "channels"
	opConsumers = "consumers"
	// opExchanges asks what was published to exchanges; answer: peerExchanges
	opExchanges = "exchanges"
	// opLogins asks for the node's logins; answer: Logins
	opLogins = "logins"
	// opMemory asks what the node uses its memory for; answer: Memory
	opMemory = "memory"
	// opShovels asks for the shovels that the node runs; answer: peerShovels
	opShovels = "shovels"
	// opRestartShovel has the node start a shovel of its own anew; answer: peerRestarted
	opRestartShovel = "restart_shovel"
)

type peerPage struct {
	Connections []Connection `json:"connections"`
	// More: there are items behind the last one.
	More bool `json:"more"`
}

type peerSettled struct{}

type peerClosed struct {
	Closed bool `json:"closed"`
}

// Answer answers a request of another node's API. It has the form of a handler of
// the transport; errors are for the log of the caller.
func (a *API) Answer(ctx context.Context, raw []byte) ([]byte, error) {
	var req peerRequest
	if err := json.Unmarshal(raw, &req); err != nil {
		return nil, fmt.Errorf("management request: %w", err)
	}
	if req.Version != peerVersion {
		return nil, fmt.Errorf("management request of version %d, this is %d", req.Version, peerVersion)
	}
	switch req.Op {
	case opList:
		return a.page(req.After)
	case opGossipKeys:
		return json.Marshal(a.cfg.GossipKeys())
	case opSettle:
		if err := a.cfg.Broker.SettlePolicies(ctx, req.VHost, req.Revision); err != nil {
			return nil, err
		}
		return json.Marshal(peerSettled{})
	case opStats:
		return json.Marshal(a.cfg.Cluster.Stats())
	case opMaintain:
		return a.answerMaintain(ctx, &req)
	case opReplica:
		return a.answerReplica(req.Queue)
	case opMoveLeader:
		return a.answerMoveLeader(ctx, &req)
	case opTable:
		return a.encodeTable(), nil
	case opIncoming:
		return json.Marshal(a.incomingHere(req.Queue))
	case opDetails:
		return a.answerDetails(req.Queues)
	case opPast:
		return a.answerPast(req.Past)
	case opTotals:
		return json.Marshal(a.totalsHere())
	case opChannels:
		return pageOf(a.cfg.Connections.Channels(), req.After)
	case opConsumers:
		return pageOf(a.consumersHere(req.Queue), req.After)
	case opExchanges:
		return json.Marshal(a.exchangesHere())
	case opLogins:
		return json.Marshal(a.ownLogins(&req))
	case opShovels:
		return json.Marshal(peerShovels{a.localName(), a.cfg.Shovels.Statuses()})
	case opRestartShovel:
		return json.Marshal(peerRestarted{a.cfg.Shovels.Restart(req.VHost, req.Name)})
	case opMemory:
		return json.Marshal(a.cfg.Local.Memory())
	case opClose:
		return json.Marshal(peerClosed{Closed: a.cfg.Connections.Close(req.Name, req.Reason)})
	}
	return nil, fmt.Errorf("management request: unknown operation %q", req.Op)
}

// ask sends req to a node and decodes its answer into to.
func (a *API) ask(ctx context.Context, node string, req peerRequest, to any) error {
	resp, err := a.askRaw(ctx, node, req)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(resp, to); err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	return nil
}

// askRaw sends req to a node and returns its answer as it is.
func (a *API) askRaw(ctx context.Context, node string, req peerRequest) ([]byte, error) {
	req.Version = peerVersion
	raw, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	resp, err := a.cfg.Call(ctx, node, raw)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	return resp, nil
}

// eachPeer calls f for all other living nodes at once, and returns the joined
// errors when all have answered or timeoutPeers is over.
func (a *API) eachPeer(ctx context.Context, f func(ctx context.Context, node string) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeoutPeers)
	defer cancel()
	nodes := a.cfg.Peers()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() { errs[i] = f(ctx, node) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
