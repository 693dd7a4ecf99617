package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestTimedBody: who is refused is answered at once, though the body is still to come; who is waited for is not for longer than the
// limit; and neither idleness within the answer nor the next request has that limit.
func TestTimedBody(t *testing.T) {
	const limit = 200 * time.Millisecond
	cut := make(chan error, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/refused", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	mux.HandleFunc("/read", func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		cut <- err
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusInternalServerError)
		case <-time.After(2 * limit):
		}
	})
	server := httptest.NewServer(timedBody(mux, limit))
	defer server.Close()
	open := func(path string, length int, body string) (*bufio.Reader, net.Conn) {
		nc, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(nc, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", path, length, body)
		return bufio.NewReader(nc), nc
	}
	answer := func(r *bufio.Reader) *http.Response {
		t.Helper()
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	began := time.Now()
	r, _ := open("/refused", 1000, "x")
	if resp := answer(r); resp.StatusCode != http.StatusUnauthorized || !resp.Close || time.Since(began) > limit {
		t.Errorf("refused: %d, closes %t, after %v", resp.StatusCode, resp.Close, time.Since(began))
	}
	open("/read", 1000, "x")
	var timeout net.Error
	if err := <-cut; !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a body that does not come: %v", err)
	}
	r, nc := open("/long", 2, "{}")
	for range 2 {
		if resp := answer(r); resp.StatusCode != http.StatusOK || resp.Close {
			t.Errorf("a long answer: %d, closes %t", resp.StatusCode, resp.Close)
		}
		time.Sleep(2 * limit)
		fmt.Fprint(nc, "POST /long HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")
	}
}
