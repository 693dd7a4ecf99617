package inspect

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/store"
)

// Names of what a data folder holds.
const (
	logFolder     = "log"
	catalogFolder = "catalog"
	identityFile  = "node.json"
)

// Folder is a data folder whose logs are open for reading. The caller closes it.
type Folder struct {
	dir string
	in  *store.Inspection
}

// Open reads the segment log of the data folder dir.
func Open(dir string) (*Folder, error) {
	in, err := store.Inspect(store.Options{Dir: filepath.Join(dir, logFolder)})
	if err != nil {
		return nil, err
	}
	return &Folder{dir, in}, nil
}

// Close ends reading.
func (f *Folder) Close() error { return f.in.Close() }

// Segments prints every record of the segment log in dir.
func Segments(dir string, w io.Writer) error {
	return store.Dump(store.OSFS{}, filepath.Join(dir, logFolder), w)
}

// Identity returns node.json as it stands there.
func Identity(dir string) (json.RawMessage, error) {
	b, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return nil, fmt.Errorf("%s: %w", identityFile, err)
	}
	return out.Bytes(), nil
}

// Server is a member of a replica's newest configuration.
type Server struct {
	ID       string `json:"id"`
	Suffrage string `json:"suffrage"` // Voter, Nonvoter
}

// Replica is what Raft keeps of one queue.
type Replica struct {
	Group         uint64   `json:"id"` // of the queue and of its Raft group
	VHost         string   `json:"vhost"`
	Name          string   `json:"name"` // "" if no settings were found
	Term          uint64   `json:"term"`
	VoteTerm      uint64   `json:"vote_term"`
	VotedFor      string   `json:"voted_for"`
	First         uint64   `json:"log_first"` // 0: the log is empty
	Last          uint64   `json:"log_last"`
	LastTerm      uint64   `json:"log_last_term"` // of the snapshot if the log is empty
	SnapshotIndex uint64   `json:"snapshot_index"`
	SnapshotTerm  uint64   `json:"snapshot_term"`
	Servers       []Server `json:"servers"`
	Bytes         int64    `json:"bytes"` // on disk, what is pinned below the log included
	Damage        string   `json:"damage"`
}

// Replicas describes all replicas by id, or the one of queue if that is not 0.
func (f *Folder) Replicas(queue uint64) (list []Replica, err error) {
	for _, id := range f.in.Groups() {
		if queue != 0 && uint64(id) != queue {
			continue
		}
		g, ok := f.in.Group(id)
		if !ok {
			continue
		}
		list = append(list, describe(uint64(id), g))
	}
	if queue != 0 && len(list) == 0 {
		return nil, unknown(queue)
	}
	return list, nil
}

// ErrUnknownQueue is returned for a queue of which the folder has nothing.
var ErrUnknownQueue = errors.New("no replica of this queue here")

func unknown(queue uint64) error { return fmt.Errorf("queue %d: %w", queue, ErrUnknownQueue) }

func describe(id uint64, g store.InspectedGroup) Replica {
	r := Replica{Group: id, Bytes: g.Bytes()}
	var problems []error
	if err := g.Damage(); err != nil {
		problems = append(problems, err)
	}
	r.First, r.Last = g.Log()
	r.VoteTerm, r.VotedFor = g.Vote()
	if b := g.Keys()["CurrentTerm"]; len(b) == 8 {
		r.Term = binary.LittleEndian.Uint64(b)
	}
	var config raft.Configuration
	snapshot, err := g.Snapshot()
	if err != nil {
		problems = append(problems, err)
	}
	if snapshot != nil {
		r.SnapshotIndex, r.SnapshotTerm, r.LastTerm = snapshot.Index, snapshot.Term, snapshot.Term
		config = snapshot.Configuration
		if m, err := fsm.Restore(snapshot.Manifest); err == nil {
			r.VHost, r.Name = m.VHost(), m.Name()
		} else {
			problems = append(problems, err)
		}
	}
	for _, i := range g.Indexes(max(r.First, 1), r.Last) {
		e, err := g.Entry(i)
		if err != nil {
			problems = append(problems, fmt.Errorf("entry %d: %w", i, err))
			continue
		}
		r.LastTerm = e.Term
		switch {
		case e.Type == raft.LogConfiguration && i > r.SnapshotIndex:
			if c, err := decodeConfiguration(e.Data); err == nil {
				config = c
			} else {
				problems = append(problems, fmt.Errorf("entry %d: %w", i, err))
			}
		case e.Type == raft.LogCommand && r.Name == "":
			r.VHost, r.Name = named(e.Data)
		}
	}
	for _, s := range config.Servers {
		r.Servers = append(r.Servers, Server{string(s.ID), s.Suffrage.String()})
	}
	if err := errors.Join(problems...); err != nil {
		r.Damage = err.Error()
	}
	return r
}

// named looks for the queue's name in an entry.
func named(data []byte) (vhost, name string) {
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		return "", ""
	}
	i := slices.IndexFunc(e.Commands, func(c fsm.Command) bool { _, ok := c.(fsm.SetSettings); return ok })
	if i < 0 {
		return "", ""
	}
	s := e.Commands[i].(fsm.SetSettings)
	return s.VHost, s.Name
}

// decodeConfiguration turns raft's panic on bytes that are none into an error.
func decodeConfiguration(b []byte) (c raft.Configuration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("configuration: %v", r)
		}
	}()
	return raft.DecodeConfiguration(b), nil
}

// Snapshot is a replica's newest snapshot.
type Snapshot struct {
	Index     uint64      `json:"index"`
	Term      uint64      `json:"term"`
	Installed bool        `json:"installed"` // it came from another replica
	Servers   []Server    `json:"servers"`
	Entries   uint64      `json:"entries"` // at or below its index that are kept
	Pins      [][2]uint64 `json:"pins"`    // which these are, first and last
	Stream    int64       `json:"stream_bytes"`
	Manifest  int         `json:"manifest_bytes"`
}

// Snapshot describes the newest snapshot of a queue; nil without an error if there is none.
func (f *Folder) Snapshot(queue uint64) (*Snapshot, error) {
	g, ok := f.in.Group(store.GroupID(queue))
	if !ok {
		return nil, unknown(queue)
	}
	s, err := g.Snapshot()
	if err != nil || s == nil {
		return nil, err
	}
	x := &Snapshot{Index: s.Index, Term: s.Term, Installed: s.Installed, Entries: s.Entries, Stream: s.Size, Manifest: len(s.Manifest)}
	for _, m := range s.Configuration.Servers {
		x.Servers = append(x.Servers, Server{string(m.ID), m.Suffrage.String()})
	}
	for _, p := range s.Pins {
		x.Pins = append(x.Pins, [2]uint64{p.First, p.Last})
	}
	return x, nil
}
