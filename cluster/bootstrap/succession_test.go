package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const (
	lifeA, lifeB, lifeC = "11111111-2222-4333-8444-555555555551", "11111111-2222-4333-8444-555555555552", "11111111-2222-4333-8444-555555555553"
	otherStorage        = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
)

// settled makes a node that belongs to lifeA, with its part, and returns its folder.
func settled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	i := openParted(t, dir)
	if err := errors.Join(i.adopt(pledge{ClusterID: lifeA}, nil), i.Part("log", makeContent)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, i)
	return dir
}

// next is a succession of lifeA that a node asks for.
func next(i *Identity, id string, by NodeID) Succession {
	s := Succession{ID: id, Former: lifeA, By: by, Members: []NodeID{i.NodeID()}, Lost: []NodeID{"n3/" + otherStorage}}
	if by != i.NodeID() {
		s.Members = append(s.Members, by)
	}
	slices.Sort(s.Members)
	return s
}

// lifeOf is the life that the content of the part is of.
func lifeOf(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "log", "LIFE"))
	if errors.Is(err, os.ErrNotExist) {
		return lifeA
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSuccessionUnderCrashes ends the process before each write from a promise to the first start in the next life: what is there is the former life with its
// part, or the next one with its own, and a promise that another node may rely on is never forgotten.
func TestSuccessionUnderCrashes(t *testing.T) {
	died := errors.New("died")
	const by = NodeID("n2/" + otherStorage)
	for at := 0; ; at++ {
		dir := settled(t)
		left := at
		fault := func() error {
			if left--; left < 0 {
				return died
			}
			return nil
		}
		lock, err := lockDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		open := func(fault func() error) (*Identity, error) {
			i := &Identity{dir: dir, lock: lock, parts: []Part{testPart}, fault: fault}
			return i, i.open("n1")
		}
		promised, ready, founded := false, false, false
		steps := func() error {
			i, err := open(fault)
			if err != nil {
				return err
			}
			s := next(i, lifeB, by)
			if err := i.PromiseSuccession(s); err != nil {
				return err
			}
			promised = true
			if err := i.ReadySuccession(lifeB, "log", func(dir string) error {
				return errors.Join(makeContent(dir), os.WriteFile(filepath.Join(dir, "LIFE"), []byte(lifeB), 0o600), i.step())
			}); err != nil {
				return err
			}
			ready = true
			if err := i.FoundSuccession(lifeB, "log"); err != nil {
				return err
			}
			founded = true
			_, err = open(fault)
			return err
		}
		err = steps()
		if err != nil && !errors.Is(err, died) {
			t.Fatalf("died before write %d: %v", at, err)
		}
		for range 2 { // and once more
			i, err := open(nil)
			if err != nil {
				t.Fatalf("died before write %d, the next start: %v", at, err)
			}
			s := i.Succession()
			switch {
			case i.ClusterID() == lifeB:
				if !ready || s != nil || lifeOf(t, dir) != lifeB || !slices.Equal(i.Former(), []string{lifeA}) {
					t.Fatalf("died before write %d: in the next life with %v and the part of %s", at, s, lifeOf(t, dir))
				}
			case founded, promised && (s == nil || s.ID != lifeB), ready && !s.Ready, lifeOf(t, dir) != lifeA:
				t.Fatalf("died before write %d: promised %t, ready %t, founded %t, and there is %v with the part of %s", at, promised, ready, founded, s, lifeOf(t, dir))
			}
			if m, _ := i.Membership(); i.ClusterID() == lifeB && len(m.Founding) != 2 {
				t.Fatalf("founded by %v", m.Founding)
			}
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			if at < 10 {
				t.Fatalf("only %d places to die at", at)
			}
			return
		}
	}
}

// TestPromisesOfSuccessions has each promise that must not be given.
func TestPromisesOfSuccessions(t *testing.T) {
	i := openParted(t, settled(t))
	defer mustClose(t, i)
	const n2, n4 = NodeID("n2/" + otherStorage), NodeID("n4/" + otherStorage)
	first := next(i, lifeB, n2)
	refused := func(what string, s Succession) {
		t.Helper()
		if err := i.PromiseSuccession(s); err == nil {
			t.Errorf("%s is promised", what)
		}
	}
	for what, change := range map[string]func(*Succession){
		"another cluster": func(s *Succession) { s.Former = lifeC }, "no uuid": func(s *Succession) { s.ID = "x" },
		"without this node": func(s *Succession) { s.Members = []NodeID{n2} }, "by a stranger": func(s *Succession) { s.By = n4 },
		"nobody lost": func(s *Succession) { s.Lost = nil }, "lost and not": func(s *Succession) { s.Lost = []NodeID{n2} },
		"the same life": func(s *Succession) { s.ID = lifeA }, "not sorted": func(s *Succession) { slices.Reverse(s.Members) },
	} {
		s := first
		s.Members = slices.Clone(s.Members)
		change(&s)
		refused(what, s)
	}
	if err := i.FoundSuccession(lifeB, "log"); !errors.Is(err, errRefused) {
		t.Errorf("founded without a promise: %v", err)
	}
	if err := errors.Join(i.PromiseSuccession(first), i.PromiseSuccession(first)); err != nil {
		t.Fatal(err)
	}
	if i.Level() != successionLevel {
		t.Errorf("the folder is of level %d: an older program would vote", i.Level())
	}
	if err := i.FoundSuccession(lifeB, "log"); !errors.Is(err, errRefused) {
		t.Errorf("founded with nothing to go on from: %v", err)
	}
	other := next(i, lifeC, n4)
	refused("another node's, while the first one may found", other)
	other.Lost = []NodeID{n2, "n3/" + otherStorage}
	if err := i.PromiseSuccession(other); err != nil {
		t.Errorf("the first one is lost: %v", err)
	}
	if err := errors.Join(i.DropSuccession(lifeB), i.ReadySuccession(lifeC, "log", makeContent)); err != nil || i.Succession() == nil {
		t.Errorf("another promise was dropped: %v", err)
	}
	if err := i.DropSuccession(lifeC); err != nil || i.Succession() != nil {
		t.Errorf("the promise stays: %v", err)
	}
}

// TestOwnPromiseEndsWithTheProcess: nobody waits for a recovery whose node was started again, and it will not be founded.
func TestOwnPromiseEndsWithTheProcess(t *testing.T) {
	dir := settled(t)
	i := openParted(t, dir)
	if err := i.PromiseSuccession(next(i, lifeB, i.NodeID())); err != nil {
		t.Fatal(err)
	}
	mustClose(t, i)
	late := i
	i = openParted(t, dir)
	defer mustClose(t, i)
	if err := late.ReadySuccession(lifeB, "log", makeContent); !errors.Is(err, errClosed) {
		t.Errorf("a late step of the process before: %v", err)
	}
	if i.Succession() != nil || i.ClusterID() != lifeA {
		t.Errorf("promised to %v", i.Succession())
	}
}

// TestConsider has what the answers of other nodes mean.
func TestConsider(t *testing.T) {
	const by = NodeID("n2/" + otherStorage)
	in := func(id string, former ...string) status {
		return status{Version: messageVersion, Node: by, Cluster: &pledge{ClusterID: id}, Former: former}
	}
	promisedTo := func(s status, id string) status {
		s.Succession = &Succession{ID: id}
		return s
	}
	for _, tc := range []struct {
		name            string
		promised, ready bool
		asked           string // what was promised when it was asked
		s               status
		want            Fate
	}{
		{"the same life", false, false, "", in(lifeA), FateOpen},
		{"a stranger", false, false, "", in(lifeC), FateOpen},
		{"a later life", false, false, "", in(lifeB, lifeA), FateLost},
		{"a life after that", false, false, "", in(lifeC, lifeA, lifeB), FateLost},
		{"a former life", false, false, "", in(lifeC), FateOpen},
		{"it is under way", true, true, lifeB, promisedTo(in(lifeA), lifeB), FateOpen},
		{"it is founded", true, true, lifeB, in(lifeB, lifeA), FateFounded},
		{"it is founded, and was promised while it was asked", true, true, "", in(lifeB, lifeA), FateFounded},
		{"it went on without this node", true, true, lifeB, in(lifeC, lifeA), FateLost},
		{"it was given up", true, true, lifeB, in(lifeA), FateAbandoned},
		{"another one is under way", true, false, lifeB, promisedTo(in(lifeA), lifeC), FateAbandoned},
		{"an answer from before the promise", true, true, "", in(lifeA), FateOpen},
		{"an answer from before this promise", true, true, lifeC, in(lifeA), FateOpen},
		{"no cluster", true, true, lifeB, status{Version: messageVersion, Node: by}, FateOpen},
	} {
		i := openParted(t, settled(t))
		if tc.promised {
			s := next(i, lifeB, by)
			s.Ready = tc.ready
			i.rec.Succession = &s
		}
		raw, err := json.Marshal(tc.s)
		if err != nil {
			t.Fatal(err)
		}
		var asked *Succession
		if tc.asked != "" {
			asked = &Succession{ID: tc.asked}
		}
		got, id, why, err := i.Consider(asked, raw)
		if got != tc.want || err != nil {
			t.Errorf("%s: %d (%s), want %d: %v", tc.name, got, why, tc.want, err)
		}
		if ends := got == FateFounded || got == FateAbandoned; ends != (id == lifeB) {
			t.Errorf("%s: %d of %q", tc.name, got, id)
		}
		mustClose(t, i)
	}
	i := openParted(t, settled(t))
	defer mustClose(t, i)
	for _, raw := range []string{"", "{", `{"version":2}`, fmt.Sprintf(`{"version":1,"cluster":{"id":%q}}`, "x")} {
		if _, _, _, err := i.Consider(nil, []byte(raw)); err == nil {
			t.Errorf("%q is an answer", raw)
		}
	}
}
