package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/pki"
)

// httpConnsRig is a server with few connections, of which the path /hold keeps those busy that ask for it.
type httpConnsRig struct {
	*testing.T

	addr          string
	client        *tls.Config // nil without TLS
	held, release chan struct{}
}

func newHTTPConnsRig(t *testing.T, most int, server, client *tls.Config) *httpConnsRig {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &httpConnsRig{t, ln.Addr().String(), client, make(chan struct{}), make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/hold", func(http.ResponseWriter, *http.Request) { r.held <- struct{}{}; <-r.release })
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	ln = newHTTPConns(ln, most)
	if server != nil {
		ln = tls.NewListener(ln, server)
	}
	s := &http.Server{Handler: mux, ConnState: httpConnState, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return r
}

func (r *httpConnsRig) dial() net.Conn {
	r.Helper()
	var nc net.Conn
	var err error
	if d := (&net.Dialer{}); r.client == nil {
		nc, err = d.DialContext(r.Context(), "tcp", r.addr)
	} else {
		nc, err = (&tls.Dialer{NetDialer: d, Config: r.client}).DialContext(r.Context(), "tcp", r.addr)
	}
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = nc.Close() }) // the server may have closed it
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	return nc
}

func (r *httpConnsRig) ask(nc net.Conn, path string) {
	r.Helper()
	if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path); err != nil {
		r.Fatal(err)
	}
}

// answered waits for the answer to a request.
func (r *httpConnsRig) answered(nc net.Conn) {
	r.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		r.Fatal(err)
	}
	_ = resp.Body.Close()
}

// TestIdleHTTPConnections: connections without a request keep nobody out, whether they had one before or not; those that have one are not closed, and the
// next waits for them.
func TestIdleHTTPConnections(t *testing.T) {
	const most = 4
	r := newHTTPConnsRig(t, most, nil, nil)
	for range 3 * most {
		nc := r.dial()
		r.ask(nc, "/")
		r.answered(nc)
		_ = r.dial() // says nothing
	}
	var busy []net.Conn
	for range most {
		nc := r.dial()
		r.ask(nc, "/hold")
		<-r.held
		busy = append(busy, nc)
	}
	last := r.dial()
	r.ask(last, "/")
	_ = last.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := last.Read(make([]byte, 1)); err == nil {
		t.Fatalf("one more than there may be was served (%d bytes)", n)
	}
	_ = last.SetReadDeadline(time.Now().Add(30 * time.Second))
	r.release <- struct{}{}
	r.answered(last)
	close(r.release)
	answers := 0
	for _, nc := range busy {
		if resp, err := http.ReadResponse(bufio.NewReader(nc), nil); err == nil {
			_ = resp.Body.Close()
			answers++
		}
	}
	if answers < most-1 { // the first to be released may have gone for the last
		t.Errorf("of %d requests %d were answered", most, answers)
	}
}

// TestIdleHTTPSConnections is the same over TLS, in short.
func TestIdleHTTPSConnections(t *testing.T) {
	ca, err := pki.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Leaf{DNS: []string{"h"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	r := newHTTPConnsRig(t, 2, &tls.Config{Certificates: []tls.Certificate{c}}, &tls.Config{InsecureSkipVerify: true})
	for range 8 {
		nc := r.dial()
		r.ask(nc, "/")
		r.answered(nc)
	}
}
