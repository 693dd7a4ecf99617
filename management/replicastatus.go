package management

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/cluster/replicas"
)

// Replica is what a node tells of its replica of a queue.
type Replica struct {
	State    string `json:"state"`  // follower, candidate, leader
	Leader   string `json:"leader"` // id of the node that it follows, "" if it knows none
	Term     uint64 `json:"term"`
	Last     uint64 `json:"last"` // indexes of entries
	Commit   uint64 `json:"commit"`
	Applied  uint64 `json:"applied"`
	Snapshot uint64 `json:"snapshot"`
	// Membership is voter, promotable, or "" for one that the group does not have, or not yet.
	Membership string `json:"membership"`
	Generation uint64 `json:"generation"`
	Level      int    `json:"level"` // of the cluster, as the node knows
	// Of a leader: since when, in ms since 1970, the id of the node that led before as far as it knew, and whether it could be reached then.
	Elected       int64  `json:"elected,omitempty"`
	ElectedFrom   string `json:"elected_from,omitempty"`
	ElectedFromUp bool   `json:"elected_from_up,omitempty"`
}

// peerReplica is the answer to opReplica.
type peerReplica struct {
	Runs    bool    `json:"runs"`
	Replica Replica `json:"replica"`
}

// The states of a replica that tells nothing, in RabbitMQ's words.
const (
	stateNodeDown = "nodedown"
	stateNone     = "noproc"  // the node runs, and no replica
	stateUnknown  = "timeout" // it has not answered
)

// replicaRow is a replica as `rabbitmq-queues quorum_status` shows it; numbers are "" if they are not known.
type replicaRow struct {
	Node           string `json:"Node Name"`
	State          string `json:"Raft State"`
	Membership     string `json:"Membership"`
	Last           any    `json:"Last Log Index"`
	Applied        any    `json:"Last Applied"`
	Commit         any    `json:"Commit Index"`
	Snapshot       any    `json:"Snapshot Index"`
	Term           any    `json:"Term"`
	MachineVersion any    `json:"Machine Version"`
	// What RabbitMQ does not tell: the entries that the leader has and this one has not, what is planned for it: stays, joins or goes,
	// and of the leader when and after whom it was elected.
	Lag      any    `json:"Lag"`
	Planned  string `json:"Planned"`
	Election string `json:"Election,omitempty"`
}

func (a *API) routeReplicaStatus() {
	a.handle("GET /api/queues/quorum/{vhost}/{name}/status", func(r *http.Request, u User) (any, error) {
		vhost, err := a.vhost(r, u)
		if err != nil {
			return nil, err
		}
		q, err := a.cfg.Replicas.Find(r.Context(), vhost, r.PathValue("name"))
		if err != nil {
			return nil, ofReplicas(err)
		}
		return statusRows(q, a.askReplicas(r.Context(), q)), nil
	})
	a.handle("PUT /api/warren/queues/{vhost}/{name}/leader", a.admin(a.moveLeader))
}

// told is what came of asking a member.
type told struct {
	state   string // of a replica that tells nothing
	replica *Replica
}

// askReplicas asks the members of a queue at once, in their order.
func (a *API) askReplicas(ctx context.Context, q replicas.Queue) []told {
	ctx, cancel := context.WithTimeout(ctx, timeoutPeers)
	defer cancel()
	all := make([]told, len(q.Members))
	var wg sync.WaitGroup
	for i, m := range q.Members {
		wg.Go(func() { all[i] = a.askReplica(ctx, m, q.ID) })
	}
	wg.Wait()
	return all
}

func (a *API) askReplica(ctx context.Context, m replicas.Member, queue uint64) told {
	var answer peerReplica
	switch {
	case m.ID == a.cfg.Cluster.Self():
		answer.Replica, answer.Runs = a.cfg.Replicas.Replica(queue)
	case !m.Running:
		return told{state: stateNodeDown}
	default:
		if err := a.ask(ctx, m.ID, peerRequest{Op: opReplica, Queue: queue}, &answer); err != nil {
			a.cfg.Logger.Debug("a replica does not tell about itself", "queue", queue, "err", err)
			return told{state: stateUnknown}
		}
	}
	if !answer.Runs {
		return told{state: stateNone}
	}
	return told{replica: &answer.Replica}
}

// answerReplica is the side of the node that is asked.
func (a *API) answerReplica(queue uint64) ([]byte, error) {
	r, ok := a.cfg.Replicas.Replica(queue)
	return json.Marshal(peerReplica{Runs: ok, Replica: r})
}

// leaderOf finds which member leads: of those who say so, the one of the newest term; -1: none.
func leaderOf(all []told) int {
	at := -1
	for i, t := range all {
		if t.replica != nil && t.replica.State == "leader" && (at < 0 || t.replica.Term > all[at].replica.Term) {
			at = i
		}
	}
	return at
}

// election says when and after whom a leader was elected.
func election(q replicas.Queue, r *Replica) string {
	if r.Elected == 0 {
		return "" // of an older version
	}
	at := Instant(r.Elected)
	if r.ElectedFrom == "" {
		return at + ", after nobody that it knew"
	}
	name, _, _ := strings.Cut(r.ElectedFrom, "/") // of a member that is none any more
	if i := slices.IndexFunc(q.Members, func(m replicas.Member) bool { return m.ID == r.ElectedFrom }); i >= 0 {
		name = q.Members[i].Name
	}
	if r.ElectedFromUp {
		return at + ", after " + name + ", which was up"
	}
	return at + ", after " + name + ", which could not be reached"
}

func statusRows(q replicas.Queue, all []told) []replicaRow {
	leader := leaderOf(all)
	rows := make([]replicaRow, len(all))
	for i, t := range all {
		row := replicaRow{
			Node: q.Members[i].Name, State: t.state, Last: "", Applied: "", Commit: "", Snapshot: "", Term: "", MachineVersion: "", Lag: "", Planned: "stays",
		}
		if !q.Members[i].Stays {
			row.Planned = "goes"
		}
		if r := t.replica; r != nil {
			row.State, row.Membership, row.Last, row.Applied, row.Commit = r.State, r.Membership, r.Last, r.Applied, r.Commit
			row.Snapshot, row.Term, row.MachineVersion = r.Snapshot, r.Term, r.Level
			if row.Planned == "stays" && r.Membership != "voter" {
				row.Planned = "joins"
			}
			if i == leader {
				row.Election = election(q, r)
			}
			if leader >= 0 {
				row.Lag = all[leader].replica.Last - min(all[leader].replica.Last, r.Last)
			}
		}
		rows[i] = row
	}
	return rows
}

// newLeader is the answer to a leadership that was moved.
type newLeader struct {
	Leader string `json:"leader"`
}

// moveTimeout bounds the move of a leadership.
const moveTimeout = 10 * time.Second

// moveLeader has a queue led by a member from now on: 200 when it leads, 202 if it will as soon as it can.
func (a *API) moveLeader(r *http.Request) (any, error) {
	node, err := nodeInBody(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), moveTimeout)
	defer cancel()
	q, to, changed, err := a.cfg.Replicas.Prefer(ctx, r.PathValue("vhost"), r.PathValue("name"), node)
	if err != nil {
		return nil, ofReplicas(err)
	}
	reason := "no replica leads the queue"
	if leader := leaderOf(a.askReplicas(ctx, q)); leader >= 0 {
		from := q.Members[leader].ID
		switch {
		case from == to && !changed:
			return nil, &refusal{http.StatusConflict, "already_leader", "The target node is already the leader of this queue"}
		case from == to:
			return newLeader{node}, nil
		case from == a.cfg.Cluster.Self():
			err = a.cfg.Replicas.MoveLeader(ctx, q.ID, to)
		default:
			err = a.ask(ctx, from, peerRequest{Op: opMoveLeader, Queue: q.ID, To: to}, new(peerMoved))
		}
		if err == nil {
			return newLeader{node}, nil
		}
		reason = err.Error()
	}
	if leader := leaderOf(a.askReplicas(ctx, q)); leader >= 0 && q.Members[leader].ID == to {
		return newLeader{node}, nil // it went there by itself
	}
	return underWay{Status: "under_way", Reason: "the leadership goes there as soon as that can be: " + reason}, nil
}

// peerMoved is the answer to opMoveLeader.
type peerMoved struct{}

func (a *API) answerMoveLeader(ctx context.Context, req *peerRequest) ([]byte, error) {
	if err := a.cfg.Replicas.MoveLeader(ctx, req.Queue, req.To); err != nil {
		return nil, err
	}
	return json.Marshal(peerMoved{})
}
