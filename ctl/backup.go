package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/warrenmq/warren/backup"
)

func backupVerbs(t *tool) []*cobra.Command {
	var output string
	var hold time.Duration
	cmd := t.command(verb{
		use: "backup --output FILE", short: "Take a consistent backup of the whole running cluster", patient: true,
		run: func(ctx context.Context, s *session, _ []string) error { return takeBackup(ctx, s, output, hold) },
	})
	cmd.Long = "Take a consistent backup of the whole running cluster: users, virtual hosts, policies, exchanges, bindings and every durable queue\n" +
		"with its messages. What was confirmed before the command began is in it; every dead letter is in it exactly once. What consumers hold is in it\n" +
		"as ready. Queues that live in memory (exclusive or not durable) are not. While the cut is taken, which is a matter of milliseconds, dead\n" +
		"letters do not move between queues; publishers and consumers notice nothing. The file must not be there yet. It is whole when\n" +
		"the command has succeeded (with --output -, the output is whole only then); `warren backup verify FILE` proves it later, `warren restore` makes a new cluster of it. There is no limit of time\n" +
		"unless --timeout is given."
	cmd.Flags().StringVar(&output, "output", "", "`FILE` to write, a gzipped tar archive; - for the output")
	cmd.Flags().DurationVar(&hold, "hold", 0, "how long dead letters may stand still at most, such as 2s (10s if not given)")
	return []*cobra.Command{cmd}
}

// partialSuffix is at the end of a file that is not whole.
const partialSuffix = ".partial"

func takeBackup(ctx context.Context, s *session, output string, hold time.Duration) error {
	switch {
	case output == "":
		return usage("--output is missing")
	case hold < 0:
		return usage("--hold is negative")
	}
	if output == toStdout {
		return printBackup(ctx, s, hold)
	}
	if _, err := os.Lstat(output); err == nil {
		return usage("--output: %s is there already", output)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return usage("--output: %v", err)
	}
	s.say("Taking a backup of the cluster to %s ...", output)
	body, err := openBackup(ctx, s, hold)
	if err != nil {
		return err
	}
	defer body.Close()
	h, err := keepBackup(body, output)
	if errors.Is(err, backup.ErrMalformed) || ctx.Err() != nil {
		return errorf(ExitUnavailable, "the backup was broken off by node %s, whose log tells why: %v", s.name, err)
	}
	if err != nil {
		return errorf(ExitSoftware, "write %s: %v", output, err)
	}
	s.printf("backup %s: %d queues, %d bytes before compression, dead letters stood still for %d ms\n", h.ID, len(h.Queues), h.Bytes(), h.StandstillMillis)
	return nil
}

// openBackup asks for a backup.
func openBackup(ctx context.Context, s *session, hold time.Duration) (io.ReadCloser, error) {
	at := path("warren", "backup")
	if hold > 0 {
		at += "?" + url.Values{"hold": {strconv.FormatFloat(hold.Seconds(), 'f', -1, 64)}}.Encode()
	}
	resp, err := s.open(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	if err != nil {
		return nil, s.lost(ctx, err)
	}
	return nil, found(s.refused(resp, raw), errorf(ExitSoftware, "node %s does not know of backups", s.name))
}

// toStdout in place of a file's name is for pods, which have no other way out.
const toStdout = "-"

// printBackup writes a backup to the output, and nothing else. What was written of one that fails is worth nothing.
func printBackup(ctx context.Context, s *session, hold time.Duration) error {
	body, err := openBackup(ctx, s, hold)
	if err != nil {
		return err
	}
	defer body.Close()
	out := &failing{to: s.out}
	switch _, err = readThrough(io.TeeReader(body, out)); {
	case out.err != nil:
		return errorf(ExitSoftware, "write the backup: %v", out.err)
	case err != nil:
		return errorf(ExitUnavailable, "the backup was broken off by node %s, whose log tells why: %v", s.name, err)
	}
	return nil
}

// keepBackup writes what comes in to a file, which gets its name when it is whole and durable.
func keepBackup(from io.Reader, output string) (h backup.Header, err error) {
	partial := output + partialSuffix
	f, err := openPartial(partial)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // ends the lock, behind all that is done with the names
	if h, err = fillPartial(from, f, output); err == nil {
		err = os.Rename(partial, output)
	}
	if err != nil {
		_ = os.Remove(partial) // it is of no use
		return h, err
	}
	d, err := os.Open(filepath.Dir(output))
	if err != nil {
		return h, err
	}
	return h, errors.Join(d.Sync(), d.Close())
}

// openPartial opens a file that is not whole yet, and keeps other commands from writing to it until it is closed: one that was stopped, and goes on when another
// has taken its place, would write into that one's backup. What a killed command has left there is replaced.
func openPartial(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("another command is writing to %s", name), f.Close())
		case err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.ENOLCK): // a file system without locks has none to offer
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
		}
		mine, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if now, err := os.Lstat(name); err == nil && os.SameFile(mine, now) {
			return f, nil
		}
		if err := f.Close(); err != nil { // it was given its name, or removed, before it was locked
			return nil, err
		}
	}
}

// fillPartial writes what comes in to a file that is to be called output, which is not there yet.
func fillPartial(from io.Reader, f *os.File, output string) (h backup.Header, err error) {
	if _, err := os.Lstat(output); err == nil {
		return h, fmt.Errorf("%s is there already", output) // another command was quicker
	} else if !errors.Is(err, fs.ErrNotExist) {
		return h, err
	}
	if err := f.Truncate(0); err != nil {
		return h, err
	}
	out := &failing{to: f}
	h, err = readThrough(io.TeeReader(from, out))
	if out.err != nil {
		err = out.err // what the reader made of it does not matter
	}
	if err == nil {
		err = f.Sync()
	}
	return h, err
}

// failing remembers why a write failed.
type failing struct {
	to  io.Writer
	err error
}

func (f *failing) Write(b []byte) (n int, err error) {
	n, err = f.to.Write(b)
	if err != nil {
		f.err = err
	}
	return n, err
}

// readThrough reads an archive to its end.
func readThrough(from io.Reader) (h backup.Header, err error) {
	r, err := backup.Open(from)
	if err != nil {
		return h, err
	}
	for err == nil {
		_, err = r.Next()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return r.Header, err
}
