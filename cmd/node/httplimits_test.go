package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
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
	patient := httptest.NewServer(timedBody(mux, time.Hour))
	defer patient.Close()
	open := func(server *httptest.Server, path string, length int, body string) (*bufio.Reader, net.Conn) {
		nc, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
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
	r, nc := open(patient, "/refused", 1000, "x") // without waiting for the body, which may take an hour
	if resp := answer(r); resp.StatusCode != http.StatusUnauthorized || !resp.Close {
		t.Errorf("refused: %d, closes %t", resp.StatusCode, resp.Close)
	}
	nc.Close() // or the server waits for the body when it ends
	open(server, "/read", 1000, "x")
	var timeout net.Error
	if err := <-cut; !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a body that does not come: %v", err)
	}
	r, nc = open(server, "/long", 2, "{}")
	for range 2 {
		if resp := answer(r); resp.StatusCode != http.StatusOK || resp.Close {
			t.Errorf("a long answer: %d, closes %t", resp.StatusCode, resp.Close)
		}
		time.Sleep(2 * limit)
		fmt.Fprint(nc, "POST /long HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")
	}
}

// inTimeRig is a server of answers of so many bytes, one at a time, which have limits.
type inTimeRig struct {
	*testing.T

	addr  string
	ended chan error // what writing an answer ended with
}

func newInTimeRig(t *testing.T, size int, limits answerLimits) *inTimeRig {
	t.Helper()
	r := &inTimeRig{T: t, ended: make(chan error, 1)}
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, size))
		r.ended <- err
	})
	server := httptest.NewServer(timedBody(inTurn(inTime(answer, limits), 1, time.Minute), time.Minute))
	t.Cleanup(server.Close)
	r.addr = server.Listener.Addr().String()
	return r
}

func (r *inTimeRig) ask() net.Conn {
	r.Helper()
	nc, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.addr)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	return nc
}

const largeAnswer = 32 << 20 // more than sockets hold

// TestUnreadAnswersEnd: who does not read an answer, or reads too little of it, gives its turn back.
func TestUnreadAnswersEnd(t *testing.T) {
	limits := answerLimits{part: 64 << 10, stalled: 300 * time.Millisecond, whole: 3 * time.Second}
	r := newInTimeRig(t, largeAnswer, limits)
	cut := func(what string) {
		t.Helper()
		select {
		case err := <-r.ended:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the answer ended with %v", what, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the answer does not end", what)
		}
	}
	r.ask()
	cut("a client that reads nothing")
	trickle := r.ask()
	go func() { // ends with the connection
		b := make([]byte, 64<<10)
		for {
			if _, err := trickle.Read(b); err != nil {
				return
			}
			time.Sleep(limits.stalled / 10)
		}
	}()
	cut("a client that reads too little")
}

// TestAnswersInTime: who reads gets all of an answer, and the next one on the same connection when the time for the first is over.
func TestAnswersInTime(t *testing.T) {
	for name, c := range map[string]struct {
		size   int
		limits answerLimits
		pause  time.Duration
	}{
		"large": {largeAnswer, answerLimits{part: 64 << 10, stalled: time.Minute, whole: time.Minute}, 0},
		"small": {1000, answerLimits{part: 64 << 10, stalled: 5 * time.Second, whole: 5 * time.Second}, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newInTimeRig(t, c.size, c.limits)
			nc := r.ask()
			answers := bufio.NewReader(nc)
			for i := range 2 {
				if i > 0 {
					time.Sleep(c.pause) // the time is over
					fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
				}
				resp, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if ended := <-r.ended; n != int64(c.size) || err != nil || ended != nil {
					t.Fatalf("a client that reads got %d bytes: %v, %v", n, err, ended)
				}
			}
		})
	}
}

// TestTurns: who waits too long for a turn is told to come again.
func TestTurns(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	h := inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside <- struct{}{}; <-leave }), 1, 50*time.Millisecond)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	<-inside
	late := httptest.NewRecorder()
	h.ServeHTTP(late, httptest.NewRequest(http.MethodGet, "/", nil))
	if late.Code != http.StatusServiceUnavailable || late.Header().Get("Retry-After") == "" {
		t.Errorf("who waits in vain: %d %v", late.Code, late.Header())
	}
	close(leave)
	<-done
}
