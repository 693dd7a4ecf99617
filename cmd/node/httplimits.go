package main

import (
	"io"
	"net/http"
	"slices"
	"time"
)

// What clients may take of an HTTP listener before they have logged in. Other answers than those of inTime have no limit of time: backups, logs and events go on.
const (
	// httpConnectionsMax bounds the open connections of a listener, if there are files enough (sharesOf): for more, idle ones are closed.
	httpConnectionsMax = 4096
	// httpHeadMax bounds the head of a request, in bytes; net/http reads 4 KiB more. Its own bound is 1 MiB, which so many connections may
	// hold at once.
	httpHeadMax = 16 << 10
	// timeoutHTTPIdle bounds the wait for the next request of a connection.
	timeoutHTTPIdle = 2 * time.Minute
	// timeoutHTTPBody bounds reading a request's body. What takes large ones has longer, once it knows who sends it.
	timeoutHTTPBody = 30 * time.Second
	// openAnswersMax bounds the answers with all queues, which have some hundred bytes for each and need no login, that are made or read at a time,
	// and timeoutOpenAnswer the wait for a turn. Metrics have bounds of their own.
	openAnswersMax    = 8
	timeoutOpenAnswer = 30 * time.Second
)

// answerLimits bound the reading of an answer: a client that stops reading keeps all of it in memory, and its turn.
type answerLimits struct {
	part    int           // bytes
	stalled time.Duration // for a part
	whole   time.Duration // for all
}

// openAnswers are the limits of large answers that need no login.
var openAnswers = answerLimits{part: 64 << 10, stalled: 10 * time.Second, whole: time.Minute}

// inTime cuts off who does not read the answers of h in time.
func inTime(h http.Handler, limits answerLimits) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&timedWriter{w, limits, time.Now().Add(limits.whole)}, r)
	})
}

// timedWriter is what an answer is written to. Its last deadline is that of what the server has yet to write, and ends with the next request, see timedBody.
type timedWriter struct {
	http.ResponseWriter

	limits answerLimits
	end    time.Time
}

// Unwrap is for http.ResponseController.
func (t *timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Write implements io.Writer.
func (t *timedWriter) Write(p []byte) (n int, err error) {
	for part := range slices.Chunk(p, t.limits.part) {
		at := time.Now().Add(t.limits.stalled)
		if at.After(t.end) {
			at = t.end
		}
		_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(at) // a connection that is closed, or none, as in tests
		m, err := t.ResponseWriter.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// inTurn has so many requests at a time answered by h. Others wait, for wait at most.
func inTurn(h http.Handler, most int, wait time.Duration) http.Handler {
	turns := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			h.ServeHTTP(w, r)
		case <-late.C:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many such requests at once", http.StatusServiceUnavailable)
		case <-r.Context().Done():
		}
	})
}

// timedBody gives each request that long for its body, and its answer no deadline of the one before. A connection whose body was not read to its end when the answer begins, as with
// a refusal, is closed: the rest is not waited for.
func timedBody(h http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // as for deadline
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
