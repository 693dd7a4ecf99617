package management

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// QueueDetails are what nodes are asked about the queues on a page, and not about all.
type QueueDetails struct {
	// Memory is about how many bytes the node that leads holds for the queue; see [broker.QueueDetail].
	Memory int64 `json:"memory"`
	// HeadTimestamp is the timestamp property of the oldest message, in seconds since 1970, null if there is none or it has none.
	HeadTimestamp *uint64 `json:"head_message_timestamp"`
	// IdleSince is when something happened last, to five seconds, if that is a while ago: a client used the queue, or its length changed.
	// Of a queue that nobody has used since then it is when it began to be led where it is.
	IdleSince string `json:"idle_since,omitempty"`
	// Owner names the connection that an exclusive queue belongs to.
	Owner *ConnectionDetails `json:"owner_pid_details,omitempty"`
}

// Bounds: a list of more queues has no details unless its columns or its order ask for them, and so many are asked for at once.
const (
	detailedMax  = pageSizeMax
	detailsBatch = 1000
)

// detailNames are the fields of QueueDetails.
var detailNames = []string{"memory", "head_message_timestamp", "idle_since", "owner_pid_details"}

func namesDetail(path []string) bool { return len(path) > 0 && slices.Contains(detailNames, path[0]) }

// queueDetail is what one node knows of a queue.
type queueDetail struct {
	ID      uint64             `json:"id"`
	Session uint64             `json:"session,omitempty"` // 0: it is not led there
	Memory  int64              `json:"memory,omitempty"`
	Head    *uint64            `json:"head,omitempty"`
	Since   int64              `json:"since,omitempty"`
	Owner   *ConnectionDetails `json:"owner,omitempty"`
	Used    int64              `json:"used,omitempty"` // ms since 1970; 0: not by what is known there
}

type peerDetails struct {
	Queues []queueDetail `json:"queues"`
}

// detailsHere are those of this node.
func (a *API) detailsHere(ids []uint64) peerDetails {
	list := make([]queueDetail, len(ids))
	at := make(map[uint64]*queueDetail, len(ids))
	for i, id := range ids {
		d := &list[i]
		d.ID, at[id] = id, d
		for _, kind := range []stats.Kind{stats.Queue, stats.Led} {
			if used, ok := a.cfg.Sampler.Changed(stats.Key{Kind: kind, ID: id}); ok {
				d.Used = max(d.Used, used)
			}
		}
	}
	for _, q := range a.cfg.Broker.QueueDetails(ids) {
		d := at[q.ID]
		d.Session, d.Memory, d.Head, d.Since, d.Owner = q.Session, q.Memory, q.HeadTimestamp, q.Since, ownerOf(&q)
	}
	return peerDetails{slices.DeleteFunc(list, func(d queueDetail) bool { return d.Session == 0 && d.Used == 0 })}
}

func ownerOf(q *broker.QueueDetail) *ConnectionDetails {
	if q.Owner == nil || q.OwnerLocal == nil {
		return nil
	}
	host, port := HostPort(q.Owner)
	return &ConnectionDetails{Name: q.Owner.String() + " -> " + q.OwnerLocal.String(), PeerHost: host, PeerPort: port}
}

// queueDetails asks all nodes for the details of queues. Those that no node leads have none.
func (a *API) queueDetails(ctx context.Context, ids []uint64) map[uint64]*QueueDetails {
	found := map[uint64]*queueDetail{}
	var mu sync.Mutex
	add := func(p peerDetails) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range p.Queues {
			old := found[d.ID]
			if old == nil {
				old = &queueDetail{}
				found[d.ID] = old
			}
			used := max(old.Used, d.Used)
			if d.Session >= old.Session {
				*old = d
			}
			old.Used = used
		}
	}
	add(a.detailsHere(ids))
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		for batch := range slices.Chunk(ids, detailsBatch) {
			var p peerDetails
			if err := a.ask(ctx, node, peerRequest{Op: opDetails, Queues: batch}, &p); err != nil {
				return err
			}
			add(p)
		}
		return nil
	})
	if err != nil {
		a.cfg.Logger.Info("details of queues of some nodes are missing", "err", err)
	}
	now := a.now().UnixMilli()
	m := make(map[uint64]*QueueDetails, len(found))
	for id, d := range found {
		if d.Session == 0 {
			continue
		}
		j := &QueueDetails{Memory: d.Memory, HeadTimestamp: d.Head, Owner: d.Owner}
		if d.Used == 0 {
			d.Used = d.Since
		}
		if now-d.Used > 2*stats.Interval.Milliseconds() {
			j.IdleSince = Instant(d.Used)
		}
		m[id] = j
	}
	return m
}

// listDetails asks for the details of a list. A page does not wait long for a node that is slow.
func (a *API) listDetails(ctx context.Context, names []broker.QueueName) map[uint64]*QueueDetails {
	if len(names) <= detailedMax {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tellTime)
		defer cancel()
	}
	ids := make([]uint64, len(names))
	for i := range names {
		ids[i] = names[i].ID
	}
	return a.queueDetails(ctx, ids)
}

// showsDetails tells whether a list of n queues has details.
func (q *listQuery) showsDetails(n int) bool {
	if q.columns == nil {
		return n <= detailedMax
	}
	return slices.ContainsFunc(detailNames, func(name string) bool { _, wanted := q.columns[name]; return wanted })
}

func (a *API) answerDetails(ids []uint64) ([]byte, error) { return json.Marshal(a.detailsHere(ids)) }
