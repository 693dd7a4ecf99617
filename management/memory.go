package management

import (
	"context"
	"math"
	"net/http"
)

// Memory is what a node's memory is used for, in bytes.
type Memory struct {
	// Node is its name.
	Node string `json:"node"`
	// Used is what the alarm counts, and Limit where it begins: less than Total by what is free or was never touched.
	Used  uint64 `json:"used"`
	Limit uint64 `json:"limit"`
	// Total is the sum of the parts: what Go's runtime holds.
	Total uint64       `json:"total"`
	Parts []MemoryPart `json:"parts"`
}

// MemoryPart is a part of it; no byte is in two.
type MemoryPart struct {
	Part  string `json:"part"`
	Bytes uint64 `json:"bytes"`
	About string `json:"about"` // for people
}

func (a *API) routeMemory() {
	a.handle("GET /api/warren/memory", monitor(func(*http.Request, User) (any, error) {
		m := a.cfg.Local.Memory()
		m.Node = a.localName()
		return m, nil
	}))
}

// erlangParts are the parts of which RabbitMQ tells, in its words. Tools read numbers of all of them; most stand for what there is only in Erlang.
var erlangParts = []string{
	"connection_readers", "connection_writers", "connection_channels", "connection_other", "stream_queue_procs", "stream_queue_replica_reader_procs",
	"stream_queue_coordinator_procs", "queue_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "plugins", "metadata_store", "other_proc", "metrics",
	"mgmt_db", "quorum_ets", "mnesia", "metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system", "allocated_unused",
	"reserved_unallocated",
}

// erlangPart names those of them that are the nearest to our parts. What it does not name, as of a newer node, is other_system.
var erlangPart = map[string]string{
	"queues": "quorum_queue_procs", "queue_leaders": "quorum_queue_procs", "transient_messages": "queue_procs", "other_objects": "other_proc",
	"stacks": "other_proc", "runtime": "other_system", "heap_unused": "allocated_unused", "heap_free": "reserved_unallocated",
}

// inErlangsParts are the bytes by RabbitMQ's names.
func (m *Memory) inErlangsParts() map[string]uint64 {
	parts := map[string]uint64{}
	for _, name := range erlangParts {
		parts[name] = 0
	}
	for _, p := range m.Parts {
		name := erlangPart[p.Part]
		if name == "" {
			name = "other_system"
		}
		parts[name] += p.Bytes
	}
	return parts
}

// breakdown has RabbitMQ's form: what is in use, what is allocated for it, and what the alarm counts as rss, which is the one that decides.
func (m *Memory) breakdown() map[string]any {
	b := map[string]any{"strategy": "rss"}
	parts := m.inErlangsParts()
	for name, bytes := range parts {
		b[name] = bytes
	}
	allocated := m.Total - min(m.Total, parts["reserved_unallocated"])
	b["total"] = map[string]uint64{"erlang": allocated - min(allocated, parts["allocated_unused"]), "allocated": allocated, "rss": m.Used}
	return b
}

// relative has the parts in percent of their sum, in RabbitMQ's form: there is no part of less than one percent but of nothing.
func (m *Memory) relative() map[string]any {
	b := map[string]any{"total": 100}
	for name, bytes := range m.inErlangsParts() {
		percent := 0
		if bytes > 0 && m.Total > 0 {
			percent = max(1, int(math.Round(100*float64(bytes)/float64(m.Total))))
		}
		b[name] = percent
	}
	return b
}

// memoryOf is what a node uses its memory for, in one of those forms; RabbitMQ's word if the node does not tell: it does not run, or is of an older version.
func (a *API) memoryOf(ctx context.Context, n *Node, form func(*Memory) map[string]any) any {
	var m Memory
	if n.ID == a.cfg.Cluster.Local() {
		m = a.cfg.Local.Memory()
		return form(&m)
	}
	if n.Running {
		ctx, cancel := context.WithTimeout(ctx, timeoutPeers)
		defer cancel()
		err := a.ask(ctx, n.ID, peerRequest{Op: opMemory}, &m)
		if err == nil {
			return form(&m)
		}
		a.cfg.Logger.Info("a node does not tell what it uses its memory for", "err", err)
	}
	return "not_available"
}
