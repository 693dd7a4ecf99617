package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func serve(t *testing.T, files fstest.MapFS) http.Handler {
	t.Helper()
	list, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	return handler(list)
}

func ask(h http.Handler, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

var some = fstest.MapFS{
	"dist/index.html":      {Data: []byte("<!doctype html><title>w</title>")},
	"dist/assets/app-1.js": {Data: []byte(strings.Repeat("let a = 1;\n", 100))},
	"dist/.gitignore":      {Data: []byte("*")},
	"dist/.lock":           {},
}

func TestHandler(t *testing.T) {
	h := serve(t, some)
	for _, c := range []struct {
		name, method, path string
		header             []string
		status             int
		want               map[string]string
	}{
		{"the page", "GET", "/", nil, 200, map[string]string{"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-cache"}},
		{"its head", "HEAD", "/", nil, 200, map[string]string{"Content-Type": "text/html; charset=utf-8"}},
		{"a file with a hash", "GET", "/assets/app-1.js", nil, 200, map[string]string{"Content-Type": "text/javascript; charset=utf-8", "Cache-Control": "public, max-age=31536000, immutable", "Content-Encoding": ""}},
		{"packed", "GET", "/assets/app-1.js", []string{"Accept-Encoding", "br, gzip"}, 200, map[string]string{"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}},
		{"packed is not wanted", "GET", "/assets/app-1.js", []string{"Accept-Encoding", "gzip;q=0"}, 200, map[string]string{"Content-Encoding": ""}},
		{"a file of git's", "GET", "/.gitignore", nil, 404, nil},
		{"the lock", "GET", "/.lock", nil, 404, nil},
		{"no such file", "GET", "/assets/app-2.js", nil, 404, nil},
		{"out of the folder", "GET", "/assets/../../web.go", nil, 404, nil},
		{"a change", "POST", "/", nil, 405, map[string]string{"Allow": "GET, HEAD"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := ask(h, c.method, c.path, c.header...)
			if resp.StatusCode != c.status {
				t.Fatalf("%s %s: %d, want %d", c.method, c.path, resp.StatusCode, c.status)
			}
			for name, want := range c.want {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			for name, part := range map[string]string{"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
				if !strings.Contains(resp.Header.Get(name), part) {
					t.Errorf("%s: %q", name, resp.Header.Get(name))
				}
			}
			if csp := resp.Header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
				t.Errorf("the policy is %s", csp)
			}
		})
	}
}

// TestPacked: what comes packed is the file.
func TestPacked(t *testing.T) {
	h := serve(t, some)
	z, err := gzip.NewReader(ask(h, "GET", "/assets/app-1.js", "Accept-Encoding", "gzip").Body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(z)
	if want := some["dist/assets/app-1.js"].Data; err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v, want %d", len(got), err, len(want))
	}
	tag := ask(h, "GET", "/").Header.Get("ETag")
	if again := ask(h, "GET", "/", "If-None-Match", tag); tag == "" || again.StatusCode != http.StatusNotModified {
		t.Errorf("with the tag %s: %d", tag, again.StatusCode)
	}
}

// TestUnbuilt: a program that was built without the page says so.
func TestUnbuilt(t *testing.T) {
	h := serve(t, fstest.MapFS{"dist/.gitignore": {Data: []byte("*")}})
	resp := ask(h, "GET", "/")
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("make build")) {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
}
