package management

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// largeBytes is more than the kernel keeps of what a client does not read.
const largeBytes = 24 << 20

// largeServer serves an API with a list that has one long item, which make gives.
func largeServer(t *testing.T, make func() []string, change func(*room)) *httptest.Server {
	t.Helper()
	a := newFakeCluster("a").apis["a"]
	change(a.room)
	a.handle("GET /api/test/large", func(*http.Request, User) (any, error) { return make(), nil })
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	return s
}

func oneLarge() []string { return []string{strings.Repeat("x", largeBytes)} }

// askLarge asks for the list and reads it whole.
func askLarge(t *testing.T, s *httptest.Server) (status, size int, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/test/large", http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	r.SetBasicAuth("admin", "secret")
	resp, err := s.Client().Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
		t.Error("a refusal does not say when to try again")
	}
	return resp.StatusCode, len(raw), err
}

// idler asks for the list and reads nothing but the first line.
func idler(t *testing.T, s *httptest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprint(conn, "GET /api/test/large HTTP/1.1\r\nHost: n\r\nConnection: close\r\nAuthorization: Basic YWRtaW46c2VjcmV0\r\n\r\n")
	line := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, line); err != nil || string(line) != "HTTP/1.1 200" {
		t.Fatalf("%s %v", line, err)
	}
	return conn
}

// TestLargeAnswersAreMadeFewAtATime: however many ask for a list at once, few of them have it made, and all get it.
func TestLargeAnswersAreMadeFewAtATime(t *testing.T) {
	t.Parallel()
	const clients = 5 * answersMade
	var now, most atomic.Int64
	entered, goOn := make(chan struct{}, clients), make(chan struct{})
	s := largeServer(t, func() []string {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		entered <- struct{}{}
		<-goOn
		return []string{strings.Repeat("x", answerLarge)}
	}, func(*room) {})
	var asking sync.WaitGroup
	for range clients {
		asking.Go(func() {
			if status, size, err := askLarge(t, s); status != http.StatusOK || size != answerLarge+4 || err != nil {
				t.Errorf("%d, %d bytes, %v", status, size, err)
			}
		})
	}
	for range answersMade {
		<-entered
	}
	close(goOn)
	asking.Wait()
	if n := most.Load(); n != answersMade {
		t.Errorf("%d were made at a time, want %d", n, answersMade)
	}
}

// TestIdleReadersMakeRoom: who reads nothing of a large answer is cut off when others wait for its room, and not before; who reads
// gets all, and may ask again on the same connection.
func TestIdleReadersMakeRoom(t *testing.T) {
	t.Parallel()
	s := largeServer(t, oneLarge, func(o *room) { o.stalled = 100 * time.Millisecond })
	idle := []net.Conn{idler(t, s), idler(t, s)} // 64 MiB have room for them
	for range 3 {
		if status, size, err := askLarge(t, s); status != http.StatusOK || size != largeBytes+4 || err != nil {
			t.Fatalf("%d, %d bytes, %v", status, size, err)
		}
	}
	cut := 0
	for _, conn := range idle {
		if n, _ := io.Copy(io.Discard, conn); n < largeBytes {
			cut++
		}
	}
	if cut == 0 {
		t.Error("of those that read nothing none was cut off")
	}
}

// TestNoRoomIsRefused: a request waits for its turn for a while, and is then refused.
func TestNoRoomIsRefused(t *testing.T) {
	t.Parallel()
	s := largeServer(t, oneLarge, func(o *room) { o.wait, o.stalled = 100*time.Millisecond, time.Hour })
	idle := []net.Conn{idler(t, s), idler(t, s)}
	if status, size, err := askLarge(t, s); status != http.StatusServiceUnavailable || err != nil {
		t.Errorf("%d, %d bytes, %v", status, size, err)
	}
	for _, conn := range idle {
		conn.Close()
	}
	for status := 0; status != http.StatusOK; { // when the server has seen that they are gone
		var err error
		if status, _, err = askLarge(t, s); err != nil || status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Fatal(status, err)
		}
	}
}

// TestRoomIsThereBeforeMessagesAreTaken: what takes messages from a queue has room for them before it does, and none that has taken some is refused.
func TestRoomIsThereBeforeMessagesAreTaken(t *testing.T) {
	t.Parallel()
	o := newRoom(4, 1<<20)
	o.most, o.wait = 3<<20, 50*time.Millisecond
	r := httptest.NewRequest(http.MethodPost, "/api/queues/%2F/q/get", http.NoBody)
	begin := func() (*answering, error) { return o.begin(r, new(sizes)) }
	var got []*answering
	for range 3 {
		a, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, a)
	}
	for range 2 * cap(o.making) { // and those that are refused keep no turn
		if _, err := begin(); !errors.Is(err, errNoRoom) {
			t.Fatalf("without room: %v", err)
		}
	}
	for _, a := range got {
		if err := a.enter(2<<20, func() {}); err != nil {
			t.Errorf("with messages in hand: %v", err)
		}
	}
	if o.held != 6<<20 || len(o.making) != 0 {
		t.Errorf("%d bytes are held, %d turns", o.held, len(o.making))
	}
	for _, a := range got {
		a.end()
	}
	if a, err := begin(); err != nil || o.held != 1<<20 {
		t.Errorf("%v, %d bytes are held", err, o.held)
	} else {
		a.end()
	}
	if o.held != 0 || len(o.making) != 0 || len(o.readers) != 0 {
		t.Errorf("%d bytes are held, %d turns, %d readers", o.held, len(o.making), len(o.readers))
	}
}
