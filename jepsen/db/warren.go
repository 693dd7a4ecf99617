package db

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/test/cluster"
)

// timeoutAnswer bounds a question to one node.
const timeoutAnswer = time.Second

// Warren is a cluster of Warren nodes.
type Warren struct {
	c      *cluster.Cluster
	client *http.Client
	// failpoints: the binary was built with them.
	failpoints bool

	mu  sync.Mutex
	env map[string]map[string]string // of each node, by name
}

// NewWarren prepares a cluster of the nodes of net, which must be named NodeNames.
func NewWarren(net network.Network, opts Options) (DB, error) {
	w := &Warren{failpoints: opts.Failpoints, env: map[string]map[string]string{}, client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	var err error
	w.c, err = cluster.New(cluster.Config{
		Nodes: opts.Nodes, Binary: opts.Binary, Dir: opts.Dir, Env: opts.Env,
		Places: func(node string) (cluster.Place, error) {
			p, err := net.Place(node)
			return place(p), err
		},
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// place tells the cluster of a place of the network. Clients and their HTTP requests reach the
// node over its loopback: only from there the user guest may log in.
func place(p network.Place) cluster.Place {
	return cluster.Place{Host: p.Host, Run: p.Run, Args: func(a cluster.Addrs) (args []string, err error) {
		if p.Advertise != nil {
			addr, err := p.Advertise(a.Cluster)
			return []string{"--cluster-advertise-addr", addr}, err
		}
		for flag, addr := range map[string]string{"--amqp-addr": a.AMQP, "--http-addr": a.HTTP, "--grpc-addr": a.GRPC} {
			_, port, err := net.SplitHostPort(addr)
			if err == nil {
				err = p.Expose(port)
			}
			if err != nil {
				return nil, err
			}
			args = append(args, flag, net.JoinHostPort("127.0.0.1", port))
		}
		return args, nil
	}}
}

// Name implements DB.
func (w *Warren) Name() string { return "warren" }

// Nodes implements DB.
func (w *Warren) Nodes() []string {
	var names []string
	for _, n := range w.c.Nodes() {
		names = append(names, n.Name)
	}
	return names
}

// Start implements DB.
func (w *Warren) Start(ctx context.Context) error { return w.c.StartAll(ctx) }

// get does an HTTP request as User.
func (w *Warren) get(ctx context.Context, target string) ([]byte, error) {
	return w.ask(ctx, http.MethodGet, target, http.NoBody)
}

func (w *Warren) ask(ctx context.Context, method, target string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth(User, User)
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s: %s: %s", target, resp.Status, bytes.TrimSpace(answer))
	}
	return answer, nil
}

// Launch implements DB.
func (w *Warren) Launch(node string) error { return w.c.ByName(node).Launch() }

// Ready implements DB.
func (w *Warren) Ready(ctx context.Context) error { return w.c.WaitReady(ctx) }

// Running implements DB.
func (w *Warren) Running(node string) bool { return w.c.ByName(node).Running() }

// Signal implements DB.
func (w *Warren) Signal(node string, sig syscall.Signal) error { return w.c.ByName(node).Signal(sig) }

// Kill implements DB.
func (w *Warren) Kill(node string) error { return w.c.ByName(node).Kill() }

// Stop implements DB.
func (w *Warren) Stop(ctx context.Context, node string) error { return w.c.ByName(node).Stop(ctx) }

// AMQP implements DB.
func (w *Warren) AMQP(node string) string { return w.c.ByName(node).AMQPAddr() }

// GRPC implements DB.
func (w *Warren) GRPC(node string) string { return w.c.ByName(node).GRPCAddr() }

// HTTP implements DB.
func (w *Warren) HTTP(node string) string { return w.c.ByName(node).HTTP() }

// Leader implements DB. A node that says it leads is believed first: one that is cut
// off may be wrong about it, and so may the others.
func (w *Warren) Leader(ctx context.Context, queue string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutAnswer)
	defer cancel()
	nodes := w.c.Nodes()
	said := make([]string, len(nodes))
	var g errgroup.Group
	for i, n := range nodes {
		if !n.Running() {
			continue
		}
		g.Go(func() error {
			queues, err := n.Queues(ctx)
			for _, q := range queues {
				if q.VHost == "/" && q.Name == queue {
					said[i] = q.Leader
				}
			}
			return err
		})
	}
	err := g.Wait()
	leader := ""
	for i, name := range said {
		if name == nodes[i].Name {
			return name, nil
		}
		if name != "" {
			leader = name
		}
	}
	if leader != "" {
		err = nil
	}
	return leader, err
}

// Count implements DB.
func (w *Warren) Count(ctx context.Context, queue string) (Count, error) {
	q, err := w.c.Queue(ctx, queue)
	if err != nil {
		return Count{}, err
	}
	if q.Leader == "" {
		return Count{}, fmt.Errorf("queue %q has no leader", queue)
	}
	count := Count{Ready: q.Ready, Unacked: q.Unacked, Leaving: q.Outbox}
	for _, n := range w.c.Nodes() {
		if !n.Running() {
			continue
		}
		body, err := w.get(ctx, n.HTTP()+"/api/queues/%2F/"+url.PathEscape(queue))
		if err != nil {
			return Count{}, err
		}
		var answer struct {
			Messages int `json:"messages"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return Count{}, fmt.Errorf("queue %q over HTTP: %w", queue, err)
		}
		count.API = answer.Messages
		return count, nil
	}
	return Count{}, fmt.Errorf("no node runs that could tell about %q", queue)
}

// Break implements DB.
func (w *Warren) Break(ctx context.Context, node string, d Disk) error {
	if !w.failpoints {
		return ErrUnsupported
	}
	return w.c.ByName(node).SetDisk(ctx, cluster.Disk{Full: d.Full, Failing: d.Failing, SyncDelay: d.SyncDelay})
}

// Arm implements DB.
func (w *Warren) Arm(ctx context.Context, node, point string, at uint64) error {
	if !w.failpoints {
		return ErrUnsupported
	}
	return w.c.ByName(node).Arm(ctx, cluster.Failpoint{Point: point, Action: "kill", At: at})
}

// Disarm implements DB.
func (w *Warren) Disarm(ctx context.Context, node string) error {
	if !w.failpoints {
		return ErrUnsupported
	}
	return w.c.ByName(node).Disarm(ctx)
}

// SetClock implements DB.
func (w *Warren) SetClock(node string, offset time.Duration) error {
	return w.setEnv(node, cluster.ClockEnv, offset.String())
}

// SetForget implements DB.
func (w *Warren) SetForget(node string, keep int) error {
	return w.setEnv(node, cluster.ForgetEnv, strconv.Itoa(keep))
}

// setEnv sets a variable of the node's environment beside the others.
func (w *Warren) setEnv(node, name, value string) error {
	if !w.failpoints {
		return ErrUnsupported
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.env[node] == nil {
		w.env[node] = map[string]string{}
	}
	w.env[node][name] = value
	var list []string
	for name, value := range w.env[node] {
		list = append(list, name+"="+value)
	}
	w.c.ByName(node).SetEnv(list...)
	return nil
}

// Members implements DB.
func (w *Warren) Members(ctx context.Context, queue string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutAnswer)
	defer cancel()
	q, err := w.c.Queue(ctx, queue)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(q.Members))
	for i, m := range q.Members {
		names[i], _, _ = strings.Cut(m, "/")
	}
	return names, nil
}

// SetMember implements DB.
func (w *Warren) SetMember(ctx context.Context, queue, node string, member bool) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	method, path := http.MethodDelete, "delete"
	if member {
		method, path = http.MethodPost, "add"
	}
	path = "/api/queues/quorum/%2F/" + url.PathEscape(queue) + "/replicas/" + path + "?for=0"
	err := errors.New("no node runs")
	for _, n := range w.c.Nodes() {
		if !n.Running() {
			continue
		}
		if _, err = w.ask(ctx, method, n.HTTP()+path, strings.NewReader(`{"node":"`+node+`"}`)); err == nil {
			return nil
		}
	}
	return err
}

// Move implements DB.
func (w *Warren) Move(node string) error { return w.c.ByName(node).Move() }

// States implements DB.
func (w *Warren) States(ctx context.Context, node string) ([]State, error) {
	if !w.failpoints {
		return nil, ErrUnsupported
	}
	list, err := w.c.ByName(node).ReplicaStates(ctx)
	if err != nil {
		return nil, err
	}
	states := make([]State, len(list))
	for i, s := range list {
		states[i] = State{Of: s.Name, Applied: s.Applied, Digest: s.State}
		if s.Queue > 0 {
			states[i].Of = fmt.Sprintf("queue %d %s", s.Queue, s.Name)
		}
	}
	return states, nil
}

// LogFile implements DB.
func (w *Warren) LogFile(node string) string { return w.c.ByName(node).LogFile() }

// DataDir implements DB.
func (w *Warren) DataDir(node string) string { return w.c.ByName(node).DataDir() }

// Crashes implements DB.
func (w *Warren) Crashes() string { return w.c.Crashes() }

// Close implements DB.
func (w *Warren) Close() error { return w.c.Close() }
