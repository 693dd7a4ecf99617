package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a program that the rig started and owns: it alone stops it, by its handle.
type process struct {
	name     string
	cmd      *exec.Cmd
	stopping atomic.Bool
	ended    chan struct{} // closed when it has ended
}

// start runs a program with its output in the rig's folder. A program that ends before it is stopped fails the rig.
func (r *Rig) start(name string, args ...string) error {
	log, err := os.Create(filepath.Join(r.dir, "log", name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p := &process{name: name, cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		err := p.cmd.Wait()
		close(p.ended)
		if !p.stopping.Load() {
			select {
			case r.failed <- fmt.Errorf("%s has ended: %v; see %s", name, err, log.Name()):
			default:
			}
		}
	}()
	r.processes = append(r.processes, p)
	return nil
}

// stopWait is how long a program may take to stop before it is killed.
const stopWait = 10 * time.Second

func (p *process) stop() {
	p.stopping.Store(true)
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopWait):
		p.cmd.Process.Kill()
		<-p.ended
	}
}
