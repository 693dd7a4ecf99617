package inspect

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/store"
)

// Entry is one entry of a queue's log.
type Entry struct {
	Index    uint64    `json:"index"`
	Term     uint64    `json:"term"`
	Type     string    `json:"type"` // command, noop, barrier, configuration
	Appended time.Time `json:"appended"`
	Bytes    int       `json:"bytes"`
	// Pinned: it is below the log and only kept because messages lie in it.
	Pinned bool `json:"pinned"`
	// Session and Ordinal name the leader's session that proposed a command, and which of its entries this is.
	Session  uint64   `json:"session"`
	Ordinal  uint64   `json:"ordinal"`
	Commands []string `json:"commands"`
	Problem  string   `json:"problem"`
}

// Entries lists what is there of a queue's log from index from on, limit at most; 0 is no limit.
func (f *Folder) Entries(queue, from uint64, limit int) ([]Entry, error) {
	g, ok := f.in.Group(store.GroupID(queue))
	if !ok {
		return nil, unknown(queue)
	}
	first, _ := g.Log()
	indexes := g.Indexes(from, ^uint64(0))
	if limit > 0 && len(indexes) > limit {
		indexes = indexes[:limit]
	}
	list := make([]Entry, 0, len(indexes))
	for _, i := range indexes {
		list = append(list, entry(g, i, first))
	}
	return list, nil
}

func entry(g store.InspectedGroup, index, first uint64) Entry {
	e := Entry{Index: index, Pinned: first == 0 || index < first}
	l, err := g.Entry(index)
	if err != nil {
		e.Problem = err.Error()
		return e
	}
	e.Term, e.Appended, e.Bytes = l.Term, l.AppendedAt, len(l.Data)
	e.Type = strings.ToLower(strings.TrimPrefix(l.Type.String(), "Log"))
	if l.Type != raft.LogCommand {
		return e
	}
	c, err := fsm.DecodeEntry(l.Data)
	if err != nil {
		e.Problem = err.Error()
		return e
	}
	e.Session, e.Ordinal = c.Session, c.Ordinal
	for _, cmd := range c.Commands {
		e.Commands = append(e.Commands, command(cmd))
	}
	return e
}

// command describes a command in a few words.
func command(c fsm.Command) string {
	switch c := c.(type) {
	case fsm.Stream:
		return fmt.Sprintf("stream of node %d from %d: %s", c.Origin.Node, c.First, tally(c.Ops))
	case fsm.TransferIn:
		return fmt.Sprintf("transfers of queue %d from %d: %d", c.Source.Queue, c.First, len(c.Items))
	case fsm.SetSettings:
		return fmt.Sprintf("settings of '%s' in vhost '%s', revision %d", c.Name, c.VHost, c.Revision)
	}
	return spaced(typeName(c))
}

// tally counts operations by kind.
func tally(ops []fsm.Op) string {
	counts := map[string]int{}
	for _, op := range ops {
		counts[strings.ToLower(typeName(op))]++
	}
	var parts []string
	for name, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func typeName(v any) string { return reflect.Indirect(reflect.ValueOf(v)).Type().Name() }

// spaced turns the name of a type into words.
func spaced(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
