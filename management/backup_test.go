package management

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// shortBackup fails after some bytes.
type shortBackup struct {
	bytes  int
	closed int
}

func (b *shortBackup) Backup(context.Context, time.Duration) (Backup, error) { return b, nil }

func (b *shortBackup) WriteTo(_ context.Context, to io.Writer) error {
	if _, err := to.Write(bytes.Repeat([]byte("x"), b.bytes)); err != nil {
		return err
	}
	return errors.New("peer is down")
}

func (b *shortBackup) Close() { b.closed++ }

// TestBackupFails has a backup fail before its answer has begun, which tells why, and after, which can only be broken off.
func TestBackupFails(t *testing.T) {
	f := newFakeCluster("a")
	server := httptest.NewServer(f.apis["a"])
	defer server.Close()
	ask := func(bytes int) (*http.Response, []byte, error) {
		t.Helper()
		b := &shortBackup{bytes: bytes}
		f.apis["a"].cfg.Backups = b
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/warren/backup", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("admin", "secret")
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if b.closed == 0 {
			t.Error("the cut is not forgotten")
		}
		return resp, raw, err
	}
	resp, raw, err := ask(backupBuffer)
	if want := `{"error":"service_unavailable","reason":"peer is down"}`; err != nil || resp.StatusCode != http.StatusServiceUnavailable || string(raw) != want {
		t.Errorf("%v: %d %s", err, resp.StatusCode, raw)
	}
	if h := resp.Header; h.Get("Content-Disposition") != "" || h.Get("Content-Type") != "application/json" {
		t.Error(h)
	}
	if resp, raw, err := ask(backupBuffer + 1); err == nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%d and %d bytes to the end", resp.StatusCode, len(raw))
	}
}

// TestBackupIsNotKeptForWhoReadsNothing: a client that takes nothing of a backup, such as a stopped process, is cut off; one that is slow is not.
func TestBackupIsNotKeptForWhoReadsNothing(t *testing.T) {
	const size = 64 << 20 // more than the system takes for a connection
	outcome := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := &sending{to: w, stalled: time.Second}
		_, err := out.Write(make([]byte, size))
		outcome <- err
	}))
	defer server.Close()
	for what, pause := range map[string]time.Duration{"slow": 2 * time.Millisecond, "stopped": 0} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		for b := make([]byte, 64<<10); pause > 0; time.Sleep(pause) {
			if _, err := io.ReadFull(resp.Body, b); err != nil {
				break
			}
		}
		if err := <-outcome; (err == nil) != (pause > 0) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		resp.Body.Close()
	}
}

// TestBackupOfAnotherSite: a page of another site has no backup taken by the browser of somebody who has logged in.
func TestBackupOfAnotherSite(t *testing.T) {
	a := newFakeCluster("a").apis["a"]
	taken := &shortBackup{bytes: 2 * backupBuffer}
	a.cfg.Backups = taken
	r := httptest.NewRequest(http.MethodGet, "http://node:15672/api/warren/backup?hold=60", http.NoBody)
	r.RemoteAddr = "127.0.0.1:1"
	r.SetBasicAuth("admin", "secret")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || taken.closed != 0 {
		t.Errorf("%d %s, %d backups", w.Code, w.Body, taken.closed)
	}
}
