package main

import (
	"io"
	"net/http"
	"time"
)

// What clients may take of an HTTP listener before they have logged in. Answers have no limit of time: backups, logs and events go on.
const (
	// httpConnectionsMax bounds the open connections of a listener, if there are files enough (limited): more wait.
	httpConnectionsMax = 4096
	// httpHeadMax bounds the head of a request, in bytes; net/http reads 4 KiB more. Its own bound is 1 MiB, which so many connections may
	// hold at once.
	httpHeadMax = 16 << 10
	// timeoutHTTPIdle bounds the wait for the next request of a connection.
	timeoutHTTPIdle = 2 * time.Minute
	// timeoutHTTPBody bounds reading a request's body. What takes large ones has longer, once it knows who sends it.
	timeoutHTTPBody = 30 * time.Second
)

// timedBody gives each request that long for its body. A connection whose body was not read to its end when the answer begins, as with
// a refusal, is closed: the rest is not waited for.
func timedBody(h http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			b := &body{ReadCloser: r.Body, w: w}
			b.deadline(time.Now().Add(limit))
			w.Header().Set("Connection", "close")
			r.Body = b
		}
		h.ServeHTTP(w, r)
	})
}

// body is the body of a request.
type body struct {
	io.ReadCloser

	w http.ResponseWriter
}

func (b *body) deadline(t time.Time) {
	_ = http.NewResponseController(b.w).SetReadDeadline(t) // a connection that is closed, or none, as in tests
}

// Read frees the connection at the end: the server goes on reading, to see whether the client goes away.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.deadline(time.Time{})
		b.w.Header().Del("Connection")
	}
	return n, err
}
