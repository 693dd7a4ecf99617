package bootstrap

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { os.Exit(verify(m)) }

func mustOpen(t testing.TB, dir, name string) *Identity {
	t.Helper()
	i, err := OpenIdentity(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func mustClose(t testing.TB, i *Identity) {
	t.Helper()
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestIdentityStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	i := mustOpen(t, dir, "n1")
	id := i.NodeID()
	if i.Boots() != 1 || !strings.HasPrefix(string(id), "n1/") || i.ClusterID() != "" {
		t.Fatalf("new identity: %s, boots %d, cluster %q", id, i.Boots(), i.ClusterID())
	}
	if _, err := OpenIdentity(dir, "n1"); !errors.Is(err, ErrLocked) {
		t.Fatalf("opened twice: %v", err)
	}
	mustClose(t, i)
	again := mustOpen(t, dir, "n1")
	if again.NodeID() != id || again.Boots() != 2 {
		t.Fatalf("reopened: %s, boots %d", again.NodeID(), again.Boots())
	}
	mustClose(t, again)
	if _, err := OpenIdentity(dir, "n2"); !errors.Is(err, ErrForeignDirectory) {
		t.Fatalf("opened as another node: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	wiped := mustOpen(t, dir, "n1")
	defer mustClose(t, wiped)
	if wiped.NodeID() == id {
		t.Fatal("an empty disk has the identity of the lost one")
	}
}

func TestIdentityRefusesStrangeDirectories(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"files of somebody else": {"database": "x"},
		"no JSON":                {identityFile: "garbage"},
		"cut off":                {identityFile: `{"version":1,"node":"n1"`},
		"a newer version":        {identityFile: `{"version":3,"node":"n1","storage":"` + newUUID() + `"}`},
		"no storage":             {identityFile: `{"version":1,"node":"n1"}`},
		"a cluster without uuid": {identityFile: `{"version":1,"node":"n1","storage":"` + newUUID() + `","cluster":{"id":"x"}}`},
	} {
		dir := t.TempDir()
		for file, content := range files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		i, err := OpenIdentity(dir, "n1")
		if err == nil {
			mustClose(t, i)
			t.Errorf("%s: opened", name)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, identityFile+tmpSuffix), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, dir, "n1")) // a crash during the very first write
	for _, bad := range []string{"", "a/b", "-x", "a#b", strings.Repeat("x", 64)} {
		if _, err := OpenIdentity(t.TempDir(), bad); err == nil {
			t.Errorf("node id %q was accepted", bad)
		}
	}
}

func FuzzDecodeMessages(f *testing.F) {
	f.Add([]byte(`{"version":1,"node":"n1/` + newUUID() + `","expect":3}`))
	f.Add([]byte(`{"version":1,"from":"x","pledge":{"id":"` + newUUID() + `","members":["n1/` + newUUID() + `"]}}`))
	f.Add([]byte(`{"version":1,"node":"n1","storage":"` + newUUID() + `"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRequest(b); err == nil && (r.Pledge.validate() != nil || len(r.Pledge.Members) == 0) {
			t.Fatal("accepted a bad pledge")
		}
		if s, err := decodeStatus(b); err == nil && s.Cluster != nil && s.Cluster.validate() != nil {
			t.Fatal("accepted a bad status")
		}
		if r, err := decodeRecord(b); err == nil && ValidateNodeName(r.Node) != nil {
			t.Fatal("accepted a bad record")
		}
	})
}

// verify runs the tests and looks for leaked goroutines.
func verify(m *testing.M) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	for range 20 { // each Find waits a while itself: memberlist ends its probes by timeout
		if err := goleak.Find(); err == nil {
			return 0
		} else if os.Getenv("WARREN_TEST_LOG") != "" {
			os.Stderr.WriteString(err.Error() + "\n")
		}
	}
	os.Stderr.WriteString(goleak.Find().Error() + "\n")
	return 1
}
