package rig

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// An image's tar has all that its index, manifest and configuration name, under the right digests.
func TestImageLayout(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (Image{Name: "docker.io/library/a:1", Files: map[string]string{"/program": program}, User: "1:1"}).Write(&out); err != nil {
		t.Fatal(err)
	}
	files := untar(t, out.Bytes())
	blob := func(d descriptor) []byte {
		data := files["blobs/"+"sha256/"+d.Digest[len("sha256:"):]]
		if sum := sha256.Sum256(data); "sha256:"+hex.EncodeToString(sum[:]) != d.Digest || len(data) != d.Size {
			t.Fatalf("%s is not in the image as it says", d.Digest)
		}
		return data
	}
	var index struct{ Manifests []descriptor }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	var config struct {
		Config struct{ User string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(t, files["index.json"], &index)
	decode(t, blob(index.Manifests[0]), &manifest)
	decode(t, blob(manifest.Config), &config)
	if config.Config.User != "1:1" || config.Rootfs.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Errorf("configuration %+v", config)
	}
	if got := untar(t, blob(manifest.Layers[0])); len(got) != 1 || string(got["program"]) != "binary" {
		t.Errorf("layer has %q", got)
	}
	if err := (Image{Files: map[string]string{"/a/b": program}}).Write(io.Discard); err == nil {
		t.Error("a file in a folder is taken")
	}
}

func decode(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
