package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/ctl"
)

// endsWithin runs a command line and fails if that does not end soon.
func endsWithin(t *testing.T, ctx context.Context, env environment, args ...string) (code int) {
	t.Helper()
	ended := make(chan int, 1)
	go func() { ended <- execute(ctx, args, env) }()
	select {
	case code = <-ended:
		return code
	case <-time.After(20 * lastWordsTime):
		t.Fatalf("%q does not end", args)
		return 0
	}
}

// TestEndsThoughNobodyReads: a process that is to end does so although nobody takes the line that says why.
func TestEndsThoughNobodyReads(t *testing.T) {
	t.Parallel()
	reader, stuck := io.Pipe()
	defer reader.Close() // ends the writes
	env := environment{
		lookup: func(string) (string, bool) { return "", false }, stdout: io.Discard, stderr: stuck,
		serve: func(context.Context, config.Config, *slog.Logger, *logs) error { return errors.New("it failed") },
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"serve", "--node-id", "n1"}, exitFailed},
		{[]string{"serve", "--no-such-setting"}, exitUsage},
		{[]string{"ctl", "no_such_verb"}, ctl.ExitUsage},
	} {
		if code := endsWithin(t, t.Context(), env, c.args...); code != c.want {
			t.Errorf("%q: exit code %d, want %d", c.args, code, c.want)
		}
	}
}

// TestInterrupted: a command that waits for its input, or for a file, ends when it is interrupted.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "backup")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	input, stuck := io.Pipe()
	defer stuck.Close() // ends the reads
	for _, args := range [][]string{
		{"ctl", "add_user", "somebody"},
		{"ctl", "import_definitions"},
		{"backup", "verify", fifo},
		{"restore", "--from", fifo, "--data-dir", t.TempDir(), "--node-id", "n1", "--nodes", "n1"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, interrupt)
		var stderr bytes.Buffer
		env := environment{lookup: func(string) (string, bool) { return "", false }, stdin: input, stdout: io.Discard, stderr: &stderr}
		if code := endsWithin(t, ctx, env, args...); code != exitFailed || stderr.String() != "warren: interrupted\n" {
			t.Errorf("%q: exit code %d, %q", args, code, stderr.String())
		}
	}
	if err := writeNothing(fifo); err != nil {
		t.Error(err)
	}
}

// writeNothing lets go who waits to read a pipe.
func writeNothing(fifo string) error {
	fd, err := syscall.Open(fifo, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return syscall.Close(fd)
}
