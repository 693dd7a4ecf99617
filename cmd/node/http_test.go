package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestLocalOnly(t *testing.T) {
	h := localOnly(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for _, tc := range []struct {
		from, header string
		want         int
	}{
		{"127.0.0.1:1234", "", http.StatusOK},
		{"[::1]:1234", "", http.StatusOK},
		{"[::ffff:127.0.0.1]:1234", "", http.StatusOK},
		{"192.0.2.7:1234", "", http.StatusForbidden},
		{"[2001:db8::1]:1234", "", http.StatusForbidden},
		{"nowhere", "", http.StatusForbidden},
		{"127.0.0.1:1234", "X-Forwarded-For", http.StatusForbidden},
		{"127.0.0.1:1234", "forwarded", http.StatusForbidden},
		{"127.0.0.1:1234", "X-Real-IP", http.StatusForbidden},
		{"127.0.0.1:1234", "via", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/heap", http.NoBody)
		r.RemoteAddr = tc.from
		if tc.header != "" {
			r.Header.Set(tc.header, "192.0.2.7")
		}
		w := httptest.NewRecorder()
		h(w, r)
		if w.Code != tc.want {
			t.Errorf("from %s with %q: %d, want %d", tc.from, tc.header, w.Code, tc.want)
		}
	}
}

// TestDirect: no path is cleaned by sending the client on to another.
func TestDirect(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	for path, want := range map[string]int{
		"/": 200, "/a": 200, "/a/": 200, "/a/%2E%2E": 200, "/a/%2F/": 200, "/a..b/...": 200,
		"//": 404, "//a": 404, "/a//": 404, "/a/../b": 404, "/a/.": 404, "/..": 404,
	} {
		w := httptest.NewRecorder()
		direct(mux).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://h"+path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}
