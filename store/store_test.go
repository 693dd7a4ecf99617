package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// openTest opens a store that ends with the test. A failed write fails the test instead of the process.
func openTest(t testing.TB, o Options) *Store {
	t.Helper()
	if o.OnFatal == nil {
		o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// reopen closes s and opens its directory again.
func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return openTest(t, s.o)
}

func entry(index, term uint64, data string) *raft.Log {
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: []byte(data), AppendedAt: time.Unix(1, int64(index))}
}

func body(index uint64) string { return fmt.Sprintf("body of %d", index) }

// fill stores entries [from, to] of one term.
func fill(t testing.TB, g *Group, from, to, term uint64) {
	t.Helper()
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		logs = append(logs, entry(i, term, body(i)))
	}
	if err := g.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
}

// bounds checks first and last index.
func bounds(t testing.TB, g *Group, first, last uint64) {
	t.Helper()
	f, err1 := g.FirstIndex()
	l, err2 := g.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if f != first || l != last {
		t.Fatalf("log is %d..%d, want %d..%d", f, l, first, last)
	}
}

func wantLog(t testing.TB, g *Group, index, term uint64) {
	t.Helper()
	var l raft.Log
	if err := g.GetLog(index, &l); err != nil {
		t.Fatalf("GetLog(%d): %v", index, err)
	}
	if l.Index != index || l.Term != term || string(l.Data) != body(index) || !l.AppendedAt.Equal(time.Unix(1, int64(index))) {
		t.Fatalf("GetLog(%d) = %+v, want term %d", index, l, term)
	}
}

func wantNoLog(t testing.TB, g *Group, index uint64) {
	t.Helper()
	var l raft.Log
	if err := g.GetLog(index, &l); err != raft.ErrLogNotFound {
		t.Fatalf("GetLog(%d): %v, want raft.ErrLogNotFound itself", index, err)
	}
}

func wantRead(t testing.TB, g *Group, index uint64, want string) {
	t.Helper()
	got, err := g.Read(index)
	if err != nil || string(got) != want {
		t.Fatalf("Read(%d) = %q, %v, want %q", index, got, err, want)
	}
}

func wantNoRead(t testing.TB, g *Group, index uint64) {
	t.Helper()
	if got, err := g.Read(index); err != raft.ErrLogNotFound {
		t.Fatalf("Read(%d) = %q, %v, want raft.ErrLogNotFound itself", index, got, err)
	}
}

var testConfig = raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "a", Address: "a"}}}

// snapshot publishes a local snapshot.
func snapshot(g *Group, index, term uint64, manifest string, pins ...Range) error {
	k, err := g.Snapshots().Create(1, index, term, testConfig, 1, nil)
	if err != nil {
		return err
	}
	if err := k.(ManifestSink).WriteManifest([]byte(manifest), pins); err != nil {
		return errors.Join(err, k.Cancel())
	}
	return k.Close()
}

// send streams the newest snapshot of one group to another, in pieces of n bytes.
func send(t testing.TB, from, to *Group, n int) error {
	t.Helper()
	metas, err := from.Snapshots().List()
	if err != nil || len(metas) == 0 {
		t.Fatalf("list: %v, %v", metas, err)
	}
	m, r, err := from.Snapshots().Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	k, err := to.Snapshots().Create(m.Version, m.Index, m.Term, m.Configuration, m.ConfigurationIndex, nil)
	if err != nil {
		return err
	}
	got, err := io.CopyBuffer(struct{ io.Writer }{k}, struct{ io.Reader }{r}, make([]byte, n))
	if err != nil {
		return errors.Join(err, k.Cancel())
	}
	if got != m.Size {
		t.Fatalf("stream has %d bytes, meta says %d", got, m.Size)
	}
	return k.Close()
}

func wantManifest(t testing.TB, g *Group, index uint64, want string) {
	t.Helper()
	metas, err := g.Snapshots().List()
	if err != nil || len(metas) != 1 || metas[0].Index != index {
		t.Fatalf("List() = %+v, %v, want one at %d", metas, err, index)
	}
	m, r, err := g.Snapshots().Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil || int64(len(all)) != m.Size {
		t.Fatalf("stream of %d bytes, %v, want %d", len(all), err, m.Size)
	}
	got, err := ReadManifest(bytes.NewReader(all))
	if err != nil || string(got) != want {
		t.Fatalf("manifest %q, %v, want %q", got, err, want)
	}
}

func TestLogSurvivesRestart(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(7)
	bounds(t, g, 0, 0)
	wantNoLog(t, g, 1)
	fill(t, g, 1, 10, 1)
	check := func(g *Group) {
		bounds(t, g, 1, 10)
		for i := uint64(1); i <= 10; i++ {
			wantLog(t, g, i, 1)
			wantRead(t, g, i, body(i))
		}
		wantNoLog(t, g, 11)
		wantNoLog(t, g, 0)
	}
	check(g)
	s = reopen(t, s)
	check(s.Group(7))
	if ids := s.Groups(); len(ids) != 1 || ids[0] != 7 {
		t.Fatalf("groups %v", ids)
	}
}

func TestTruncationAndCompaction(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(1)
	fill(t, g, 1, 20, 1)
	if err := g.DeleteRange(11, 20); err != nil {
		t.Fatal(err)
	}
	fill(t, g, 11, 12, 2)
	if err := snapshot(g, 8, 1, "m", Range{3, 4}, Range{6, 6}); err != nil {
		t.Fatal(err)
	}
	if err := g.DeleteRange(1, 7); err != nil {
		t.Fatal(err)
	}
	if err := g.DeleteRange(9, 10); !errors.Is(err, ErrLogRange) {
		t.Fatalf("hole: %v", err)
	}
	check := func(g *Group) {
		t.Helper()
		bounds(t, g, 8, 12)
		wantLog(t, g, 8, 1)
		wantLog(t, g, 12, 2)
		wantNoLog(t, g, 13)
		wantNoLog(t, g, 3)
		wantRead(t, g, 3, body(3))
		wantRead(t, g, 6, body(6))
		wantNoRead(t, g, 5)
		wantNoRead(t, g, 7)
		wantManifest(t, g, 8, "m")
	}
	check(g)
	s = reopen(t, s)
	g = s.Group(1)
	check(g)
	// The next manifest lets go of 3, and cannot get 5 back.
	if err := snapshot(g, 12, 2, "n", Range{4, 5}); err == nil {
		t.Fatal("pinned an entry that is gone")
	}
	if err := snapshot(g, 12, 2, "n", Range{4, 4}, Range{9, 9}); err != nil {
		t.Fatal(err)
	}
	if err := g.DeleteRange(8, 12); err != nil {
		t.Fatal(err)
	}
	check = func(g *Group) {
		t.Helper()
		bounds(t, g, 0, 0)
		wantNoRead(t, g, 3)
		wantRead(t, g, 4, body(4))
		wantRead(t, g, 9, body(9))
		wantNoRead(t, g, 12)
	}
	check(g)
	s = reopen(t, s)
	check(s.Group(1))
	fill(t, s.Group(1), 13, 13, 2)
	bounds(t, s.Group(1), 13, 13)
}

func TestStable(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(3)
	if v, err := g.GetUint64([]byte("CurrentTerm")); v != 0 || err == nil || err.Error() != "not found" {
		t.Fatalf("missing number: %d, %v", v, err)
	}
	if v, err := g.Get([]byte("LastVoteCand")); len(v) != 0 || err == nil || err.Error() != "not found" {
		t.Fatalf("missing value: %q, %v", v, err)
	}
	set := func(term uint64, cand string) {
		t.Helper()
		if err := errors.Join(g.SetUint64([]byte("LastVoteTerm"), term), g.Set([]byte("LastVoteCand"), []byte(cand))); err != nil {
			t.Fatal(err)
		}
	}
	want := func(term uint64, cand string) {
		t.Helper()
		v, err1 := g.GetUint64([]byte("LastVoteTerm"))
		c, err2 := g.Get([]byte("LastVoteCand"))
		if err := errors.Join(err1, err2); err != nil || v != term || string(c) != cand {
			t.Fatalf("vote %d %q %v, want %d %q", v, c, err, term, cand)
		}
	}
	set(4, "a")
	want(4, "a")
	if err := g.SetUint64([]byte("LastVoteTerm"), 5); err != nil {
		t.Fatal(err)
	}
	want(4, "a") // half a vote is none
	if err := g.SetUint64([]byte("CurrentTerm"), 5); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	g = s.Group(3)
	want(4, "a")
	before := s.Stats().Records
	set(4, "a")
	if err := g.SetUint64([]byte("CurrentTerm"), 5); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Records; n != before {
		t.Fatalf("unchanged values made %d records", n-before)
	}
	set(6, "b")
	s = reopen(t, s)
	g = s.Group(3)
	want(6, "b")
	if v, err := g.GetUint64([]byte("CurrentTerm")); v != 5 || err != nil {
		t.Fatalf("term %d, %v", v, err)
	}
}

func TestInstallSnapshot(t *testing.T) {
	for _, piece := range []int{1, 7, 1 << 16} {
		t.Run(fmt.Sprint(piece), func(t *testing.T) {
			a := openTest(t, Options{Dir: t.TempDir()})
			b := openTest(t, Options{Dir: t.TempDir()})
			leader, follower := a.Group(1), b.Group(1)
			fill(t, leader, 1, 100, 3)
			if err := snapshot(leader, 90, 3, "manifest", Range{10, 12}, Range{50, 50}); err != nil {
				t.Fatal(err)
			}
			fill(t, follower, 1, 95, 2) // another history, longer than the snapshot
			if err := send(t, leader, follower, piece); err != nil {
				t.Fatal(err)
			}
			check := func(g *Group) {
				t.Helper()
				bounds(t, g, 91, 95)
				wantNoLog(t, g, 89)
				wantNoLog(t, g, 11)
				wantNoRead(t, g, 20)
				wantRead(t, g, 11, body(11))
				wantRead(t, g, 50, body(50))
				wantLog(t, g, 93, 2)
				var l raft.Log
				if err := g.GetLog(90, &l); err != nil || l.Index != 90 || l.Term != 3 {
					t.Fatalf("marker %+v, %v", l, err)
				}
				wantManifest(t, g, 90, "manifest")
				if err := snapshot(g, 80, 2, "old"); !errors.Is(err, ErrSnapshotStale) {
					t.Fatalf("older local snapshot: %v", err)
				}
			}
			check(follower)
			b = reopen(t, b)
			follower = b.Group(1)
			check(follower)
			if err := follower.DeleteRange(91, 95); err != nil {
				t.Fatal(err)
			}
			fill(t, follower, 91, 100, 3)
			wantLog(t, follower, 95, 3)
			b = reopen(t, b)
			wantLog(t, b.Group(1), 95, 3)
		})
	}
}

func TestDeleteGroup(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(1)
	fill(t, g, 1, 5, 1)
	fill(t, s.Group(2), 1, 5, 1)
	if err := snapshot(g, 3, 1, "m", Range{1, 2}); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteGroup(1); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Read(1); !errors.Is(err, ErrGroupDeleted) {
		t.Fatalf("read of a deleted group: %v", err)
	}
	check := func() {
		t.Helper()
		if ids := s.Groups(); len(ids) != 1 || ids[0] != 2 {
			t.Fatalf("groups %v", ids)
		}
		bounds(t, s.Group(1), 0, 0)
		if m, err := s.Group(1).Snapshots().List(); err != nil || len(m) != 0 {
			t.Fatalf("snapshots %v, %v", m, err)
		}
	}
	check()
	s = reopen(t, s)
	check()
	fill(t, s.Group(1), 1, 2, 9)
	s = reopen(t, s)
	bounds(t, s.Group(1), 1, 2)
	wantLog(t, s.Group(1), 1, 9)
}

func TestManySegments(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: segmentBytesMin, TailCacheBytes: 1 << 20})
	g := s.Group(1)
	big := make([]byte, 9000)
	for i := uint64(1); i <= 400; i++ {
		big[0] = byte(i)
		if err := g.StoreLog(&raft.Log{Index: i, Term: 1, Data: big}); err != nil {
			t.Fatal(err)
		}
	}
	huge := bytes.Repeat([]byte{7}, 3*segmentBytesMin)
	if err := g.StoreLog(&raft.Log{Index: 401, Term: 1, Data: huge}); err != nil {
		t.Fatal(err)
	}
	fill(t, g, 402, 402, 1)
	check := func() {
		t.Helper()
		bounds(t, s.Group(1), 1, 402)
		for i := uint64(1); i <= 400; i++ {
			got, err := s.Group(1).Read(i)
			if err != nil || len(got) != 9000 || got[0] != byte(i) {
				t.Fatalf("Read(%d): %d bytes, %v", i, len(got), err)
			}
		}
		if got, err := s.Group(1).Read(401); err != nil || !bytes.Equal(got, huge) {
			t.Fatalf("huge entry: %d bytes, %v", len(got), err)
		}
	}
	check()
	s = reopen(t, s)
	check()
	s = reopen(t, s)
	check()
}

// TestWhole: a directory counts as a store from the end of its first Open on, and one
// that its owner has marked before may still become one.
func TestWhole(t *testing.T) {
	dir := t.TempDir()
	if err := Whole(OSFS{}, filepath.Join(dir, "none")); err == nil {
		t.Fatal("a directory that is not there is whole")
	}
	if err := os.WriteFile(filepath.Join(dir, ownerName), []byte("somebody"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Whole(OSFS{}, dir); err == nil {
		t.Fatal("an empty directory is whole")
	}
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Whole(OSFS{}, dir); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil || len(segments) == 0 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	for _, name := range segments {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := Whole(OSFS{}, dir); err == nil {
		t.Fatal("a store without segments is whole")
	}
}
