package deep

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/transport"
)

// What is kept of a run for the rare one that stands still: a seed does not tell which goroutine is next, so that a failure may not come again.
const (
	// wordsMax is how many of the newest warnings of the nodes are kept.
	wordsMax = 300
	// stacksMax is how much of the goroutines' stacks is shown, in bytes.
	stacksMax = 512 << 10
)

// lastWords keeps the newest warnings that nodes log, with the virtual time.
type lastWords struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

// logger returns a logger whose warnings go to w.
func (w *lastWords) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				a.Value = slog.DurationValue(time.Since(w.began).Round(time.Millisecond))
			}
			return a
		},
	}))
}

// Write implements io.Writer; a handler writes one line at a time.
func (w *lastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lines) >= 2*wordsMax {
		w.lines = slices.Delete(w.lines, 0, wordsMax)
	}
	w.lines = append(w.lines, string(bytes.TrimSpace(b)))
	return len(b), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines[max(0, len(w.lines)-wordsMax):], "\n")
}

// stuck fails the run because a group does not get on, and shows where its nodes are.
func (w *world) stuck(id transport.GroupID, format string, args ...any) {
	w.oracle.Fail("group %d "+format+": %s", append(append([]any{id}, args...), w.describe(id))...)
	w.oracle.Note("the newest warnings:\n%s", w.words.String())
	w.oracle.Note("goroutines of raft:\n%s", stacksOf("hashicorp/raft.(*Raft)"))
}

// stacksOf returns the stacks of the goroutines that have a function whose name contains one.
func stacksOf(function string) string {
	buf := make([]byte, 16<<20)
	var b strings.Builder
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, function) && b.Len()+len(stack) < stacksMax {
			fmt.Fprintf(&b, "%s\n\n", stack)
		}
	}
	return b.String()
}
