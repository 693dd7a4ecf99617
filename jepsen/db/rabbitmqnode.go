package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/warrenmq/warren/jepsen/network"
)

// rabbitNode is one node of RabbitMQ: a folder, and a process that comes and goes.
type rabbitNode struct {
	name  string
	dir   string // has all of it: configuration, cookie, data, log
	place network.Place
	env   []string

	mu      sync.Mutex
	process *rabbitProcess // nil: never started
	epmd    *rabbitProcess
}

// rabbitProcess is one run of a program. done is closed when it has been waited for.
type rabbitProcess struct {
	cmd  *exec.Cmd
	done chan struct{}
	// ordered: the harness has ended it.
	ordered bool
}

// startIn starts a program in the node's place, as the leader of a group of processes that ends with
// this one, its output appended to the file log.
func (n *rabbitNode) startIn(log string, env []string, program string, args ...string) (*rabbitProcess, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own
	p := &rabbitProcess{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = n.dir, env, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := n.place.Run(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s of %s: %w", filepath.Base(program), n.name, err)
	}
	go func() { // ends with the process
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

// alive tells whether the process, which may be nil, has not ended.
func (p *rabbitProcess) alive() bool {
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

// send sends a signal to the whole group.
func (p *rabbitProcess) send(sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// end kills the process, which may be nil, and waits for its end.
func (p *rabbitProcess) end() error {
	if !p.alive() {
		return nil
	}
	p.ordered = true
	if err := p.send(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

func (n *rabbitNode) logFile() string { return filepath.Join(n.dir, "log") }
func (n *rabbitNode) dataDir() string { return filepath.Join(n.dir, "data") }
func (n *rabbitNode) dump() string    { return filepath.Join(n.dir, "erl_crash.dump") }

// erlangName is the name of the node among nodes of Erlang.
func (n *rabbitNode) erlangName() string { return "rabbit@" + n.place.Host }

// prepare writes the configuration. A node that joins finds the cluster at first.
func (n *rabbitNode) prepare(first *rabbitNode, joins bool, cookie string) error {
	conf := fmt.Sprintf(`listeners.tcp.default = 127.0.0.1:%s
management.tcp.ip = 127.0.0.1
management.tcp.port = %s
log.file = false
log.console = true
log.console.level = warning
cluster_partition_handling = pause_minority
collect_statistics_interval = %d
`, rabbitAMQP, rabbitHTTP, rabbitStats.Milliseconds())
	if joins {
		conf += "cluster_formation.peer_discovery_backend = classic_config\n" +
			"cluster_formation.classic_config.nodes.1 = " + first.erlangName() + "\n" +
			"cluster_formation.classic_config.nodes.2 = " + n.erlangName() + "\n"
	}
	// By default a dead letter whose target did not confirm, since its leader's node died, is sent again
	// after 3 minutes: longer than a run waits for queues to come to rest.
	advanced := fmt.Sprintf("[{rabbit, [{quorum_tick_interval, %d}, {dead_letter_worker_publisher_confirm_timeout, %d}]}].\n",
		rabbitStats.Milliseconds(), rabbitDeadLetters.Milliseconds())
	if err := os.MkdirAll(n.dataDir(), 0o755); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"rabbitmq.conf": conf, "advanced.config": advanced, "enabled_plugins": "[rabbitmq_management].\n", ".erlang.cookie": cookie,
	} {
		mode := os.FileMode(0o644)
		if name == ".erlang.cookie" {
			mode = 0o600 // Erlang refuses it otherwise
		}
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(content), mode); err != nil {
			return err
		}
	}
	return nil
}

// environment is all that the node's process is told. What is set for RabbitMQ or Erlang on this
// machine does not reach it.
func (n *rabbitNode) environment(erlang string) []string {
	in := func(name string) string { return filepath.Join(n.dir, name) }
	return append([]string{
		"PATH=" + erlang + ":/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + n.dir,
		"ERL_CRASH_DUMP=" + n.dump(), "ERL_CRASH_DUMP_SECONDS=5",
		// The server replaces its script and so gets the signals itself.
		"RUNNING_UNDER_SYSTEMD=true",
		"RABBITMQ_USE_LONGNAME=true", "RABBITMQ_NODENAME=" + n.erlangName(), "RABBITMQ_DIST_PORT=" + rabbitDist,
		"RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_CONFIG_FILE=" + in("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + in("advanced.config"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + n.dataDir(), "RABBITMQ_LOG_BASE=" + in("logs"), "RABBITMQ_PID_FILE=" + in("pid"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + in("generated"),
	}, n.env...)
}

// mapPorts starts the node's epmd. It stays when the node ends, as on a machine of its own.
func (n *rabbitNode) mapPorts(epmd string) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.epmd, err = n.startIn(filepath.Join(n.dir, "epmd.log"), []string{"HOME=" + n.dir}, epmd)
	return err
}

func (n *rabbitNode) unmapPorts() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.epmd.end()
}

func (n *rabbitNode) launch(server, erlang string) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process.alive() {
		return fmt.Errorf("%s runs already", n.name)
	}
	n.process, err = n.startIn(n.logFile(), n.environment(erlang), server)
	return err
}

func (n *rabbitNode) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process.alive()
}

// failed tells whether the process was started and has ended without being told to.
func (n *rabbitNode) failed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process != nil && !n.process.alive() && !n.process.ordered
}

func (n *rabbitNode) signal(sig syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process.send(sig)
}

func (n *rabbitNode) kill() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process.end()
}

// stop ends the node by SIGTERM, on which RabbitMQ stops in order.
func (n *rabbitNode) stop(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.process.alive() {
		return nil
	}
	n.process.ordered = true
	if err := n.process.send(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-n.process.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not stop: %w", n.name, ctx.Err()), n.process.end())
	}
}

// crash returns the beginning of the dump of a crash, or "".
func (n *rabbitNode) crash() string {
	f, err := os.Open(n.dump())
	if err != nil {
		return ""
	}
	defer f.Close()
	beginning, err := io.ReadAll(io.LimitReader(f, 600))
	if err != nil {
		return n.name + ": " + err.Error() + "\n"
	}
	return n.name + ": " + strings.TrimSpace(string(beginning)) + "\n"
}
