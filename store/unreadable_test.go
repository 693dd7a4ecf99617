package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
	"github.com/warrenmq/warren/store/faultfs"
)

// TestUnreadableEntryIsDamage has the disk give back nothing of one group's log: that group is damaged and says why, others are not touched.
func TestUnreadableEntryIsDamage(t *testing.T) {
	disk := faultfs.New(crashfs.New(), faultfs.Options{})
	open := func() *store.Store {
		s, err := store.Open(store.Options{Dir: "/s", FS: disk, SegmentBytes: 64 << 10})
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	s := open()
	must(t, s.Group(1).StoreLogs(logs(1, 3000)))
	must(t, s.Group(2).StoreLogs(logs(1, 3000)))
	must(t, s.Close())
	s = open() // with nothing in memory
	disk.Set(faultfs.Faults{Unreadable: true})
	var l raft.Log
	err := s.Group(1).GetLog(1, &l)
	if c, ok := errors.AsType[*store.CorruptError](err); !ok || c.Group != 1 || !strings.Contains(c.Reason, "cannot be read: input/output error") {
		t.Errorf("an entry that cannot be read: %v", err)
	}
	disk.Set(faultfs.Faults{})
	if err := s.Group(1).GetLog(1, &l); err == nil {
		t.Error("the group is used again although what it has is unknown")
	}
	must(t, s.Group(2).GetLog(1, &l))
	must(t, s.Close())
	if err := s.Group(2).GetLog(1, &l); err == nil || errors.As(err, new(*store.CorruptError)) {
		t.Errorf("a closed store is taken for damage: %v", err)
	}
}
