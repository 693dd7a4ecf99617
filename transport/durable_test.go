package transport

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// slowDisk knows up to which index a log is durable.
type slowDisk struct {
	mu    sync.Mutex
	upTo  uint64
	err   error
	later []waiting
}

type waiting struct {
	index uint64
	then  func(error)
}

func (d *slowDisk) durable(index uint64, then func(error)) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || index <= d.upTo {
		return d.err == nil, d.err
	}
	d.later = append(d.later, waiting{index, then})
	return false, nil
}

// sync makes everything up to index durable, or fails.
func (d *slowDisk) sync(index uint64, err error) {
	d.mu.Lock()
	d.upTo, d.err = index, err
	var due, rest []waiting
	for _, w := range d.later {
		if w.index <= index || err != nil {
			due = append(due, w)
		} else {
			rest = append(rest, w)
		}
	}
	d.later = rest
	d.mu.Unlock()
	for _, w := range due {
		w.then(err)
	}
}

func (d *slowDisk) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.later)
}

func nothingYet(t *testing.T, what string, c <-chan raft.AppendFuture) {
	t.Helper()
	select {
	case f := <-c:
		t.Fatalf("%s: %+v", what, f.Response())
	case <-time.After(30 * time.Millisecond):
	}
}

// A follower whose log stages answers what it has when that is durable, also an entry it had
// already, and answers at once what acknowledges none.
func TestFollowerAnswersWhenDurable(t *testing.T) {
	a, b := pair(t, nil)
	var disk slowDisk
	refuse := false
	script(t, b, 2, func(cmd any) any {
		resp := agreeable(cmd)
		if r, ok := resp.(*raft.AppendEntriesResponse); ok && refuse {
			r.Success = false
		}
		return resp
	}).HoldAnswers(disk.durable)
	rt := a.Raft(2, 0)
	ask := func(req *raft.AppendEntriesRequest) raft.AppendEntriesResponse {
		t.Helper()
		var resp raft.AppendEntriesResponse
		if err := rt.AppendEntries("b/1", "b/1", req, &resp); err != nil {
			t.Error(err) // asked in other goroutines, too
		}
		return resp
	}
	for range 2 { // the second time it is a repetition
		answered := make(chan raft.AppendEntriesResponse, 1)
		go func() { answered <- ask(entriesRequest(1, 3, 10)) }()
		until(t, "the answer is held", func() bool { return disk.waiting() == 1 })
		if r := ask(&raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1}); !r.Success {
			t.Error("a request without entries is refused")
		}
		select {
		case r := <-answered:
			t.Fatalf("answered too early: %+v", r)
		case <-time.After(30 * time.Millisecond):
		}
		disk.sync(3, nil)
		if r := <-answered; !r.Success || r.LastLog != 3 {
			t.Errorf("answer %+v", r)
		}
		disk.sync(0, nil)
	}
	refuse = true
	if r := ask(entriesRequest(4, 3, 10)); r.Success {
		t.Error("a refusal became a success")
	}
	refuse = false
	failed := make(chan error, 1)
	go func() {
		failed <- rt.AppendEntries("b/1", "b/1", entriesRequest(4, 3, 10), new(raft.AppendEntriesResponse))
	}()
	until(t, "the answer is held", func() bool { return disk.waiting() == 1 })
	disk.sync(0, errors.New("EIO"))
	if err := <-failed; err == nil {
		t.Error("entries that are lost were acknowledged")
	}
	if err := rt.AppendEntries("b/1", "b/1", entriesRequest(4, 3, 10), new(raft.AppendEntriesResponse)); err == nil {
		t.Error("entries were acknowledged after the disk had failed")
	}
}

// A leader whose log stages gets the answers of followers when the entries are durable on its own disk.
func TestLeaderCountsAnswersWhenDurable(t *testing.T) {
	a, b := pair(t, nil)
	var disk slowDisk
	script(t, b, 2, agreeable)
	rt := a.Raft(2, 0)
	rt.HoldAnswers(disk.durable)
	p := pipelineOf(t, rt)
	const requests = 10
	for i := range requests {
		if _, err := p.AppendEntries(entriesRequest(1+10*i, 10, 100), new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err) // answers that are held do not fill the window
		}
	}
	if _, err := p.AppendEntries(&raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1}, new(raft.AppendEntriesResponse)); err != nil {
		t.Fatal(err)
	}
	until(t, "an answer is held", func() bool { return disk.waiting() == 1 })
	nothingYet(t, "counted too early", p.Consumer())
	disk.sync(35, nil)
	for i := range 3 {
		if f := readFuture(t, p); f.Error() != nil || f.Response().LastLog != uint64(10+10*i) {
			t.Fatalf("future %d: %+v, %v", i, f.Response(), f.Error())
		}
	}
	nothingYet(t, "entries 31 to 40 were counted, 35 is durable", p.Consumer())
	disk.sync(100, nil)
	for i := 3; i <= requests; i++ {
		if f := readFuture(t, p); f.Error() != nil || !f.Response().Success {
			t.Fatalf("future %d: %+v, %v", i, f.Response(), f.Error())
		}
	}

	alone := make(chan error, 1)
	go func() {
		alone <- rt.AppendEntries("b/1", "b/1", entriesRequest(101, 10, 10), new(raft.AppendEntriesResponse))
	}()
	until(t, "an answer is held", func() bool { return disk.waiting() == 1 })
	select {
	case err := <-alone:
		t.Fatalf("counted too early: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	disk.sync(110, nil)
	if err := <-alone; err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if _, err := p.AppendEntries(entriesRequest(111, 10, 10), new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "an answer is held", func() bool { return disk.waiting() == 1 })
	disk.sync(110, errors.New("EIO"))
	for range 2 {
		if f := readFuture(t, p); f.Error() == nil || f.Response().Success {
			t.Errorf("counted although the own disk has failed: %+v", f.Response())
		}
	}
}

// Answers that wait for a slow disk are bounded.
func TestHeldAnswersAreBounded(t *testing.T) {
	a, b := pair(t, nil)
	var disk slowDisk
	script(t, b, 2, agreeable)
	rt := a.Raft(2, 0)
	rt.HoldAnswers(disk.durable)
	p := pipelineOf(t, rt)
	const requests = pipelineUnread + 20
	sent := make(chan int, requests)
	var done sync.WaitGroup
	done.Go(func() {
		for i := range requests {
			if _, err := p.AppendEntries(entriesRequest(1+i, 1, 10), new(raft.AppendEntriesResponse)); err != nil {
				t.Error(err)
			}
			sent <- i
		}
	})
	until(t, "the pipeline is full", func() bool { return len(sent) >= pipelineUnread })
	time.Sleep(30 * time.Millisecond)
	if n := len(sent); n != pipelineUnread {
		t.Errorf("%d requests were sent", n)
	}
	disk.sync(1000, nil)
	for range requests {
		readFuture(t, p)
	}
	done.Wait()
}
