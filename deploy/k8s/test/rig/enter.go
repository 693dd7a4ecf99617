package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// stage says, in the environment, how far into the namespaces a process is.
const stage = "WARREN_K8S_STAGE"

// Enter returns true in the process that should work, which is inside the namespaces. In the others it waits for that one,
// and returns false with its exit code.
func Enter() (inside bool, code int, err error) {
	switch os.Getenv(stage) {
	case "":
		code, err = outside()
		return false, code, err
	case "first":
		code, err = first()
		return false, code, err
	default:
		return true, 0, nil
	}
}

// outside starts the first process of the namespaces and passes signals on.
func outside() (int, error) {
	lock, err := alone()
	if err != nil {
		return 1, err
	}
	defer lock.Close()
	runtime.LockOSThread() // Pdeathsig goes by the thread that started the child
	cmd := again("first")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // an interrupt at the terminal comes once, from here
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("namespaces: %w (the rig needs root)", err)
	}
	go func() {
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	return exitCode(cmd.Wait())
}

// alone refuses a second rig on this machine: control groups are not in the namespaces, and each kubelet would end what
// it finds of the other's pods there. The lock ends with the file.
func alone() (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "warren-k8s-test.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another run is under way on this machine: %w", err)
	}
	return lock, nil
}

func again(next string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stage+"="+next)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), nil
	}
	return 0, err
}

// first is the first process of the namespaces: it makes the mounts and waits for what ends, whosever child that was.
func first() (int, error) {
	if err := mounts(); err != nil {
		return 1, err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	worker := again("inside")
	if err := worker.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			worker.Process.Signal(s)
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait: %w", err)
		case pid == worker.Process.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == worker.Process.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// mounts gives the namespaces their own view of processes and a /run and /var/log of their own.
func mounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mounts of the machine: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, dir := range []string{"/run", "/var/log", "/var/lib/kubelet", "/var/lib/cni", "/etc/cni"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	// Mounts that come later are to be seen in pods that ask for it.
	return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

// Clean removes the control groups of pods that have ended. Those that hold processes stay.
func Clean() {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/kubepods")
	for _, root := range append(roots, "/sys/fs/cgroup/kubepods") {
		var dirs []string
		filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			syscall.Rmdir(dirs[i])
		}
	}
}

// run runs a tool to its end.
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
