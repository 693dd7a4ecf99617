package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// startTime bounds the start of a node, and what else there is for it to do until it is ready.
const startTime = 90 * time.Second

// fault is something that happens to a node, and is over when it returns.
type fault struct {
	name string
	// within: it takes nodes with failpoints.
	within bool
	do     func(w *world, ctx context.Context, d dice, victim *cluster.Node, t *trace) error
}

var faults = weighted[fault]{
	{2, fault{"kill", false, func(w *world, ctx context.Context, d dice, victim *cluster.Node, _ *trace) error {
		return w.away(ctx, victim, victim.Kill, func() { sleep(ctx, d.between(0, 3*time.Second)) })
	}}},
	{6, fault{"kill and recover", false, (*world).killAndRecover}},
	{3, fault{"stop", false, func(w *world, ctx context.Context, d dice, victim *cluster.Node, _ *trace) error {
		return w.away(ctx, victim, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), startTime)
			defer cancel()
			return victim.Stop(ctx)
		}, func() { sleep(ctx, d.between(0, 2*time.Second)) })
	}}},
	{2, fault{"freeze", false, func(_ *world, ctx context.Context, d dice, victim *cluster.Node, _ *trace) error {
		if err := victim.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		sleep(ctx, d.between(200*time.Millisecond, 4*time.Second))
		return victim.Signal(syscall.SIGCONT)
	}}},
	{2, fault{"cut", true, func(w *world, ctx context.Context, d dice, victim *cluster.Node, t *trace) error {
		for _, n := range w.cluster.Nodes() {
			if n != victim {
				t.say("cut %v", cluster.Cut(ctx, victim, n))
			}
		}
		sleep(ctx, d.between(500*time.Millisecond, 5*time.Second))
		w.healAll(context.Background())
		return nil
	}}},
	{3, fault{"drain", false, func(w *world, ctx context.Context, d dice, victim *cluster.Node, t *trace) error {
		w.does(ctx, t, victim, deed{http.MethodPut, "warren/maintenance?for=2", ""})
		sleep(ctx, d.between(0, 2*time.Second))
		w.does(context.Background(), t, victim, deed{http.MethodDelete, "warren/maintenance", ""})
		return nil
	}}},
	{2, fault{"full disk", true, func(_ *world, ctx context.Context, d dice, victim *cluster.Node, _ *trace) error {
		if err := victim.SetDisk(ctx, cluster.Disk{Full: true}); err != nil {
			return nil // it does not answer now
		}
		sleep(ctx, d.between(500*time.Millisecond, 2*time.Second))
		return victim.SetDisk(context.Background(), cluster.Disk{})
	}}},
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// away ends a node's process and starts it again after a while.
func (w *world) away(_ context.Context, n *cluster.Node, end func() error, while func()) error {
	w.expectDown(n, true)
	if err := end(); err != nil {
		w.find("a node does not stop", "%v", err)
	}
	while()
	if err := n.Launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime) // also when the storm is over
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		w.find("a node does not start", "%v", err)
		return err
	}
	w.expectDown(n, false)
	return nil
}

// killAndRecover kills a node and lets the queues that have lost their majority by it go on without it.
func (w *world) killAndRecover(ctx context.Context, d dice, victim *cluster.Node, t *trace) error {
	other := w.node(d)
	for other == victim {
		other = w.node(d)
	}
	return w.away(ctx, victim, victim.Kill, func() {
		for range 60 {
			asking, cancel := context.WithTimeout(ctx, 5*time.Second)
			status, answer, err := w.ask(asking, other, http.MethodPost, "warren/recovery", `{"lost":["`+victim.Name+`"],"yes":true}`)
			cancel()
			t.say("recovery at %s: %d %.500s %v", other.Name, status, answer, err)
			var report struct {
				Queues []struct{ State string }
			}
			if err == nil && status == http.StatusOK && json.Unmarshal(answer, &report) == nil && len(report.Queues) > 0 || ctx.Err() != nil {
				w.answered("recovered")
				break
			}
			sleep(ctx, 200*time.Millisecond)
		}
		sleep(ctx, d.between(0, 2*time.Second))
	})
}

// harm does one fault after the other until ctx ends.
func (w *world) harm(ctx context.Context) {
	d := newDice(w.cfg.Seed, 5000)
	t := w.trace("faults")
	for {
		sleep(ctx, d.between(100*time.Millisecond, 2*time.Second))
		if ctx.Err() != nil {
			return
		}
		f, victim := faults.pick(d), w.node(d)
		if f.within && !w.cfg.Failpoints {
			continue
		}
		if !victim.Running() {
			return // a finding
		}
		t.say("%s %s", f.name, victim.Name)
		err := f.do(w, ctx, d, victim, t)
		t.say("over: %v", err)
		w.answered("fault " + f.name)
	}
}

// healAll ends what is wrong with links and disks.
func (w *world) healAll(ctx context.Context) {
	nodes := w.cluster.Nodes()
	for i, a := range nodes {
		_ = a.SetDisk(ctx, cluster.Disk{}) // what does not answer is told below
		for _, b := range nodes[:i] {
			_ = cluster.Heal(ctx, a, b) // one that was started again has no cut links
		}
	}
}

// heal brings everything back to where nothing is wrong, and all users may do everything.
func (w *world) heal(ctx context.Context) error {
	for _, n := range w.cluster.Nodes() {
		_ = n.Signal(syscall.SIGCONT) // one that does not run is started below
		if !n.Running() {
			w.ended()
			if err := n.Launch(); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if w.cfg.Failpoints {
		w.healAll(ctx)
	}
	for _, n := range w.cluster.Nodes() {
		_ = cluster.Poll(ctx, func() (bool, error) { // one that is drained is not ready
			status, _, err := w.ask(ctx, n, http.MethodDelete, "warren/maintenance", "")
			return err == nil && status == http.StatusNoContent, nil
		})
	}
	if err := w.cluster.WaitReady(ctx); err != nil {
		return fmt.Errorf("after the storm: %w", err)
	}
	var list []deed
	for _, n := range w.cluster.Nodes() {
		list = append(list, deed{http.MethodDelete, "warren/nodes/" + n.Name + "/maintenance", ""})
	}
	for _, v := range []string{"%2F", "v1", "v2"} {
		list = append(list, deed{http.MethodPut, "vhosts/" + v, "{}"}, deed{http.MethodDelete, "vhosts/" + v + "/deletion/protection", ""})
		for _, p := range []string{"p1", "p2"} {
			list = append(list, deed{http.MethodDelete, "policies/" + v + "/" + p, ""}, deed{http.MethodDelete, "operator-policies/" + v + "/" + p, ""})
		}
		for _, l := range []string{"max-connections", "max-queues"} {
			list = append(list, deed{http.MethodDelete, "vhost-limits/" + v + "/" + l, ""})
		}
	}
	if err := w.doAll(ctx, w.cluster.Node(0), list); err != nil {
		return err
	}
	return w.found(ctx)
}
