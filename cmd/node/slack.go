package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The timer slack of a thread is how much later than asked the kernel may end its naps (prctl(2), PR_SET_TIMERSLACK).
const (
	slackDefault = 50 * time.Microsecond // the kernel's
	// slackWanted is that of a node. Go's monitor (sysmon) naps for 20 µs whenever anything is under way: at 1,000 messages a second, each alone, a fifth
	// of a node's processor time was that. The broker's own timers are in milliseconds, as the kernel's wait for sockets is (ADR 51).
	slackWanted = time.Millisecond
)

// lengthenNaps gives the process the timer slack that a node wants, by beginning it anew: a thread hands its slack on to those that it makes, Go's monitor is made
// before any code of ours runs, and only execve keeps the slack. So it returns in the new process, or where nothing is to be done: the slack is not the kernel's default
// (a supervisor has chosen it, as systemd does by TimerSlackNSec=, or this has been done), or the system does not let it be changed.
//
// It has to be called before anything is begun that a new process would not know of, signal handlers among it.
func lengthenNaps() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if slack, err := timerSlack(); err != nil || slack != slackDefault {
		return
	}
	path, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slackWanted), 0, 0, 0) != nil {
		return
	}
	if slack, err := timerSlack(); err == nil && slack == slackWanted {
		_ = syscall.Exec(path, os.Args, os.Environ()) // otherwise the node is what it was
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slackDefault), 0, 0, 0)
}

// timerSlack is that of the calling thread.
func timerSlack() (time.Duration, error) {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return time.Duration(ns), err
}
