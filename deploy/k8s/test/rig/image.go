package rig

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
)

// Image is a container image: one of one layer that the rig makes, or an archive.
type Image struct {
	// Archive is a file that `ctr images import` reads, with the image's name in it; what follows does not count then.
	Archive string

	Name       string            // with registry and tag, as containerd knows it: docker.io/library/warren:0.1.0
	Files      map[string]string // path in the image: file on this machine
	User       string            // uid:gid
	Entrypoint []string
	Cmd        []string
}

// Media types of the OCI image specification 1.1.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Write writes the image as a tar of an OCI image layout, which `ctr images import` reads: no registry and no image builder.
func (i Image) Write(to io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	blobs := map[string][]byte{}
	add := func(media string, data []byte) descriptor {
		digest := sha256.Sum256(data)
		name := hex.EncodeToString(digest[:])
		blobs[name] = data
		return descriptor{MediaType: media, Digest: "sha256:" + name, Size: len(data)}
	}
	encode := func(v any) []byte {
		data, e := json.Marshal(v)
		if e != nil {
			err = e
		}
		return data
	}
	content := add(mediaLayer, layer)
	config := add(mediaConfig, encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"User": i.User, "Entrypoint": i.Entrypoint, "Cmd": i.Cmd, "Env": []string{"PATH=/"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{content.Digest}},
	}))
	manifest := add(mediaManifest, encode(map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": config, "layers": []descriptor{content},
	}))
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": i.Name[strings.LastIndex(i.Name, ":")+1:]}
	index := encode(map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	put := func(name string, data []byte) {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))})
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	put("index.json", index)
	for name, data := range blobs {
		put("blobs/sha256/"+name, data)
	}
	if err != nil {
		return err
	}
	return w.Close()
}

// layer returns the image's files as a tar.
func (i Image) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, file := range i.Files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if dir := path.Dir(path.Clean("/" + name)); dir != "/" {
			return nil, fmt.Errorf("%s: only files at the root", name)
		}
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
