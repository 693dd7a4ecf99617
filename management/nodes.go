package management

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/warrenmq/warren/stats"
)

type nodes interface {
	// ClusterName is the cluster's name for people, ClusterID what it is, CatalogLeader the node that leads the catalog ("": none is known), Local this node's id.
	ClusterName() string
	ClusterID() string
	CatalogLeader() string
	Local() string
	// Nodes describes the nodes of the cluster, without their Stats.
	Nodes() []Node
	// Stats are what this node's process has and uses.
	Stats() NodeStats
	// Alarms are what another node, by its id, last said that it is short of, as long as that keeps publishers away from this one.
	Alarms(id string) (memory, disk bool)
}

// Node is the JSON form of a node: RabbitMQ's fields, and with "warren_" in front what it does not have.
type Node struct {
	Name    string `json:"name"`
	Type    string `json:"type"` // "disc"
	Running bool   `json:"running"`
	// BeingDrained: under maintenance.
	BeingDrained bool     `json:"being_drained"`
	Partitions   []string `json:"partitions"` // none, ever: a minority goes on with nothing
	// NodeStats are there if the node answered.
	*NodeStats
	// Memory is what one node uses its memory for, with memory=true in the query.
	Memory any `json:"memory,omitempty"`

	ID           string     `json:"warren_storage"` // name and storage uuid
	State        string     `json:"warren_state"`   // regular, draining or leaving
	Zone         string     `json:"warren_zone"`
	Version      string     `json:"warren_version"`      // of the program; "" if it has not told
	Level        int        `json:"warren_level"`        // that the program knows; 0 if it has not told
	Replicas     int        `json:"warren_replicas"`     // of queues
	CatalogVoter bool       `json:"warren_voter"`        // its word counts in the catalog's group
	DownSince    int64      `json:"warren_down_since"`   // milliseconds since 1970; 0: not known to be down
	ClusterAddr  string     `json:"warren_cluster_addr"` // for the other nodes
	Listeners    []Listener `json:"warren_listeners"`
}

// NodeStats is what a process has and uses. Sizes are in bytes.
type NodeStats struct {
	PID        string `json:"os_pid"`
	Uptime     int64  `json:"uptime"` // milliseconds
	Processors int    `json:"processors"`
	MemUsed    uint64 `json:"mem_used"`
	MemLimit   uint64 `json:"mem_limit"`
	MemAlarm   bool   `json:"mem_alarm"`
	DiskFree   uint64 `json:"disk_free"`
	DiskLimit  uint64 `json:"disk_free_limit"`
	DiskAlarm  bool   `json:"disk_free_alarm"`
	FilesUsed  uint64 `json:"fd_used"`
	FilesTotal uint64 `json:"fd_total"`
	// SocketsUsed are connections of clients by AMQP 0-9-1, SocketsTotal as many as may be open.
	SocketsUsed  int `json:"sockets_used"`
	SocketsTotal int `json:"sockets_total"`
	// ProcUsed counts goroutines, which are what Erlang's processes are there; nothing limits their number. RunQueue are those that wait for a
	// processor.
	ProcUsed int    `json:"proc_used"`
	RunQueue uint64 `json:"run_queue"`
	// ClusterLinks are the other nodes that this one has a link to.
	ClusterLinks []ClusterLink `json:"cluster_links"`

	// What follows is the same on every node, and there because rabbitmqadmin 2 reads no node without it.
	ProcTotal      int      `json:"proc_total"`
	RatesMode      string   `json:"rates_mode"`
	EnabledPlugins []string `json:"enabled_plugins"`

	MemUsedDetails     Details `json:"mem_used_details"`
	DiskFreeDetails    Details `json:"disk_free_details"`
	FilesUsedDetails   Details `json:"fd_used_details"`
	SocketsUsedDetails Details `json:"sockets_used_details"`
	ProcUsedDetails    Details `json:"proc_used_details"`
}

// procTotal is how many processes Erlang lets RabbitMQ have: tools divide by it. Goroutines have no such limit.
const procTotal = 1 << 20

// enabledPlugins are those of RabbitMQ whose work a node does.
var enabledPlugins = []string{
	"rabbitmq_consistent_hash_exchange", "rabbitmq_delayed_message_exchange", "rabbitmq_management", "rabbitmq_prometheus", "rabbitmq_random_exchange",
}

// setConstants sets what is the same on every node, also of one whose program is older and does not tell it.
func (n *NodeStats) setConstants() {
	n.ProcTotal, n.RatesMode, n.EnabledPlugins = procTotal, ratesMode, enabledPlugins
}

// ClusterLink is a link to another node.
type ClusterLink struct {
	Name     string `json:"name"`
	PeerAddr string `json:"peer_addr"`
	PeerPort int    `json:"peer_port"`
}

// SetRates sets how fast what a node uses changes, as sampled.
func (n *NodeStats) SetRates(r *stats.Rates) {
	for i, d := range n.details() {
		d.Rate = r[i]
	}
}

// details are those of the numbers of the kind stats.Process.
func (n *NodeStats) details() [stats.Uses]*Details {
	return [...]*Details{
		stats.MemUsed: &n.MemUsedDetails, stats.DiskFree: &n.DiskFreeDetails, stats.FilesUsed: &n.FilesUsedDetails,
		stats.SocketsUsed: &n.SocketsUsedDetails, stats.ProcUsed: &n.ProcUsedDetails,
	}
}

// Listener is where a node listens.
type Listener struct {
	Node     string `json:"node"`
	Protocol string `json:"protocol"`
	Address  string `json:"ip_address"`
	Port     int    `json:"port"`
	Purpose  string `json:"purpose"`
}

// clusterInfo is what RabbitMQ's API does not tell.
type clusterInfo struct {
	ID     string   `json:"cluster_id"`
	Node   string   `json:"node"` // that answered
	Level  int      `json:"level"`
	Leader string   `json:"catalog_leader"` // "": none is known
	Voters []string `json:"catalog_voters"`
	// Zones has the names of the nodes in each zone; nodes without one are in "".
	Zones map[string][]string `json:"zones"`
}

func (a *API) routeNodes() {
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		a.handle(pattern, func(r *http.Request, u User) (any, error) {
			if !u.monitors() {
				return nil, errNotAuthorised
			}
			return f(r)
		})
	}
	handle("GET /api/nodes", func(r *http.Request) (any, error) { return paged(r, a.nodes(r.Context())) })
	handle("GET /api/nodes/{name}", a.getNode)
	for path, form := range map[string]func(*Memory) map[string]any{"memory": (*Memory).breakdown, "memory/relative": (*Memory).relative} {
		handle("GET /api/nodes/{name}/"+path, func(r *http.Request) (any, error) {
			list := a.cfg.Cluster.Nodes()
			i := slices.IndexFunc(list, func(n Node) bool { return n.Name == nodeNamed(r.PathValue("name")) })
			if i < 0 {
				return nil, errNotFound
			}
			return map[string]any{"memory": a.memoryOf(r.Context(), &list[i], form)}, nil
		})
	}
	handle("GET /api/warren/cluster", func(*http.Request) (any, error) { return a.clusterInfo(), nil })
}

// nodeNamed is the node that a path names. Tools put RabbitMQ's "rabbit@" in front of a host's name, which no node's name here has: without it they mean
// the node of the host.
func nodeNamed(name string) string { return strings.TrimPrefix(name, "rabbit@") }

func (a *API) getNode(r *http.Request) (any, error) {
	span, err := spanOf(r, "node_stats")
	if err != nil {
		return nil, err
	}
	for _, n := range a.nodes(r.Context()) {
		if n.Name != nodeNamed(r.PathValue("name")) {
			continue
		}
		if h := a.pastAt(r.Context(), n.Name, stats.Key{Kind: stats.Process}, span); h != nil && n.NodeStats != nil {
			for i, d := range n.details() {
				*d = h.details(d.Rate, func(s *stats.Set) uint64 { return s[i] })
			}
		}
		if asked(r, "memory") {
			n.Memory = a.memoryOf(r.Context(), &n, (*Memory).breakdown)
		}
		return n, nil
	}
	return nil, errNotFound
}

// nodes describes all nodes, with what those that run tell of themselves.
func (a *API) nodes(ctx context.Context) []Node {
	c := a.cfg.Cluster
	list := c.Nodes()
	byID := map[string]int{}
	for i, n := range list {
		byID[n.ID] = i
		if n.ID == c.Local() {
			used := c.Stats()
			used.setConstants()
			list[i].NodeStats = &used
		}
	}
	var mu sync.Mutex
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		i, ok := byID[node]
		if !ok || !list[i].Running {
			return nil
		}
		used := new(NodeStats)
		if err := a.ask(ctx, node, peerRequest{Op: opStats}, used); err != nil {
			return err
		}
		used.setConstants()
		mu.Lock()
		defer mu.Unlock()
		list[i].NodeStats = used
		return nil
	})
	if err != nil {
		a.cfg.Logger.Info("a node does not tell about itself", "err", err) // what the catalog knows is shown
	}
	sortByName(list)
	return list
}

func sortByName(list []Node) {
	slices.SortFunc(list, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
}

func (a *API) clusterInfo() clusterInfo {
	c := a.cfg.Cluster
	name, _, _ := strings.Cut(c.Local(), "/")
	info := clusterInfo{ID: c.ClusterID(), Node: name, Level: c.Level(), Leader: c.CatalogLeader(), Voters: []string{}, Zones: map[string][]string{}}
	list := c.Nodes()
	sortByName(list)
	for _, n := range list {
		if n.CatalogVoter {
			info.Voters = append(info.Voters, n.Name)
		}
		info.Zones[n.Zone] = append(info.Zones[n.Zone], n.Name)
	}
	return info
}
