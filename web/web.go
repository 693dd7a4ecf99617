package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed all:dist
var built embed.FS

//go:embed unbuilt.html
var unbuilt []byte

// policy is the content security policy. Nothing is inline, nothing comes from elsewhere, no page frames this one,
// and no form is sent by the browser itself: forms are read by the script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	cacheForEver = "public, max-age=31536000, immutable" // the name has a hash of the content
	cacheAsk     = "no-cache"
)

// file is a file of the page, ready to be sent.
type file struct {
	kind, cache, tag string
	raw, gzipped     []byte // gzipped is nil if that is no gain
}

// Handler serves the page at "/" and its files, to GET and HEAD.
func Handler() (http.Handler, error) {
	files, err := load(built)
	if err != nil {
		return nil, fmt.Errorf("files of the page: %w", err)
	}
	return handler(files), nil
}

// load reads the files under dist by the path of their requests.
func load(from fs.FS) (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(from, "dist", func(name string, d fs.DirEntry, err error) error {
		at := strings.TrimPrefix(name, "dist")
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		raw, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		cache := cacheAsk
		if strings.HasPrefix(at, "/assets/") {
			cache = cacheForEver
		}
		if at == "/index.html" {
			at = "/"
		}
		files[at], err = newFile(name, cache, raw)
		return err
	})
	if _, ok := files["/"]; !ok && err == nil {
		files = map[string]file{}
		files["/"], err = newFile("unbuilt.html", cacheAsk, unbuilt)
	}
	return files, err
}

// kinds are types of content that do not depend on the machine's tables.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

func newFile(name, cache string, raw []byte) (file, error) {
	ext := path.Ext(name)
	f := file{kind: kinds[ext], cache: cache, raw: raw}
	if f.kind == "" {
		f.kind = mime.TypeByExtension(ext)
	}
	sum := sha256.Sum256(raw)
	f.tag = `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return f, err
	}
	if _, err := w.Write(raw); err != nil {
		return f, err
	}
	if err := w.Close(); err != nil {
		return f, err
	}
	if buf.Len() < len(raw) {
		f.gzipped = buf.Bytes()
	}
	return f, nil
}

type handler map[string]file

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	f, ok := h[r.URL.Path]
	if !ok {
		http.Error(w, "Not Found", http.StatusNotFound)
		return
	}
	head.Set("Cache-Control", f.cache)
	head.Set("ETag", f.tag)
	head.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), f.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	head.Set("Content-Type", f.kind)
	body := f.raw
	if f.gzipped != nil && takesGzip(r.Header.Get("Accept-Encoding")) {
		head.Set("Content-Encoding", "gzip")
		body = f.gzipped
	}
	head.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // the client has gone: nobody is left to tell
	}
}

// takesGzip reads an Accept-Encoding header.
func takesGzip(accept string) bool {
	for each := range strings.SplitSeq(accept, ",") {
		name, parameters, _ := strings.Cut(each, ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		_, q, weighed := strings.Cut(parameters, "q=")
		weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return !weighed || err != nil || weight > 0
	}
	return false
}
