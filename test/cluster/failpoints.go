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

// Arm arms a point.
func (n *Node) Arm(ctx context.Context, f Failpoint) error {
	_, err := n.failpoints(ctx, http.MethodPost, url.Values{
		"point": {f.Point}, "queue": {strconv.FormatUint(f.Queue, 10)},
		"action": {f.Action}, "at": {strconv.FormatUint(f.At, 10)},
	})
	return err
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
	ctx, cancel := context.WithTimeout(ctx, timeoutRequest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, n.HTTP()+"/debug/failpoints?"+query.Encode(), http.NoBody)
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
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("failpoints of %s: %s: %s", n.Name, resp.Status, body)
	}
	var list []Failpoint
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("failpoints of %s: %w", n.Name, err)
	}
	return list, nil
}
