package store_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// heirOf fills group 1 as a replica that has a snapshot and a log above it.
func heirOf(t *testing.T, s *store.Store) {
	t.Helper()
	g := s.Group(1)
	for i := uint64(1); i <= 9; i++ {
		if err := g.StoreLog(&raft.Log{Index: i, Term: 1 + i/5, Data: fmt.Appendf(nil, "entry %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	sink, err := g.Snapshots().Create(raft.SnapshotVersionMax, 5, 2, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.(store.ManifestSink).WriteManifest([]byte("old"), []store.Range{{First: 2, Last: 3}}); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.DeleteRange(1, 4); err != nil {
		t.Fatal(err)
	}
}

var heirConfig = raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "a#9", Address: "a"}}}

// inherited reports what group 2 has, "" for nothing.
func inherited(t *testing.T, s *store.Store) string {
	t.Helper()
	g := s.Group(2)
	list, err := g.Snapshots().List()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		return ""
	}
	meta, r, err := g.Snapshots().Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	manifest, err := store.ReadManifest(r)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	last, _ := g.LastIndex()
	fmt.Fprintf(&b, "%d/%d %v at %d, log to %d, %s", meta.Term, meta.Index, meta.Configuration.Servers[0].ID, meta.ConfigurationIndex, last, manifest)
	for _, i := range []uint64{2, 3, 4, 7, 9} {
		if data, err := g.Read(i); err == nil {
			fmt.Fprintf(&b, ", %s", data)
		}
	}
	return b.String()
}

const inheritedAll = "2/9 a#9 at 9, log to 0, new, entry 2, entry 7, entry 9"

// TestInheritUnderCrashes looks at every image that a crash may leave while a group begins from another's entries: it has nothing or
// everything, and the other one is as it was.
func TestInheritUnderCrashes(t *testing.T) {
	fs := crashfs.New()
	o := store.Options{Dir: "/s", FS: fs, SegmentBytes: 64 << 10, OnFatal: func(err error) { panic(err) }}
	s, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	heirOf(t, s)
	before := fs.Len()
	inherit := func(s *store.Store) error {
		return s.Group(2).Inherit(s.Group(1), 9, 2, heirConfig, []byte("new"), []store.Range{{First: 2, Last: 2}, {First: 7, Last: 7}, {First: 9, Last: 9}})
	}
	if err := s.Group(2).SetUint64([]byte("CurrentTerm"), 3); err != nil {
		t.Fatal(err)
	}
	if err := inherit(s); err != nil {
		t.Fatal(err)
	}
	if got := inherited(t, s); got != inheritedAll {
		t.Fatalf("inherited %s", got)
	}
	if err := inherit(s); err == nil {
		t.Error("a group inherits twice")
	}
	after := fs.Len()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	images, whole, r := 0, 0, rand.New(rand.NewPCG(1, 2))
	for n := before; n <= after; n++ {
		for range 8 {
			images++
			o.FS = fs.Image(n, r)
			s, err := store.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			switch got := inherited(t, s); got {
			case "":
				if n == after {
					t.Fatal("what was inherited is gone")
				}
				if err := inherit(s); err != nil {
					t.Fatalf("after a crash at %d: %v", n, err)
				}
			case inheritedAll:
				whole++
			default:
				t.Fatalf("after a crash at %d of %d: %s", n, after, got)
			}
			if last, _ := s.Group(1).LastIndex(); last != 9 {
				t.Fatalf("the former group ends at %d", last)
			}
			for _, i := range []uint64{2, 3, 5, 9} {
				if data, err := s.Group(1).Read(i); err != nil || string(data) != fmt.Sprint("entry ", i) {
					t.Fatalf("the former group has %q at %d: %v", data, i, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if whole == 0 || whole == images {
		t.Errorf("%d of %d images have it", whole, images)
	}
}

// TestInheritRefuses keeps from beginning with less than all.
func TestInheritRefuses(t *testing.T) {
	s, err := store.Open(store.Options{Dir: t.TempDir(), OnFatal: func(err error) { panic(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	heirOf(t, s)
	if err := s.Group(2).Inherit(s.Group(1), 9, 2, heirConfig, []byte("new"), []store.Range{{First: 4, Last: 4}}); err == nil {
		t.Error("a pinned entry that is not there is missed by nobody")
	}
	if got := inherited(t, s); got != "" {
		t.Errorf("and left %s", got)
	}
	if err := s.Group(3).StoreLog(&raft.Log{Index: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Group(3).Inherit(s.Group(1), 9, 2, heirConfig, []byte("new"), nil); err == nil {
		t.Error("a group with a log inherits")
	}
}
