package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// rabbitQueue is what RabbitMQ's management API says about a queue.
type rabbitQueue struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	State    string   `json:"state"`
	Node     string   `json:"node"`
	Leader   string   `json:"leader"`
	Online   []string `json:"online"`
	Messages int      `json:"messages"`
	Ready    int      `json:"messages_ready"`
	Unacked  int      `json:"messages_unacknowledged"`
	// Leaving are dead letters that wait for the confirms of their targets.
	Leaving int `json:"messages_dlx"`
}

// ask does an HTTP request to a node as User, and reads the answer into out.
func (r *RabbitMQ) ask(ctx context.Context, n *rabbitNode, path string, out any) error {
	if err := r.get(ctx, r.HTTP(n.name)+path, out); err != nil {
		return fmt.Errorf("%s of %s: %w", path, n.name, err)
	}
	return nil
}

func (r *RabbitMQ) get(ctx context.Context, target string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return err
	}
	req.SetBasicAuth(User, User)
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.Unmarshal(answer, out)
}

// members returns how many nodes a node sees running.
func (r *RabbitMQ) members(ctx context.Context, n *rabbitNode) (int, error) {
	var nodes []struct {
		Running    bool     `json:"running"`
		Partitions []string `json:"partitions"`
	}
	if err := r.ask(ctx, n, "/api/nodes?columns=name,running,partitions", &nodes); err != nil {
		return 0, err
	}
	seen := 0
	for _, m := range nodes {
		if m.Running && len(m.Partitions) == 0 {
			seen++
		}
	}
	return seen, nil
}

// queues returns all queues of the vhost "/".
func (r *RabbitMQ) queues(ctx context.Context, n *rabbitNode) (list []rabbitQueue, err error) {
	return list, r.ask(ctx, n, "/api/queues/%2F", &list)
}

// Leader implements DB. The first node that answers is believed; all are asked at once.
func (r *RabbitMQ) Leader(ctx context.Context, queue string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutAnswer)
	defer cancel()
	type answer struct {
		leader string
		err    error
	}
	answers := make(chan answer, len(r.nodes))
	for _, n := range r.nodes {
		go func() { // ends with ctx
			q, err := r.queue(ctx, n, queue)
			leader := q.Leader
			if leader == "" {
				leader = q.Node // a classic queue's only one
			}
			answers <- answer{leader, err}
		}()
	}
	var last error
	for range r.nodes {
		a := <-answers
		if a.err != nil {
			last = a.err
			continue
		}
		for _, n := range r.nodes {
			if n.erlangName() == a.leader {
				return n.name, nil
			}
		}
	}
	return "", last
}

func (r *RabbitMQ) queue(ctx context.Context, n *rabbitNode, name string) (q rabbitQueue, err error) {
	return q, r.ask(ctx, n, "/api/queues/%2F/"+url.PathEscape(name), &q)
}

// Count implements DB. RabbitMQ's figures lag behind: it is an error until they have been the
// same for rabbitSettled.
func (r *RabbitMQ) Count(ctx context.Context, queue string) (Count, error) {
	err := fmt.Errorf("no node runs that could tell about %q", queue)
	for _, n := range r.nodes {
		if !n.running() {
			continue
		}
		var q rabbitQueue
		if q, err = r.queue(ctx, n, queue); err != nil {
			continue
		}
		count := Count{Ready: q.Ready, Unacked: q.Unacked, Leaving: q.Leaving, API: q.Ready + q.Unacked}
		r.mu.Lock()
		defer r.mu.Unlock()
		seen := r.seen[queue]
		if seen.since.IsZero() || seen.count != count {
			seen = seenCount{count, time.Now()}
			r.seen[queue] = seen
		}
		if time.Since(seen.since) < rabbitSettled {
			return Count{}, fmt.Errorf("what is said about %q has just changed: %d ready, %d unacked, %d leaving", queue, count.Ready, count.Unacked, count.Leaving)
		}
		return count, nil
	}
	return Count{}, err
}
