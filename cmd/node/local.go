package main

import (
	"strings"

	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/management"
)

// Settings are what the node was started with; secrets are in files, whose names they are.
func (n *running) Settings() []management.Setting {
	options := config.Options()
	list := make([]management.Setting, len(options))
	for i, o := range options {
		list[i] = management.Setting{Name: o.Name, Value: o.Value(n.cfg), Variable: o.Env()}
	}
	return list
}

// LogLevel is the least severe level that is logged.
func (n *running) LogLevel() string { return strings.ToLower(n.logs.level.Level().String()) }

// SetLogLevel changes it until the node is started again.
func (n *running) SetLogLevel(level string) error {
	l, err := config.ParseLogLevel(level)
	if err != nil {
		return err
	}
	n.logs.level.Set(l)
	return nil
}

// LogTail is the end of the log.
func (n *running) LogTail(lines int) (list []string, last uint64) { return n.logs.tail.last(lines) }

// LogAfter is what was logged behind a line.
func (n *running) LogAfter(number uint64, lines int) (list []string, last, missed uint64) {
	return n.logs.tail.after(number, lines)
}
