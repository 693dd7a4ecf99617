package bootstrap

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBeginRestore(t *testing.T) {
	const cluster, storage, other = "11111111-2222-4333-8444-555555555555", "aaaaaaaa-bbbb-8ccc-8ddd-eeeeeeeeeeee", "aaaaaaaa-bbbb-8ccc-8ddd-ffffffffffff"
	as := Restored{Node: "n1", Storage: storage, ClusterID: cluster, Members: []NodeID{"n2/" + other, "n1/" + storage}, Level: 2, Parts: []string{"log"}}
	dir := filepath.Join(t.TempDir(), "data")
	begin := func(as Restored) (*Restoring, error) {
		r, err := BeginRestore(dir, as)
		if err == nil {
			t.Cleanup(func() { _ = r.Close() })
		}
		return r, err
	}
	write := func(path string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(*Restored){
		"a level that is not known": func(r *Restored) { r.Level = 99 }, "no level": func(r *Restored) { r.Level = 0 },
		"no uuid": func(r *Restored) { r.Storage = "x" }, "not among the members": func(r *Restored) { r.Node = "n3" },
		"a bad name": func(r *Restored) { r.Node = "n/1" }, "no cluster": func(r *Restored) { r.ClusterID = "" },
		"a name twice": func(r *Restored) { r.Members = append(r.Members, "n2/"+storage) },
	} {
		bad := as
		bad.Members = append([]NodeID{}, as.Members...)
		change(&bad)
		if _, err := begin(bad); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	r, err := begin(as)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin(as); !errors.Is(err, ErrLocked) {
		t.Errorf("two at a time: %v", err)
	}
	write(filepath.Join(r.Part("log"), "half"))
	mustClose2(t, r)
	// It was cut off: no node starts there, and the next restore begins anew.
	if _, err := OpenIdentity(dir, "n1"); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a node starts: %v", err)
	}
	if r, err = begin(as); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(r.Part("log"), "half")); err == nil {
		t.Error("what was left is there")
	}
	write(filepath.Join(r.Part("log"), "CONTENT"))
	if err := r.Commit(); err != nil {
		t.Fatal(err)
	}
	mustClose2(t, r)
	if _, err := begin(as); !errors.Is(err, ErrRestored) {
		t.Errorf("done twice: %v", err)
	}
	newer := as // a program that names clusters otherwise takes a folder for done that an older one has made, and no other
	newer.ClusterID, newer.Formerly = other, cluster
	if _, err := begin(newer); !errors.Is(err, ErrRestored) {
		t.Errorf("done by an older program: %v", err)
	}
	newer.Formerly = other
	if _, err := begin(newer); !errors.Is(err, ErrTaken) {
		t.Errorf("done for another cluster: %v", err)
	}
	again := as
	again.ClusterID = other
	if _, err := begin(again); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "with other options") {
		t.Errorf("with other options: %v", err)
	}
	second := as
	second.Node, second.Storage = "n2", other
	if _, err := begin(second); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "of node 'n1'") {
		t.Errorf("over another node: %v", err)
	}
	i, err := OpenIdentity(dir, "n1", testPart)
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := i.Membership(); ok || i.Level() != 2 {
		t.Errorf("begun alone: %+v, level %d", m, i.Level())
	}
	p, copied := i.restored()
	begun := pledge{ClusterID: p.ClusterID, Members: p.Members, Copies: []string{copied, newUUID()}}
	for name, other := range map[string]pledge{
		"another cluster":           {ClusterID: other, Members: p.Members, Copies: begun.Copies},
		"without folders":           *p,
		"with another folder of n1": {ClusterID: p.ClusterID, Members: p.Members, Copies: []string{newUUID(), begun.Copies[1]}},
		"other members":             {ClusterID: p.ClusterID, Members: p.Members[:1], Copies: begun.Copies[:1]},
	} {
		for what, err := range map[string]error{"promised": i.promise(other, 2), "adopted": i.adopt(other, nil)} {
			if !errors.Is(err, errRefused) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	if err := errors.Join(i.promise(begun, 0), i.found(begun)); err != nil {
		t.Error(err)
	}
	if m, ok := i.Membership(); !ok || m.ClusterID != cluster || len(m.Founding) != 2 {
		t.Errorf("%+v %v", m, ok)
	}
	mustClose(t, i)
	if _, err := begin(as); !errors.Is(err, ErrRestored) { // as an init container does at every start
		t.Errorf("restored when it has begun: %v", err)
	}
	// Somebody else's files are not touched.
	dir = t.TempDir()
	write(filepath.Join(dir, "precious"))
	if _, err := begin(as); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("into a folder of somebody's: %v", err)
	}
}

func mustClose2(t *testing.T, r *Restoring) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
