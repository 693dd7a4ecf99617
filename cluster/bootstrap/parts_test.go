package bootstrap

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/cluster/level"
)

// testPart is a part whose only file says that it was made.
var testPart = Part{Name: "log", Whole: func(dir string) error {
	_, err := os.Stat(filepath.Join(dir, "CONTENT"))
	return err
}}

func makeContent(dir string) error {
	return os.WriteFile(filepath.Join(dir, "CONTENT"), []byte("x"), 0o600)
}

func openParted(t testing.TB, dir string) *Identity {
	t.Helper()
	i, err := OpenIdentity(dir, "n1", testPart)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestLostPartIsRefused(t *testing.T) {
	for name, harm := range map[string]struct {
		do   func(dir string) error
		want error
	}{
		"folder gone":     {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "log")) }, ErrPartLost},
		"mark gone":       {func(dir string) error { return os.Remove(filepath.Join(dir, "log", ownerFile)) }, ErrPartLost},
		"mark unreadable": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "log", ownerFile), nil, 0o600) }, ErrPartLost},
		"content gone":    {func(dir string) error { return os.Remove(filepath.Join(dir, "log", "CONTENT")) }, ErrPartLost},
		"another storage's mark": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "log", ownerFile), []byte(newUUID()), 0o600)
		}, ErrForeignPart},
		"nothing": {func(string) error { return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			i := openParted(t, dir)
			if err := i.Part("log", makeContent); err != nil {
				t.Fatal(err)
			}
			mustClose(t, i)
			if err := harm.do(dir); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a refused start leaves nothing that the next one takes for the part
				again, err := OpenIdentity(dir, "n1", testPart)
				if !errors.Is(err, harm.want) {
					t.Fatalf("opened with %v, want %v", err, harm.want)
				}
				if err != nil {
					continue
				}
				if err := again.Part("log", makeContent); err != nil {
					t.Fatal(err)
				}
				mustClose(t, again)
			}
		})
	}
}

// TestPartIsMadeUnderCrashes ends the process before each write of a first start, a few times
// over: the start after it goes on, and what was made is missed from then on.
func TestPartIsMadeUnderCrashes(t *testing.T) {
	died := errors.New("died")
	for at := 0; ; at++ {
		dir, finished := t.TempDir(), false
		for range 3 {
			i := openParted(t, dir)
			left := at
			i.fault = func() error {
				if left--; left < 0 {
					return died
				}
				return nil
			}
			opened := false
			err := i.Part("log", func(dir string) error {
				opened = true
				if e := i.step(); e != nil {
					return e // died while it was made
				}
				return makeContent(dir)
			})
			finished = err == nil
			if err != nil && !errors.Is(err, died) {
				t.Fatalf("died before write %d: %v", at, err)
			}
			if finished && !opened {
				t.Fatal("the part is ready and was not opened")
			}
			mustClose(t, i)
		}
		i := openParted(t, dir)
		if err := i.Part("log", makeContent); err != nil {
			t.Fatalf("died before write %d: %v", at, err)
		}
		mustClose(t, i)
		if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenIdentity(dir, "n1", testPart); !errors.Is(err, ErrPartLost) {
			t.Fatalf("died before write %d: a lost part is opened with %v", at, err)
		}
		if finished {
			if at < 4 {
				t.Fatalf("only %d places to die at", at)
			}
			return
		}
	}
}

// TestPartsOfEarlierVersions has folders that carry no mark beside an identity that does
// not know of parts.
func TestPartsOfEarlierVersions(t *testing.T) {
	earlier := func(t *testing.T, made bool) string {
		dir := t.TempDir()
		raw := `{"version":1,"node":"n1","storage":"` + newUUID() + `","boots":3}`
		if err := os.WriteFile(filepath.Join(dir, identityFile), []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
		if made {
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "log"), 0o700), makeContent(filepath.Join(dir, "log"))); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	t.Run("taken as they are", func(t *testing.T) {
		dir := earlier(t, true)
		i := openParted(t, dir)
		defer mustClose(t, i)
		if owner, err := readOwner(filepath.Join(dir, "log")); err != nil || owner != i.rec.Storage || !slices.Equal(i.rec.Parts, []string{"log"}) {
			t.Fatalf("owner %q (%v), parts %v", owner, err, i.rec.Parts)
		}
	})
	t.Run("a crash between mark and identity", func(t *testing.T) {
		dir := earlier(t, true)
		before, err := os.ReadFile(filepath.Join(dir, identityFile))
		if err != nil {
			t.Fatal(err)
		}
		mustClose(t, openParted(t, dir))
		if err := os.WriteFile(filepath.Join(dir, identityFile), before, 0o600); err != nil {
			t.Fatal(err)
		}
		mustClose(t, openParted(t, dir))
	})
	t.Run("not made yet", func(t *testing.T) {
		i := openParted(t, earlier(t, false))
		defer mustClose(t, i)
		if i.rec.Parts == nil || len(i.rec.Parts) != 0 {
			t.Fatalf("parts %v", i.rec.Parts)
		}
		if err := i.Part("log", makeContent); err != nil {
			t.Fatal(err)
		}
	})
}

// TestForeignPartIsRefused has a folder that somebody copied into a new node's directory.
func TestForeignPartIsRefused(t *testing.T) {
	for name, mark := range map[string]string{"with its mark": newUUID(), "without": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			i := openParted(t, dir)
			defer mustClose(t, i)
			log := filepath.Join(dir, "log")
			if err := errors.Join(os.Mkdir(log, 0o700), makeContent(log)); err != nil {
				t.Fatal(err)
			}
			if mark != "" {
				if err := os.WriteFile(filepath.Join(log, ownerFile), []byte(mark), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := i.Part("log", func(string) error {
				t.Error("it was opened")
				return nil
			})
			if !errors.Is(err, ErrForeignPart) {
				t.Fatal(err)
			}
		})
	}
}

// TestPartsAreOnDiskOnceUsed: the entry in the identity is there when Part returns.
func TestPartsAreOnDiskOnceUsed(t *testing.T) {
	dir := t.TempDir()
	i := openParted(t, dir)
	defer mustClose(t, i)
	if err := i.Part("nothing of the kind", makeContent); err == nil || !strings.Contains(err.Error(), "no part") {
		t.Fatal(err)
	}
	if err := i.Part("log", makeContent); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err != nil {
		t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil || !slices.Equal(r.Parts, []string{"log"}) {
		t.Fatalf("%s (%v)", raw, err)
	}
}

// A level is stamped by a call from another node, whatever this one is about.
func TestPartBesideAStamp(t *testing.T) {
	i := openParted(t, t.TempDir())
	defer mustClose(t, i)
	file := filepath.Join(i.dir, identityFile)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	stamped, steps := make(chan error, 1), atomic.Int32{}
	i.fault = func() error {
		if steps.Add(1) != 2 {
			return nil
		}
		go func() { stamped <- i.SetLevel(level.Now) }()
		// The folder is marked when the file is there: nothing that orders the two is waited for.
		end := time.Now().Add(30 * time.Second)
		for now := before; os.SameFile(before, now) && err == nil; now, err = os.Stat(file) {
			if time.Now().After(end) {
				return errors.New("the file is not replaced")
			}
			time.Sleep(time.Millisecond)
		}
		return err
	}
	if err := i.Part("log", makeContent); err != nil {
		t.Fatal(err)
	}
	if err := <-stamped; err != nil || i.Level() != level.Now {
		t.Errorf("level %d: %v", i.Level(), err)
	}
	if owner, err := readOwner(i.partDir("log")); err != nil || owner != i.rec.Storage {
		t.Errorf("owner %s: %v", owner, err)
	}
}
