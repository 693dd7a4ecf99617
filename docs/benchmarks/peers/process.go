package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a server that was started here. It ends with this process at the latest.
type process struct {
	name string // of the server, as its protocol knows it
	url  string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// launch starts a program, its output in the file log, as the leader of a group of processes.
func launch(name, dir string, env []string, program string, args ...string) (*process, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p := &process{name: name, log: filepath.Join(dir, name+".log"), cmd: exec.Command(program, args...), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = dir, env, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the process
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

// end kills the process and what it has started, and waits for its end.
func (p *process) end() {
	select {
	case <-p.done: // its id may be another's by now
		return
	default:
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have just ended
	<-p.done
}

// accepts waits until the process accepts connections at addr.
func (p *process) accepts(ctx context.Context, addr string) error {
	for {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended, see %s", p.name, p.log)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (%w), see %s", p.name, ctx.Err(), err, p.log)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// servers are the processes as warren-perf takes them.
func servers(list []*process) string {
	var text []string
	for _, p := range list {
		text = append(text, fmt.Sprintf("%s=%d@%s", p.name, p.cmd.Process.Pid, p.url))
	}
	return strings.Join(text, ",")
}

// freePorts returns ports of loopback that were free when it looked, below those that the kernel
// gives to outgoing connections.
func freePorts(n int) (ports []int, err error) {
	for range 100 * n {
		if len(ports) == n {
			return ports, nil
		}
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // all are held until all are chosen
		ports = append(ports, port)
	}
	return nil, errors.New("too few free ports")
}
