//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warrenmq/warren/test/cluster"
)

// napSlack is the timer slack of the nodes' threads (ADR 51).
const napSlack = 5 * time.Millisecond

// run is one measurement. Its clients are in this process; what they use is not counted.
type run struct {
	rate             int
	warmup, duration time.Duration

	nodes     []*exec.Cmd  // the followers, needed and spare, and the leader
	said      bytes.Buffer // what nodes that have ended wrote to their standard error
	latencies []time.Duration
}

// result is the line that is printed.
type result struct {
	Links  string    `json:"links"`
	NoDisk bool      `json:"no_disk,omitempty"`
	Rate   int       `json:"rate"`
	P50    float64   `json:"confirm_p50_ms"`
	P99    float64   `json:"confirm_p99_ms"`
	Cores  float64   `json:"server_cores"`
	Micros []float64 `json:"us_per_message"` // of the needed follower, the spare one and the leader
}

func (r *run) execute(ctx context.Context, n *node, diskless bool) (err error) {
	dir, err := os.MkdirTemp(n.dir, "floor-")
	if err != nil {
		return err
	}
	defer func() {
		r.stop()
		if err != nil {
			err = fmt.Errorf("%w; nodes said: %s", err, &r.said)
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	args := []string{"--dir", dir, "--links", n.links, fmt.Sprintf("--no-disk=%v", diskless)}
	leader, err := r.start(ctx, args)
	if err != nil {
		return err
	}
	x := result{Links: n.links, NoDisk: diskless, Rate: r.rate}
	if err := r.measure(ctx, leader, &x); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(x)
}

// start starts the three nodes and returns the address of the leader.
func (r *run) start(ctx context.Context, args []string) (string, error) {
	needed, err := r.startNode(ctx, append(slices.Clone(args), "--role", "follower"))
	if err != nil {
		return "", err
	}
	spare, err := r.startNode(ctx, append(slices.Clone(args), "--role", "follower"))
	if err != nil {
		return "", err
	}
	leader, err := r.startNode(ctx, append(slices.Clone(args), "--role", "leader", "--needed", needed, "--spare", spare))
	return leader, err
}

func (r *run) startNode(ctx context.Context, args []string) (addr string, err error) {
	// A process inherits the slack of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return "", err
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(napSlack), 0, 0, 0); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)) }()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, self, args...)
	c.Env = append(os.Environ(), "GOMAXPROCS=1")
	c.Stderr = &bytes.Buffer{}
	out, err := c.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := c.Start(); err != nil {
		return "", err
	}
	r.nodes = append(r.nodes, c)
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}

func (r *run) stop() {
	for _, c := range r.nodes {
		_ = c.Process.Kill() // it may have ended: the measurement has failed then
	}
	for _, c := range r.nodes {
		_ = c.Wait() // killed
		fmt.Fprint(&r.said, c.Stderr)
	}
}

// measure publishes at the rate, until all is confirmed.
func (r *run) measure(ctx context.Context, leader string, x *result) error {
	var clients [2]*frames
	for i := range clients {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", leader)
		if err != nil {
			return err
		}
		defer c.Close()
		clients[i] = newFrames(c)
	}
	publisher, consumer := clients[0], clients[1]
	failed := make(chan error, 2)
	go func() { failed <- ackAll(consumer) }()
	warm, total := r.messages(r.warmup), r.messages(r.warmup+r.duration)
	sent := make(chan time.Time, r.rate) // a second's: a chain that is slower than the rate holds the publisher up
	confirmed := make(chan struct{})
	go func() {
		if err := r.confirm(publisher, total, sent); err != nil {
			failed <- err
			return
		}
		close(confirmed)
	}()
	if err := r.publish(publisher, 0, warm, sent, failed); err != nil {
		return err
	}
	before, began := r.used(), time.Now()
	if err := r.publish(publisher, warm, total, sent, failed); err != nil {
		return err
	}
	select {
	case <-confirmed:
	case err := <-failed:
		return err
	}
	x.fill(r.used(), before, time.Since(began), r.latencies[warm:])
	return nil
}

// publish sends the messages from number first to before number end, each at its time.
func (r *run) publish(publisher *frames, first, end int, sent chan<- time.Time, failed <-chan error) error {
	body, began := make([]byte, bodySize), time.Now()
	for i := range end - first {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(r.rate))))
		select {
		case sent <- time.Now():
		case err := <-failed:
			return err
		}
		if err := publisher.send(body); err != nil {
			return err
		}
	}
	return nil
}

// confirm notes how long each confirm took.
func (r *run) confirm(publisher *frames, total int, sent <-chan time.Time) error {
	for range total {
		if _, err := publisher.receive(); err != nil {
			return err
		}
		r.latencies = append(r.latencies, time.Since(<-sent))
	}
	return nil
}

func (r *run) messages(d time.Duration) int { return int(d.Seconds() * float64(r.rate)) }

func ackAll(consumer *frames) error {
	for {
		message, err := consumer.receive()
		if err != nil {
			return err
		}
		if err := consumer.send(message[:ackSize]); err != nil {
			return err
		}
	}
}

// used is the CPU time of each node.
func (r *run) used() (all []time.Duration) {
	for _, c := range r.nodes {
		d, err := cluster.ProcessCPU(c.Process.Pid)
		if err != nil {
			d = 0 // it has ended: its link's error is what is reported
		}
		all = append(all, d)
	}
	return all
}

func (x *result) fill(after, before []time.Duration, took time.Duration, latencies []time.Duration) {
	var sum time.Duration
	for i := range after {
		used := after[i] - before[i]
		sum += used
		x.Micros = append(x.Micros, math.Round(float64(used.Microseconds())/float64(len(latencies))))
	}
	x.Cores = math.Round(1000*sum.Seconds()/took.Seconds()) / 1000
	slices.Sort(latencies)
	ms := func(q float64) float64 {
		return float64(latencies[int(q*float64(len(latencies)-1))].Microseconds()) / 1000
	}
	x.P50, x.P99 = ms(0.5), ms(0.99)
}
