package catalog

import (
	"bytes"
	"context"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger sends raft's warnings and errors to log. Raft reports each lost
// heartbeat and refused vote, so its informational lines are left out.
func raftLogger(log *slog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "raft", Level: hclog.Warn, Output: lineWriter{log}, DisableTime: true,
	})
}

// lineWriter turns lines of hclog into records.
type lineWriter struct{ log *slog.Logger }

// Write implements io.Writer; hclog writes one line at a time.
func (w lineWriter) Write(b []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(b, []byte("[ERROR]")) {
		level = slog.LevelError
	}
	_, text, _ := bytes.Cut(b, []byte("]"))
	w.log.Log(context.Background(), level, "raft reports", "text", string(bytes.TrimSpace(text)))
	return len(b), nil
}
