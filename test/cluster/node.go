package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	timeoutRequest = 20 * time.Second
	timeoutDebug   = 10 * time.Second // nobody asks again
	timeoutQueue   = 20 * time.Second // until a node has heard of a queue
	intervalPoll   = 20 * time.Millisecond
	// logTailBytes is how much of a node's log is shown with a failure.
	logTailBytes = 8 << 10
)

// Node is one node of a Cluster: a name, a data folder, and a process that
// comes and goes. Its addresses stay the same unless Move is called.
type Node struct {
	// Name is the node id.
	Name string
	// Dir holds the data folder and the log of the node.
	Dir string

	cluster *Cluster
	client  *http.Client

	mu      sync.Mutex
	place   Place
	args    []string // of its place
	addrs   Addrs
	process *process // nil: never started
	env     []string
	binary  string   // "": that of the cluster
	again   []string // arguments of the last Launch
	logged  int64    // bytes in the log when it began
}

// process is one run of a node. done is closed when it has been waited for;
// err is its outcome then.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// URL returns the node's AMQP address for the user guest and the vhost "/".
func (n *Node) URL() string { return "amqp://guest:guest@" + n.AMQPAddr() + "/" }

// AMQPAddr returns host:port of the AMQP listener.
func (n *Node) AMQPAddr() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addrs.AMQP
}

// HTTP returns the base of the node's HTTP addresses, without a final slash.
func (n *Node) HTTP() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return "http://" + n.addrs.HTTP
}

// ClusterAddr returns host:port of the address for other nodes.
func (n *Node) ClusterAddr() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addrs.Cluster
}

// GRPCAddr returns host:port of the gRPC API for clients.
func (n *Node) GRPCAddr() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addrs.GRPC
}

// GossipAddr returns host:port of the node's gossip.
func (n *Node) GossipAddr() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addrs.Gossip
}

// DataDir returns the node's data folder.
func (n *Node) DataDir() string { return filepath.Join(n.Dir, "data") }

// LogFile returns the path of what the node wrote to its outputs, over all its
// starts.
func (n *Node) LogFile() string { return filepath.Join(n.Dir, "log") }

// PID returns the id of the running process, or 0.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.process.running() {
		return 0
	}
	return n.process.cmd.Process.Pid
}

// Running tells whether the node's process lives.
func (n *Node) Running() bool { return n.PID() != 0 }

// SetEnv sets variables ("NAME=value") of the node's environment from its next start on, in
// place of those that were set before.
func (n *Node) SetEnv(variables ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.env = variables
}

// SetBinary names the binary of the node's next starts.
func (n *Node) SetBinary(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.binary = path
}

// Launch starts the node's process and returns without waiting until it is
// ready. args are added to the command line, after the usual ones.
func (n *Node) Launch(args ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process.running() {
		return fmt.Errorf("node %s: is running already", n.Name)
	}
	if err := os.MkdirAll(n.Dir, 0o755); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	log, err := os.OpenFile(n.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil {
		n.again, n.logged = args, info.Size()
	}
	cfg := n.cluster.cfg
	line := slices.Concat(cfg.Wrap, []string{
		cmp.Or(n.binary, cfg.Binary), "serve",
		"--node-id", n.Name, "--data-dir", n.DataDir(),
		"--amqp-addr", n.addrs.AMQP, "--http-addr", n.addrs.HTTP, "--grpc-addr", n.addrs.GRPC,
		"--cluster-addr", n.addrs.Cluster, "--gossip-addr", n.addrs.Gossip,
		"--join", n.cluster.join(), "--bootstrap-expect", strconv.Itoa(cfg.Nodes),
	}, cfg.Args, n.args, args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = slices.Concat(os.Environ(), cfg.Env, n.env)
	cmd.SysProcAttr = endWithParent()
	start := cmd.Start
	if run := n.place.Run; run != nil {
		start = func() error { return run(cmd.Start) }
	}
	if err := start(); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	n.process = p
	// Ends with the process, which Close ends at the latest.
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return nil
}

// Start launches the node and waits until it is ready.
func (n *Node) Start(ctx context.Context) error {
	if err := n.Launch(); err != nil {
		return err
	}
	return n.WaitReady(ctx)
}

// WaitReady waits until /readyz answers 200. It fails when ctx ends or the
// process does. A process that ended because somebody else had one of its ports
// is started again: a program that is no node may have it for a moment.
func (n *Node) WaitReady(ctx context.Context) error {
	last := errors.New("no answer")
	err := Poll(ctx, func() (bool, error) {
		if !n.Running() {
			if last = n.exit(); n.portTaken() {
				return false, n.Launch(n.again...)
			}
			return false, fmt.Errorf("the process ended: %w", last)
		}
		last = n.ready(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("node %s is not ready: %w (last answer: %w)\n%s", n.Name, err, last, n.LogTail())
	}
	return nil
}

// portTaken tells whether the last process ended because it could not listen.
func (n *Node) portTaken() bool {
	data, err := os.ReadFile(n.LogFile())
	n.mu.Lock()
	defer n.mu.Unlock()
	return err == nil && int64(len(data)) >= n.logged && bytes.Contains(data[n.logged:], []byte("address already in use"))
}

func (n *Node) ready(ctx context.Context) error {
	_, err := n.Fetch(ctx, "/readyz")
	return err
}

// Fetch returns the body of an HTTP GET of path. An answer other than 200 is
// an error.
func (n *Node) Fetch(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutRequest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.HTTP()+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := n.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, bytes.TrimSpace(body))
	}
	return body, nil
}

// Kill ends the process with SIGKILL and returns when it is gone.
func (n *Node) Kill() error { return n.signal(context.Background(), syscall.SIGKILL) }

// Stop interrupts the process and waits until it ended. The error is that of
// the process: a clean stop has exit code 0. When ctx ends first, the process is
// killed.
func (n *Node) Stop(ctx context.Context) error {
	if err := n.signal(ctx, syscall.SIGTERM); err != nil {
		return err
	}
	return n.exit()
}

// Signal sends a signal without waiting for anything.
func (n *Node) Signal(sig syscall.Signal) error {
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	if !p.running() {
		return nil
	}
	return p.cmd.Process.Signal(sig)
}

func (n *Node) signal(ctx context.Context, sig syscall.Signal) error {
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	<-p.done
	return fmt.Errorf("node %s did not stop: %w\n%s", n.Name, ctx.Err(), n.LogTail())
}

// Wait waits until the process ended and returns its exit code.
func (n *Node) Wait(ctx context.Context) (code int, err error) {
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("node %s is still running: %w", n.Name, ctx.Err())
	}
}

// exit returns how the last process ended: nil for exit code 0 or no process.
func (n *Node) exit() error {
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	if p == nil {
		return nil
	}
	<-p.done
	return p.err
}

// settle gives the node its place and its addresses.
func (n *Node) settle() (err error) {
	place := Place{}
	if places := n.cluster.cfg.Places; places != nil {
		if place, err = places(n.Name); err != nil {
			return err
		}
	}
	addrs, err := addrsAt(place.Host)
	if err != nil {
		return err
	}
	var args []string
	if place.Args != nil {
		if args, err = place.Args(addrs); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.place, n.addrs, n.args = place, addrs, args
	return nil
}

// Move gives a stopped node new addresses, those of its place: it will come back elsewhere.
func (n *Node) Move() error {
	if n.Running() {
		return fmt.Errorf("node %s: is running", n.Name)
	}
	return n.settle()
}

// crashMarks begin what a node prints when it has a bug.
var crashMarks = []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"}

// contained is what a node logs of a panic that ended the work for one client: see package contain.
const contained = "panic in the work for one client"

// Crash returns the beginning of the first panic, fatal error or data race in
// the node's log, or "".
func (n *Node) Crash() string {
	data, err := os.ReadFile(n.LogFile())
	if err != nil {
		return ""
	}
	for _, mark := range crashMarks {
		if i := bytes.Index(data, []byte("\n"+mark)); i >= 0 {
			return fmt.Sprintf("--- %s crashed:%s\n", n.Name, data[i:min(len(data), i+logTailBytes)])
		}
	}
	if i := bytes.Index(data, []byte(contained)); i >= 0 && !n.cluster.cfg.Contained {
		return fmt.Sprintf("--- %s contained a fault: %s\n", n.Name, data[i:min(len(data), i+logTailBytes)])
	}
	return ""
}

// LogTail returns the end of the node's log, with its name.
func (n *Node) LogTail() string {
	data, err := os.ReadFile(n.LogFile())
	if err != nil {
		return fmt.Sprintf("--- no log of %s: %v\n", n.Name, err)
	}
	if len(data) > logTailBytes {
		data = data[len(data)-logTailBytes:]
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			data = data[i+1:]
		}
	}
	return fmt.Sprintf("--- end of the log of %s\n%s\n", n.Name, strings.TrimSpace(string(data)))
}

// CPU returns the processor time the running process has used.
func (n *Node) CPU() (time.Duration, error) { return ProcessCPU(n.PID()) }
