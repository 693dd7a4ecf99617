package transport

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// snapshotTaker consumes a group's snapshots on a node with f.
func snapshotTaker(t *testing.T, m *Mesh, g GroupID, f func(*raft.InstallSnapshotRequest, io.Reader) (any, error)) {
	t.Helper()
	rt := m.Raft(g, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case rpc := <-rt.Consumer():
				resp, err := f(rpc.Command.(*raft.InstallSnapshotRequest), rpc.Reader)
				rpc.Respond(resp, err)
			case <-rt.done:
				return
			}
		}
	}()
	t.Cleanup(func() { rt.Close(); <-done })
}

func install(rt *RaftTransport, size int64, data io.Reader) (raft.InstallSnapshotResponse, error) {
	var resp raft.InstallSnapshotResponse
	req := &raft.InstallSnapshotRequest{
		RPCHeader: headerOf("a/1"), SnapshotVersion: 1, Term: 4, LastLogIndex: 9, LastLogTerm: 3,
		Configuration: []byte{1, 2}, ConfigurationIndex: 1, Size: size,
	}
	err := rt.InstallSnapshot("b/1", "b/1", req, &resp, data)
	return resp, err
}

func TestSnapshotArrivesWhole(t *testing.T) {
	a, b := pair(t, nil)
	want := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	snapshotTaker(t, b, 2, func(req *raft.InstallSnapshotRequest, r io.Reader) (any, error) {
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) || req.LastLogIndex != 9 || req.Size != int64(len(want)) {
			t.Errorf("%d bytes, %v, %+v", len(got), err, req)
		}
		return &raft.InstallSnapshotResponse{Term: 4, Success: true}, nil
	})
	rt := a.Raft(2, 0)
	// More data than announced stays unread.
	resp, err := install(rt, int64(len(want)), bytes.NewReader(append(bytes.Clone(want), "tail"...)))
	if err != nil || !resp.Success || resp.Term != 4 {
		t.Fatalf("install: %+v, %v", resp, err)
	}
}

func TestSnapshotFailuresAreReported(t *testing.T) {
	t.Parallel()
	// Long enough that a starved machine begins within it.
	const stall = 3 * time.Second
	a, b := pair(t, func(c *Config) { c.SnapshotStall = stall })
	started, read := make(chan struct{}, 10), make(chan error, 10)
	snapshotTaker(t, b, 2, func(req *raft.InstallSnapshotRequest, r io.Reader) (any, error) {
		started <- struct{}{}
		_, err := io.Copy(io.Discard, r)
		read <- err
		return &raft.InstallSnapshotResponse{}, err
	})
	rt := a.Raft(2, 0)
	if _, err := install(rt, 100, bytes.NewReader(make([]byte, 60))); err == nil {
		t.Error("a short snapshot was installed")
	}
	<-started
	if err := <-read; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("receiver of a short snapshot: %v", err)
	}
	broken := errors.New("disk fault")
	if _, err := install(rt, 1<<20, io.MultiReader(bytes.NewReader(make([]byte, 300<<10)), failingReader{broken, started})); !errors.Is(err, broken) {
		t.Errorf("broken source: %v", err)
	}
	if err := <-read; err == nil {
		t.Error("the receiver of a broken source saw no error")
	}
	pr, pw := io.Pipe()
	defer pw.Close()
	go func() {
		// The source hangs for longer than the stall bound and then ends.
		pw.Write(make([]byte, snapshotChunkBytes))
		time.Sleep(stall + time.Second)
		pw.CloseWithError(broken)
	}()
	if _, err := install(rt, 1<<20, pr); err == nil {
		t.Error("a stalled snapshot was installed")
	}
	if err := <-read; err == nil {
		t.Error("the receiver of a stalled snapshot saw no error")
	}
	if _, err := install(a.Raft(77, 0), 0, bytes.NewReader(nil)); !errors.Is(err, ErrUnknownGroup) {
		t.Errorf("unknown group: %v", err)
	}
	if s := a.Stats(); s.SnapshotsFailed != 4 || s.SnapshotsSent != 0 {
		t.Errorf("%+v", s)
	}
}

// failingReader fails when the receiver has begun to read.
type failingReader struct {
	err   error
	after <-chan struct{}
}

func (r failingReader) Read([]byte) (int, error) {
	<-r.after
	return 0, r.err
}

func TestSnapshotsAreTwoAtATime(t *testing.T) {
	a, b := pair(t, nil)
	hold := make(chan struct{})
	started := make(chan struct{}, 10)
	for g := GroupID(2); g < 5; g++ {
		snapshotTaker(t, b, g, func(_ *raft.InstallSnapshotRequest, r io.Reader) (any, error) {
			started <- struct{}{}
			<-hold
			io.Copy(io.Discard, r)
			return &raft.InstallSnapshotResponse{Success: true}, nil
		})
	}
	results := make(chan error, 3)
	for g := GroupID(2); g < 5; g++ {
		go func() { _, err := install(a.Raft(g, 0), 3, bytes.NewReader([]byte("abc"))); results <- err }()
	}
	<-started
	<-started
	select {
	case <-started:
		t.Fatal("three snapshots at a time")
	case <-time.After(50 * time.Millisecond):
	}
	close(hold)
	for range 3 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
}

// TestCatalogsSnapshotDoesNotWaitForQueues: snapshots of queues have all slots of theirs.
func TestCatalogsSnapshotDoesNotWaitForQueues(t *testing.T) {
	cases := map[string]struct{ sent, received, refused int }{
		"sender's slots":   {sent: 2, received: 4},
		"receiver's slots": {sent: 4, received: 2, refused: 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, func(cfg *Config) {
				cfg.Snapshots = c.received
				if cfg.Local == "a/1" {
					cfg.Snapshots = c.sent
				}
			})
			finish, results := fillSlots(t, a, b, 2)
			snapshotTaker(t, b, CatalogGroup, takeAll)
			catalog := a.Raft(CatalogGroup, 0)
			for range 2*max(c.sent, c.received) + 1 { // it gives its slots back
				if err := installSoon(t, catalog); err != nil {
					t.Fatalf("the catalog's snapshot: %v", err)
				}
			}
			for range c.refused {
				snapshotTaker(t, b, 9, takeAll)
				if err := installSoon(t, a.Raft(9, 0)); !errors.Is(err, ErrBusy) {
					t.Fatalf("one of a queue beyond the slots: %v", err)
				}
			}
			finish()
			for range 2 {
				if err := <-results; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// fillSlots has n queues' snapshots under way from a to b until finish is called; each then has a result.
func fillSlots(t *testing.T, a, b *Mesh, n int) (finish func(), results <-chan error) {
	t.Helper()
	hold, started, ended := make(chan struct{}), make(chan struct{}, n), make(chan error, n)
	finish = sync.OnceFunc(func() { close(hold) })
	for g := GroupID(2); g < GroupID(2+n); g++ {
		snapshotTaker(t, b, g, func(req *raft.InstallSnapshotRequest, r io.Reader) (any, error) {
			started <- struct{}{}
			<-hold
			return takeAll(req, r)
		})
		rt := a.Raft(g, 0)
		go func() { _, err := install(rt, 3, bytes.NewReader([]byte("abc"))); ended <- err }()
	}
	t.Cleanup(finish) // before the takers are waited for
	for range n {
		<-started
	}
	return finish, ended
}

func takeAll(_ *raft.InstallSnapshotRequest, r io.Reader) (any, error) {
	_, err := io.Copy(io.Discard, r)
	return &raft.InstallSnapshotResponse{Success: true}, err
}

// installSoon fails the test if a small snapshot waits for something.
func installSoon(t *testing.T, rt *RaftTransport) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { _, err := install(rt, 3, bytes.NewReader([]byte("abc"))); done <- err }()
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		rt.Close()
		t.Fatalf("the snapshot of group %d waits", rt.group)
		return nil
	}
}

func TestClosingAGroupEndsItsSnapshots(t *testing.T) {
	a, b := pair(t, nil)
	reading := make(chan struct{})
	receiver := b.Raft(2, 0)
	finished := make(chan error, 1)
	go func() {
		rpc := <-receiver.Consumer()
		close(reading)
		_, err := io.Copy(io.Discard, rpc.Reader)
		finished <- err
	}()
	rt := a.Raft(2, 0)
	pr, pw := io.Pipe()
	defer pw.Close()
	sent := make(chan error, 1)
	go func() { _, err := install(rt, 1<<20, pr); sent <- err }()
	pw.Write(make([]byte, snapshotChunkBytes))
	<-reading
	rt.Close()
	pw.Close() // the source is raft's own file; it never blocks for ever
	if err := <-sent; err == nil {
		t.Fatal("a snapshot of a closed group was installed")
	}
	if err := <-finished; err == nil {
		t.Fatal("the receiver took half a snapshot for a whole one")
	}
}

// TestSnapshotOutlivesRenewal: links are made anew while a snapshot is on its way, and it arrives; when the link is lost, it does not.
func TestSnapshotOutlivesRenewal(t *testing.T) {
	cert, pool := certificate(t)
	for _, lost := range []bool{false, true} {
		a, b := pair(t, func(c *Config) { c.Secure = mutual(cert, pool) })
		snapshotTaker(t, b, 2, takeAll)
		rt := a.Raft(2, 0)
		pr, pw := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := install(rt, 2<<20, pr)
			done <- err
		}()
		half := make([]byte, 1<<20)
		if _, err := pw.Write(half); err != nil {
			t.Fatal(err)
		}
		made := a.Stats().LinksMade
		if lost {
			a.peers["b/1"].current().fail(errSilent)
		} else {
			a.RenewLinks(false)
		}
		until(t, "the link is new", func() bool { return a.Stats().LinksMade > made && a.Peer("b/1").Up })
		if !lost {
			time.Sleep(100 * time.Millisecond)
		}
		go func() {
			_, _ = pw.Write(half)
			_ = pw.Close()
		}()
		if err := <-done; (err == nil) == lost {
			t.Errorf("link lost %t: the snapshot ended with %v", lost, err)
		}
		_ = pr.Close()
	}
}
