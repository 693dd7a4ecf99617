package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/warrenmq/warren/config"
)

// newLogger returns the logger of a node: every line carries the node's name. Its level can be changed while the node runs, and its
// newest lines are kept.
func newLogger(w io.Writer, cfg config.Config) (*slog.Logger, *logs) {
	kept := new(logs)
	kept.level.Set(cfg.LogLevel)
	options := &slog.HandlerOptions{Level: &kept.level, ReplaceAttr: plain}
	w = io.MultiWriter(&kept.tail, w)
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if cfg.LogFormat == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	return slog.New(handler).With(keyNode, ownName(cfg.NodeID)), kept
}

// leftOut makes the line of newLogger's form that tells of lines that were left out.
func leftOut(cfg config.Config) func(n uint64) []byte {
	var line bytes.Buffer
	log, _ := newLogger(&line, cfg)
	return func(n uint64) []byte {
		line.Reset()
		log.Warn("lines of the log are left out, which nobody took", "lines", n)
		return line.Bytes()
	}
}

const keyNode = "node"

// ownName is the name of the node that logs, as against those that a line is about.
type ownName string

// plain keeps a line's own fields unique, since what reads JSON takes the last of two and would lose who says something: another node is the
// line's peer, a cluster's level not its severity. What has a text of its own and no JSON is that text: libraries log their insides.
func plain(groups []string, a slog.Attr) slog.Attr {
	value := a.Value.Any()
	if len(groups) == 0 {
		_, own := value.(ownName)
		_, severity := value.(slog.Level)
		switch {
		case a.Key == keyNode && !own:
			a.Key = "peer"
		case a.Key == slog.LevelKey && !severity:
			a.Key = "cluster_level"
		}
	}
	if a.Value.Kind() != slog.KindAny {
		return a
	}
	switch value.(type) {
	case json.Marshaler, encoding.TextMarshaler, error:
	case fmt.Stringer:
		a.Value = slog.StringValue(fmt.Sprint(value)) // Sprint survives what String does not
	}
	return a
}
