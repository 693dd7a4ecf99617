package upgrade

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// sizeRecord has the size of a file whose final zeros were left out.
const sizeRecord = "WARREN.size"

// Pack writes the regular files below dir to a file, without zeros at their ends: segments of logs are made long ahead.
func Pack(dir, file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(zip)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		short := bytes.TrimRight(body, "\x00")
		h := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o600, Size: int64(len(short)), PAXRecords: map[string]string{sizeRecord: strconv.Itoa(len(body))}}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err = t.Write(short)
		return err
	})
	return errors.Join(err, t.Close(), zip.Close())
}

// Unpack writes the files of a Pack into dir.
func Unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for t := tar.NewReader(zip); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackOne(t, h, dir)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
}

func unpackOne(t *tar.Reader, h *tar.Header, dir string) error {
	if !filepath.IsLocal(h.Name) {
		return fmt.Errorf("%q leads out of the folder", h.Name)
	}
	size, err := strconv.ParseInt(h.PAXRecords[sizeRecord], 10, 64)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, filepath.FromSlash(h.Name))
	body, err := io.ReadAll(t)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, body, 0o600)
	}
	if err == nil {
		err = os.Truncate(path, size)
	}
	return err
}
