package management

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestLargeBodiesMakeRoom: bodies that are large take room together; who does not go on with one is cut off when others wait for it, and not before. Small ones wait for nothing.
func TestLargeBodiesMakeRoom(t *testing.T) {
	t.Parallel()
	const size = 100 << 10
	a := newFakeCluster("a").apis["a"]
	a.bodies.most, a.bodies.stalled = size*bodyDecoded, 100*time.Millisecond
	a.handle("PUT /api/test/large", func(r *http.Request, _ User) (any, error) {
		_, err := readObject(r)
		return nil, err
	})
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	put := func(bytes int, chunked bool) (status int) {
		t.Helper()
		body := io.Reader(strings.NewReader(`{"a":"` + strings.Repeat("x", bytes) + `"}`))
		if chunked {
			body = io.MultiReader(body) // of which no length is known
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/api/test/large", body)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("admin", "secret")
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	held := func(want int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			a.bodies.mu.Lock()
			n := a.bodies.held
			a.bodies.mu.Unlock()
			if n == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d bytes are held, want %d", n, want)
			}
		}
	}
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT /api/test/large HTTP/1.1\r\nHost: n\r\nAuthorization: Basic YWRtaW46c2VjcmV0\r\nContent-Length: %d\r\n\r\n{", size)
	held(size * bodyDecoded)
	time.Sleep(3 * a.bodies.stalled)
	held(size * bodyDecoded) // nobody needs it
	if status := put(100, false); status != http.StatusNoContent {
		t.Errorf("a small body while a large one is read: %d", status)
	}
	for _, chunked := range []bool{false, true} {
		if status := put(size/2, chunked); status != http.StatusNoContent {
			t.Errorf("a large body, chunked %v: %d", chunked, status)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("the one that did not go on: %d", resp.StatusCode)
	}
	held(0)
}

// TestNoRoomForABody: a request waits for room for its body for a while, and is then refused.
func TestNoRoomForABody(t *testing.T) {
	t.Parallel()
	a := newFakeCluster("a").apis["a"]
	a.bodies.wait, a.bodies.held = time.Millisecond, a.bodies.most
	r := httptest.NewRequest(http.MethodPut, "/api/vhosts/v", strings.NewReader(strings.Repeat(" ", bodyLarge+1)+"{}"))
	r.SetBasicAuth("admin", "secret")
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "large requests") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
