package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

// FailpointsTag is the build tag of binaries whose steps can be stopped: see package
// failpoint.
const FailpointsTag = "failpoints"

// Failpoint is an armed point of a node that was built with FailpointsTag.
type Failpoint struct {
	Point  string `json:"point"`
	Queue  uint64 `json:"queue"`  // its id, 0 for any
	Action string `json:"action"` // kill, hold or count
	At     uint64 `json:"at"`     // the pass that counts, from 1
	Passes uint64 `json:"passes"`
	Held   bool   `json:"held"`
}

// dying is how long a process that is being killed may take to end.
const dying = 2 * time.Second

// Arm arms a point. Where the action is "kill", the node may be dead before it has answered: something passed at once.
func (n *Node) Arm(ctx context.Context, f Failpoint) error {
	running := n.Running()
	_, err := n.failpoints(ctx, http.MethodPost, url.Values{
		"point": {f.Point}, "queue": {strconv.FormatUint(f.Queue, 10)},
		"action": {f.Action}, "at": {strconv.FormatUint(f.At, 10)},
	})
	if err == nil || f.Action != "kill" || !running || errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dying)
	defer cancel()
	if _, alive := n.Wait(ctx); alive != nil {
		return err
	}
	return nil
}

// Armed tells what has happened at the armed points.
func (n *Node) Armed(ctx context.Context) ([]Failpoint, error) {
	return n.failpoints(ctx, http.MethodGet, nil)
}

// Disarm takes all points of the node away and releases what is held at them.
func (n *Node) Disarm(ctx context.Context) error {
	_, err := n.failpoints(ctx, http.MethodDelete, nil)
	return err
}

// GroupLog tells of a queue's log at a node that was built with FailpointsTag.
type GroupLog struct {
	Received uint64 `json:"received"` // snapshots that this process has got, of all queues
	Last     uint64 `json:"last"`     // newest entry
	Applied  uint64 `json:"applied"`  // newest applied entry
}

// Snapshot has the node take a snapshot of the queue's log and drop the log behind it, so
// that a member that has not got it must be filled by the snapshot.
func (n *Node) Snapshot(ctx context.Context, queue uint64) (GroupLog, error) {
	return n.groupLog(ctx, http.MethodPost, queue)
}

// GroupLog asks for the state of a queue's log there.
func (n *Node) GroupLog(ctx context.Context, queue uint64) (GroupLog, error) {
	return n.groupLog(ctx, http.MethodGet, queue)
}

func (n *Node) groupLog(ctx context.Context, method string, queue uint64) (l GroupLog, err error) {
	body, err := n.debug(ctx, method, "snapshots", url.Values{"queue": {strconv.FormatUint(queue, 10)}})
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(body, &l); err != nil {
		return l, fmt.Errorf("log of queue %d at %s: %w", queue, n.Name, err)
	}
	return l, nil
}

// Cut silences the links between two nodes, in both directions; gossip goes on, which
// carries nothing but addresses. Both must be built with FailpointsTag.
func Cut(ctx context.Context, a, b *Node) error { return link(ctx, a, b, "cut") }

// Heal ends what Cut began. A node that was started again since has no cut links.
func Heal(ctx context.Context, a, b *Node) error { return link(ctx, a, b, "heal") }

func link(ctx context.Context, a, b *Node, what string) error {
	_, first := a.failpoints(ctx, http.MethodPost, url.Values{what: {b.clusterAddr()}})
	_, second := b.failpoints(ctx, http.MethodPost, url.Values{what: {a.clusterAddr()}})
	return errors.Join(first, second)
}

func (n *Node) clusterAddr() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addrs.Cluster
}

func (n *Node) failpoints(ctx context.Context, method string, query url.Values) ([]Failpoint, error) {
	body, err := n.debug(ctx, method, "failpoints", query)
	if err != nil {
		return nil, err
	}
	var list []Failpoint
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("failpoints of %s: %w", n.Name, err)
	}
	return list, nil
}

// ForgetEnv is the environment variable (see SetEnv) of a node with failpoints whose disk loses
// at SIGKILL what was not synced. Its value is the percentage of unsynced writes
// that are kept, as a disk may.
const ForgetEnv = "WARREN_DISK_FORGET"

// SyncDelayEnv is the environment variable with what is added to each sync of the disk of a node with failpoints, from its start on, like "100ms".
const SyncDelayEnv = "WARREN_DISK_SYNC_DELAY"

// ClockEnv is the environment variable with what a node with failpoints adds to the
// machine's clock, like "-90m".
const ClockEnv = "WARREN_CLOCK_OFFSET"

// Disk is what is wrong with the disk of a node that was built with FailpointsTag. The zero
// Disk is sound.
type Disk struct {
	Full       bool
	Failing    bool          // writes and syncs fail; the process ends by it
	Unreadable bool          // reads fail
	SyncDelay  time.Duration // of each sync
}

// SetDisk breaks or mends the disk under the node's log store until the process ends.
func (n *Node) SetDisk(ctx context.Context, d Disk) error {
	_, err := n.debug(ctx, http.MethodPost, "disk", url.Values{
		"full": {strconv.FormatBool(d.Full)}, "failing": {strconv.FormatBool(d.Failing)}, "unreadable": {strconv.FormatBool(d.Unreadable)},
		"sync-delay": {d.SyncDelay.String()},
	})
	return err
}

// ReplicaState is what a node with failpoints says of a replica that it holds. Queue 0 is the
// catalog.
type ReplicaState struct {
	Queue   uint64 `json:"queue"` // its id
	VHost   string `json:"vhost"`
	Name    string `json:"name"`
	Applied uint64 `json:"applied"` // the index of the newest entry applied
	State   string `json:"state"`   // digests the whole replicated state
}

// ReplicaStates asks a node that was built with FailpointsTag what its replicas hold.
func (n *Node) ReplicaStates(ctx context.Context) ([]ReplicaState, error) {
	body, err := n.debug(ctx, http.MethodGet, "state", nil)
	if err != nil {
		return nil, err
	}
	var list []ReplicaState
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("replicas of %s: %w", n.Name, err)
	}
	return list, nil
}

// debug asks what is there in builds with FailpointsTag alone.
func (n *Node) debug(ctx context.Context, method, what string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutDebug)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, n.HTTP()+"/debug/"+what+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := n.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s of %s: %s: %s", what, n.Name, resp.Status, body)
	}
	return body, nil
}
