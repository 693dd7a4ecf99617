package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// raftLog hands raft's log lines to slog, one level lower: what the library calls
// info happens thousands of times on a node with thousands of groups.
type raftLog struct {
	to   *slog.Logger
	name string
	args []any
}

var _ hclog.Logger = (*raftLog)(nil)

func lowered(l hclog.Level) slog.Level {
	switch l {
	case hclog.Error:
		return slog.LevelWarn
	case hclog.Warn:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

func (l *raftLog) Log(level hclog.Level, msg string, args ...any) {
	at := lowered(level)
	if !l.to.Enabled(context.Background(), at) {
		return
	}
	all := make([]any, 0, len(args))
	for _, a := range args {
		if err, ok := a.(error); ok && (errors.Is(err, errRests) || errors.Is(err, errStopping)) {
			return // nothing has failed
		}
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			if format, ok := f[0].(string); ok {
				a = fmt.Sprintf(format, f[1:]...)
			}
		}
		all = append(all, a)
	}
	if len(all)%2 == 1 {
		all = append(all, "")
	}
	l.to.Log(context.Background(), at, "raft: "+msg, append(slices.Clone(l.args), all...)...)
}

func (l *raftLog) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *raftLog) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLog) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLog) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLog) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLog) enabled(level hclog.Level) bool {
	return l.to.Enabled(context.Background(), lowered(level))
}

func (l *raftLog) IsTrace() bool      { return l.enabled(hclog.Trace) }
func (l *raftLog) IsDebug() bool      { return l.enabled(hclog.Debug) }
func (l *raftLog) IsInfo() bool       { return l.enabled(hclog.Info) }
func (l *raftLog) IsWarn() bool       { return l.enabled(hclog.Warn) }
func (l *raftLog) IsError() bool      { return l.enabled(hclog.Error) }
func (l *raftLog) ImpliedArgs() []any { return slices.Clone(l.args) }
func (l *raftLog) Name() string       { return l.name }

func (l *raftLog) With(args ...any) hclog.Logger {
	return &raftLog{to: l.to, name: l.name, args: append(slices.Clone(l.args), args...)}
}

func (l *raftLog) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

func (l *raftLog) ResetNamed(name string) hclog.Logger {
	return &raftLog{to: l.to, name: name, args: l.args}
}

// SetLevel does nothing: the level is the injected logger's.
func (l *raftLog) SetLevel(hclog.Level) {}

func (l *raftLog) GetLevel() hclog.Level {
	for _, level := range []hclog.Level{hclog.Trace, hclog.Info, hclog.Warn, hclog.Error} {
		if l.enabled(level) {
			return level
		}
	}
	return hclog.Off
}

func (l *raftLog) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.to.Handler(), slog.LevelDebug)
}

func (l *raftLog) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(nil).Writer()
}
