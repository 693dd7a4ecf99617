package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The timer slack of a thread is how much later than asked the kernel may end its naps (prctl(2), PR_SET_TIMERSLACK); threads hand theirs on to those that they
// make (ADR 51).
const (
	slackDefault = 50 * time.Microsecond // the kernel's
	// slackMonitor is that of Go's monitor (sysmon), which naps for 20 µs whenever anything is under way: at 1,000 messages a second, each alone, a fifth of a
	// node's processor time was that. The nanosecond tells it from what a supervisor may have chosen.
	slackMonitor = 5*time.Millisecond + 1
	// slackWanted is that of all other threads. The broker's own timers are in milliseconds, as the kernel's wait for sockets is.
	slackWanted = time.Millisecond
)

// lengthenNaps gives Go's monitor and all other threads the timer slacks that a node wants, and returns that of the others. One that is not the kernel's default
// has been chosen by somebody, as by TimerSlackNSec= of systemd, and stays. With an error, as of a program that is linked with cgo, everything is as it was.
//
// It stops the world until no thread is in a system call, so it has to be called before anything waits for a disk.
func lengthenNaps() (time.Duration, error) {
	slack, err := timerSlack()
	if err != nil || slack != slackDefault {
		return slack, err
	}
	// Code of ours cannot run on the monitor's thread, nor set another's slack without privileges: so all get the monitor's, and then all but that their own.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(slackMonitor), 0); errno != 0 {
		return slack, fmt.Errorf("PR_SET_TIMERSLACK on all threads: %w", errno)
	}
	ownSlack()
	runtime.LockOSThread() // begins, from this thread, the one that makes threads on behalf of such as are locked
	runtime.UnlockOSThread()
	time.Sleep(slackDefault)
	ownSlack() // of the thread that has waited for sockets and timers
	if threads, err := os.ReadDir("/proc/self/task"); err == nil {
		ownSlacks(len(threads)) // the rest gets its own by and by; each of these that is not there yet is made, and stays
	}
	return slackWanted, nil
}

// ownSlacks gives so many threads their own slack. As many as there are at once take all that are idle.
func ownSlacks(threads int) {
	var held, done sync.WaitGroup
	held.Add(threads)
	for range threads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ownSlack()
			held.Done()
			held.Wait()
		})
	}
	done.Wait()
}

// ownSlack gives the calling thread its own slack if it has the monitor's, as one has that the monitor made.
func ownSlack() {
	if slack, err := timerSlack(); err == nil && slack == slackMonitor {
		_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(slackWanted), 0) // the monitor's does no harm
	}
}

// timerSlack is that of the calling thread. Neither this nor ownSlack may block, so the monitor is not woken for them.
func timerSlack() (time.Duration, error) {
	ns, _, errno := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_TIMERSLACK, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("PR_GET_TIMERSLACK: %w", errno)
	}
	return time.Duration(ns), nil
}
