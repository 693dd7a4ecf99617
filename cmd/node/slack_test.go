package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// napper in the environment has this program do what a node does at first, and tell the timer slacks of its threads.
const napper = "WARREN_TEST_NAPPER"

func TestMain(m *testing.M) {
	if os.Getenv(napper) != "" {
		nap()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func nap() {
	slack, err := lengthenNaps()
	others, monitors := threadSlacks()
	for end := time.Now().Add(2 * time.Second); (monitors > 1 || len(others) > 1) && time.Now().Before(end); { // as a node goes on
		time.Sleep(time.Millisecond)
		ownSlack()
		others, monitors = threadSlacks()
	}
	fmt.Println("others", slack, "like that", others[slack] > 4 && len(others) == 1, "monitors", monitors, "error", err)
}

// threadSlacks is how many threads that run code of ours have which slack, and how many of all have the monitor's; -1 if that is for the privileged to see.
func threadSlacks() (others map[time.Duration]int, monitors int) {
	others = map[time.Duration]int{}
	var held, done sync.WaitGroup
	var mu sync.Mutex
	const threads = 12
	held.Add(threads)
	for range threads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			slack, _ := timerSlack()
			mu.Lock()
			others[slack]++
			mu.Unlock()
			held.Done()
			held.Wait()
		})
	}
	done.Wait()
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		slack, err := os.ReadFile("/proc/" + task.Name() + "/timerslack_ns")
		if errors.Is(err, os.ErrPermission) {
			return others, -1
		}
		if strings.TrimSpace(string(slack)) == fmt.Sprint(slackMonitor.Nanoseconds()) {
			monitors++
		}
	}
	return others, monitors
}

// Builds with cgo, as for -race, have to leave everything as it is.
func TestNapsAreLengthened(t *testing.T) {
	_, monitors := threadSlacks()
	seen := monitors == 0
	_, _, cgo := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0)
	for what, x := range map[string]struct {
		inherited, want time.Duration
		monitors        int
		fails           bool
	}{
		"the kernel's default":   {slackDefault, slackWanted, 1, cgo != 0},
		"chosen by a supervisor": {200 * time.Microsecond, 200 * time.Microsecond, 0, false},
		"as long already":        {slackWanted, slackWanted, 0, false},
	} {
		t.Run(what, func(t *testing.T) {
			var failure error
			if x.fails {
				x.want, x.monitors, failure = x.inherited, 0, fmt.Errorf("PR_SET_TIMERSLACK on all threads: %w", cgo)
			}
			if !seen {
				x.monitors = -1
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), napper+"=1")
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			runtime.LockOSThread() // whose slack the child has
			before, err := timerSlack()
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(x.inherited), 0, 0, 0); err != nil {
				t.Fatal(err)
			}
			err = cmd.Start()
			_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
			runtime.UnlockOSThread()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err, out.String())
			}
			if want := fmt.Sprintln("others", x.want, "like that", true, "monitors", x.monitors, "error", failure); out.String() != want {
				t.Errorf("the process says %q, want %q", out.String(), want)
			}
		})
	}
}

// TestMonitorsThreads has a thread that the monitor made get its own slack.
func TestMonitorsThreads(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := timerSlack()
	if err != nil {
		t.Fatal(err)
	}
	for has, want := range map[time.Duration]time.Duration{slackMonitor: slackWanted, 5 * time.Millisecond: 5 * time.Millisecond, slackDefault: slackDefault} {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(has), 0, 0, 0)
		ownSlack()
		if slack, err := timerSlack(); slack != want || err != nil {
			t.Errorf("a thread with %v has %v then (%v), want %v", has, slack, err, want)
		}
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
}
