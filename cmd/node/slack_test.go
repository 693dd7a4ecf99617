package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// napper in the environment has this program do what a node does at first, and tell its timer slack and process.
const napper = "WARREN_TEST_NAPPER"

func TestMain(m *testing.M) {
	if os.Getenv(napper) != "" {
		lengthenNaps()
		slack, err := timerSlack()
		fmt.Println(slack, err, os.Getpid(), len(os.Args), os.Args[len(os.Args)-1])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestNapsAreLengthened(t *testing.T) {
	for what, x := range map[string]struct{ inherited, want time.Duration }{
		"the kernel's default":   {slackDefault, slackWanted},
		"chosen by a supervisor": {200 * time.Microsecond, 200 * time.Microsecond},
		"as long already":        {slackWanted, slackWanted},
	} {
		t.Run(what, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "serve", "--flag")
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
			want := fmt.Sprintln(x.want, nil, cmd.Process.Pid, 3, "--flag")
			if out.String() != want {
				t.Errorf("the process says %q, want %q", out.String(), want)
			}
		})
	}
}
