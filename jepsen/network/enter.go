package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// insideEnv is set in the process that Enter starts in a namespace.
const insideEnv = "WARREN_JEPSEN_INSIDE"

// KindEnv is the environment variable that, as "proxies", keeps Enter from making
// namespaces.
const KindEnv = "WARREN_JEPSEN_NETWORK"

// Inside tells whether this process has a network namespace of its own by Enter.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Enter runs this program again in a network namespace of its own, with the same
// arguments, where it may make networks that nobody else sees and that are gone with
// it. When that has ended, entered is true, and code is what this program is to exit with. It
// is false in the namespace, and where there can be none.
func Enter() (code int, entered bool) {
	if Inside() || os.Getenv(KindEnv) == "proxies" {
		return 0, false
	}
	// The program must end with this one: the kernel sees to that when this thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = namespace()
	if err := cmd.Start(); err != nil {
		return 0, false
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)
	go func() { // ends with this process
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended, which is seen below
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, true
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode(), true
	}
	fmt.Fprintln(os.Stderr, err)
	return 2, true
}

// namespace is how a program is started in a network namespace: as a user who is root
// there, unless this is root.
func namespace() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}
