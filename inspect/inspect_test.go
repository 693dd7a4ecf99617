package inspect

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/store"
)

// folder makes a data folder whose log has the groups that fill writes.
func folder(t *testing.T, fill func(*store.Store) error) string {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, logFolder)})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(fill(s), s.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDamage: what cannot be read is said to be so, and the rest is shown.
func TestDamage(t *testing.T) {
	sound := fsm.EncodeEntry(nil, &fsm.Entry{Session: 1, Ordinal: 1, Commands: []fsm.Command{fsm.SetSettings{Revision: 1, Name: "orders\x1b[2J", VHost: "/"}}})
	dir := folder(t, func(s *store.Store) error {
		return errors.Join(
			s.Group(7).StoreLogs([]*raft.Log{{Index: 1, Term: 1, Data: sound}, {Index: 2, Term: 1, Type: raft.LogNoop}, {Index: 3, Term: 2, Data: []byte("nonsense")}}),
			s.Group(8).StoreLogs([]*raft.Log{{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("nonsense")}}),
		)
	})
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	list, err := f.Replicas(0)
	if err != nil || len(list) != 2 || list[0].Name != "orders\x1b[2J" || list[0].LastTerm != 2 || !strings.Contains(list[1].Damage, "configuration") {
		t.Errorf("replicas: %+v, %v", list, err)
	}
	entries, err := f.Entries(7, 2, 0)
	if err != nil || len(entries) != 2 || entries[0].Type != "noop" || entries[1].Problem == "" {
		t.Errorf("entries: %+v, %v", entries, err)
	}
	if s, err := f.State(7); err == nil {
		t.Errorf("a state with an entry that is none: %+v", s)
	}
	if _, err := f.State(9); !errors.Is(err, ErrUnknownQueue) {
		t.Errorf("unknown queue: %v", err)
	}
}

// TestTerminal: what clients have chosen cannot reach a terminal as control characters.
func TestTerminal(t *testing.T) {
	data := fsm.EncodeEntry(nil, &fsm.Entry{Session: 1, Ordinal: 1, Commands: []fsm.Command{fsm.SetSettings{Revision: 1, Name: "orders\x1b[2J\n", VHost: "/"}}})
	dir := folder(t, func(s *store.Store) error {
		return s.Group(7).StoreLogs([]*raft.Log{{Index: 1, Term: 1, Data: data}})
	})
	var out bytes.Buffer
	cmd := Command(&out, func(err error) error { return err })
	cmd.SetArgs([]string{"raft", dir})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(out.String(), '\x1b') || !strings.Contains(out.String(), `"orders\x1b[2J\n"`) || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("printed %q", out.String())
	}
}

// TestNoFolder: a place without a data folder is refused.
func TestNoFolder(t *testing.T) {
	dir := t.TempDir()
	for _, what := range []string{"identity", "catalog", "raft", "segments"} {
		cmd := Command(&bytes.Buffer{}, func(err error) error { return err })
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs([]string{what, dir})
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "is not the data directory of a node") {
			t.Errorf("inspect %s of an empty folder: %v", what, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("looking left %v, %v", left, err)
	}
}
