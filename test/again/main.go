// Command again runs `go test`, and runs once more, alone, what failed while the machine was being taken away: a virtual machine whose
// host gives its cores to others for half of the time, which Linux counts as stolen, keeps no promise about time, and a failure
// then says nothing of the product. Any other failure stands.
//
//	go run ./test/again [flags of go test] -- packages
//
// At the end it names the tests that took longest, and tells how long all took and for how much of that time a processor was busy with it.
//
// What stands always: what did not compile, a data race, a panic, more failures than -most, and a test that fails while less than
// one tenth of the cores' time was stolen. The first failure is printed whole in any case, and the last lines name what passed
// only when it was run again.
//
// The exit code is 0 when all passed, also by a repetition, 1 when a failure stands, and 2 for wrong arguments.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// stolenLeast is the share of the cores' time from which on a failure is not a verdict.
	stolenLeast = 0.1
	// mostFailed is how many tests may have failed for any to be repeated: beyond it, it is not the machine.
	mostFailed = 8
	// repetitions of one test. One that fails while nothing is stolen is the last.
	repetitions = 3
	// patience is for how long all repetitions together wait for the machine to be given back.
	patience = 10 * time.Minute
	// quiet is for how long less than stolenLeast must be stolen before a test is run again.
	quiet = 5 * time.Second
)

func main() {
	flags, packages, err := split(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "again:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	machine := watch(ctx)
	r := runner{
		flags: flags, packages: packages,
		out: os.Stdout, errs: os.Stderr,
		stolen: machine.stolen, patience: patience,
	}
	err = r.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "again:", err)
		os.Exit(1)
	}
}

// split parts the flags of `go test` from the packages behind "--".
func split(args []string) (flags, packages []string, err error) {
	i := slices.Index(args, "--")
	if i < 0 || i == len(args)-1 {
		return nil, nil, errors.New("want [flags of go test] -- packages")
	}
	return args[:i], args[i+1:], nil
}

// runner is one run of `go test` with what it repeats.
type runner struct {
	flags, packages []string
	out, errs       io.Writer
	// stolen is the share of the cores' time that was taken away between two times.
	stolen   func(from, to time.Time) float64
	patience time.Duration
}

// run runs the tests. The error names what failed.
func (r *runner) run(ctx context.Context) error {
	failed, err := r.test(ctx, r.flags, r.packages)
	if err != nil {
		return err
	}
	if len(failed) > mostFailed {
		return fmt.Errorf("%d tests failed: %s", len(failed), names(failed))
	}
	var again, stand []failure
	for _, f := range failed {
		if r.excused(f) {
			again = append(again, f)
		} else {
			stand = append(stand, f)
		}
	}
	if len(stand) > 0 {
		return fmt.Errorf("failed: %s", names(stand))
	}
	for i, f := range again {
		if err := r.repeat(ctx, f); err != nil {
			return fmt.Errorf("%w; not repeated: %d", err, len(again)-i-1)
		}
	}
	for _, f := range again {
		fmt.Fprintf(r.out, "again: %v failed while %.0f %% of the machine were taken away, and passed alone\n", f, 100*r.stolen(f.begin, f.end))
	}
	return nil
}

// excused tells whether the machine can have been the reason.
func (r *runner) excused(f failure) bool {
	share := r.stolen(f.begin, f.end)
	switch {
	case f.final != "":
		fmt.Fprintf(r.out, "again: %v stands: %s\n", f, f.final)
	case share < stolenLeast:
		fmt.Fprintf(r.out, "again: %v stands: %.0f %% of the machine were taken away\n", f, 100*share)
	default:
		return true
	}
	return false
}

// repeat runs one failed test alone until it passes, its failure stands or that is enough.
func (r *runner) repeat(ctx context.Context, f failure) error {
	flags := append(slices.Clone(r.flags), "-count=1")
	if f.test != "" {
		flags = append(flags, "-parallel=1", "-skip=", "-run=^"+f.test+"$")
	}
	for range repetitions {
		r.await(ctx)
		fmt.Fprintf(r.out, "again: %v\n", f)
		failed, err := r.test(ctx, flags, []string{f.pkg})
		if err != nil {
			return err
		}
		if len(failed) == 0 {
			return nil
		}
		if !r.excused(failed[0]) {
			break
		}
	}
	return fmt.Errorf("%v failed again", f)
}

// await waits until the machine is quiet, as long as there is patience.
func (r *runner) await(ctx context.Context) {
	for begin := time.Now(); r.patience > 0 && ctx.Err() == nil; {
		now := time.Now()
		if now.Sub(begin) >= quiet && r.stolen(now.Add(-quiet), now) < stolenLeast {
			return
		}
		time.Sleep(time.Second)
		r.patience -= time.Since(now)
	}
}

// test runs `go test` once and prints what it would print. The error says that it could not be run.
func (r *runner) test(ctx context.Context, flags, packages []string) ([]failure, error) {
	args := slices.Concat([]string{"test", "-json"}, flags, packages)
	cmd, began := exec.CommandContext(ctx, "go", args...), time.Now()
	cmd.Stderr = r.errs
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	e := events{out: r.out, running: map[name]*running{}, broken: map[string]bool{}}
	if err := e.read(stdout); err != nil {
		_, _ = io.Copy(io.Discard, stdout)
		return nil, errors.Join(err, cmd.Wait())
	}
	if err := cmd.Wait(); err != nil && len(e.failed) == 0 {
		return nil, fmt.Errorf("go test: %w", err)
	}
	if longest := e.longest(); longest != "" {
		fmt.Fprintf(r.out, "again: the longest tests: %s\n", longest)
	}
	busy := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // of children that were waited for, too
	fmt.Fprintf(r.out, "again: %.0f s, %.0f s of processor time\n", time.Since(began).Seconds(), busy.Seconds())
	return e.failed, ctx.Err()
}

func names(failed []failure) string {
	var s []string
	for _, f := range failed {
		s = append(s, f.String())
	}
	return strings.Join(s, ", ")
}
