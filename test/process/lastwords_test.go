package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// TestLastWordsComeOut breaks what a node writes to: the log of its queues, or that of the catalog. The process ends at once and its log says why, to whoever takes it:
// a reader that had not come to what there was before, too. Nobody is waited for who reads nothing.
func TestLastWordsComeOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, words string
		broken      func(t *testing.T, n *cluster.Node, s *session)
	}{
		{"queues", "log store failed, ending the process", func(t *testing.T, n *cluster.Node, s *session) {
			queue := plainQueue(s, "q", nil)
			if err := n.SetDisk(t.Context(), cluster.Disk{Failing: true}); err != nil {
				t.Fatal(err)
			}
			_ = s.ch.Publish("", queue, false, false, message("m"))
		}},
		{"catalog", "the catalog's log failed, ending the process", func(t *testing.T, n *cluster.Node, s *session) {
			if err := os.Truncate(filepath.Join(n.DataDir(), "catalog", "log.db"), 0); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = s.ch.QueueDeclare("q", true, false, false, false, nil) }() // ends with the connection
		}},
	} {
		for _, read := range []bool{true, false} {
			name := tc.name + ", read late"
			if !read {
				name = tc.name + ", not read"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pipe := filepath.Join(t.TempDir(), "log")
				if err := syscall.Mkfifo(pipe, 0o600); err != nil {
					t.Fatal(err)
				}
				c := newCluster(t, 1, breakable(t), func(cfg *cluster.Config) {
					cfg.Wrap = []string{"sh", "-c", `exec "$0" "$@" >` + pipe + ` 2>&1`}
				})
				log, err := os.OpenFile(pipe, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				fill(t, log)
				startAll(t, c)
				n := c.Node(0)
				s := at(t, n)
				tc.broken(t, n, s)
				begun := time.Now()
				if read {
					awaitWords(t, log, tc.words)
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
				defer cancel()
				if code, err := n.Wait(ctx); err != nil || code != 1 {
					t.Errorf("the process ended with %d, %v", code, err)
				}
				t.Logf("ended after %v", time.Since(begun).Round(time.Millisecond))
			})
		}
	}
}

// fill leaves no room in a pipe.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	if err := pipe.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := pipe.Write(bytes.Repeat([]byte("\n"), 1<<21)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the pipe takes %d bytes, %v", n, err)
	}
}

// awaitWords reads a log until it says something.
func awaitWords(t *testing.T, log *os.File, words string) {
	t.Helper()
	if err := log.SetReadDeadline(time.Now().Add(timeoutReply)); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for buf := make([]byte, 64<<10); !bytes.Contains(all, []byte(words)); {
		got, err := log.Read(buf)
		if err != nil {
			t.Fatalf("%q is not in the log: %v\n%s", words, err, all)
		}
		all = append(all, buf[:got]...)
	}
}
