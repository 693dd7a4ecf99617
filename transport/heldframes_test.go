package transport

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// holder is a node that keeps the frames of groups, beside a model of what it is to keep. Nothing expires by itself.
type holder struct {
	m    *Mesh
	in   *inbound
	held map[GroupID][]int64 // bytes of the frames
	was  []*heldFrames       // that were held once
	open map[GroupID]*RaftTransport
	full map[GroupID]int64 // bytes waiting for Raft, which takes nothing
}

func newHolder(t testing.TB, change func(*Config)) *holder {
	m := startMesh(t, &directory{}, "b/1", func(c *Config) {
		c.GroupHold = time.Hour
		change(c)
	})
	m.OnUnknownGroup(func(GroupID, NodeID, uint64) {})
	return &holder{
		m: m, in: &inbound{m: m, from: "a/1", out: newOutbox(1<<30, m.pool), done: make(chan struct{}), calls: newCallContext(m.ctx)},
		held: map[GroupID][]int64{}, open: map[GroupID]*RaftTransport{}, full: map[GroupID]int64{},
	}
}

// heldBytes are those of the requests for groups that do not run, by the model.
func (h *holder) heldBytes() (n int64) {
	for _, frames := range h.held {
		n += sum(frames)
	}
	return n
}

// bytes are those of all requests that wait, by the model.
func (h *holder) bytes() int64 {
	n := h.heldBytes()
	for _, b := range h.full {
		n += b
	}
	return n
}

func sum(frames []int64) (n int64) {
	for _, b := range frames {
		n += b
	}
	return n
}

// frame is a request for a group of so many bytes.
func (h *holder) frame(g GroupID, bytes int64) {
	h.m.groups.route(g, 7, &inboundRPC{
		in: h.in, check: targetCheck(Replica("b/1", 0), g), bytes: bytes,
		cmd: &raft.AppendEntriesRequest{Term: 1}, resp: make(chan raft.RPCResponse, 1),
	})
	switch {
	case h.bytes()+bytes > h.m.cfg.InboxBytesMax: // refused
	case h.open[g] != nil:
		h.full[g] += bytes
	case h.heldBytes()+bytes > h.m.cfg.InboxBytesMax/heldShare: // refused
	default:
		h.held[g] = append(h.held[g], bytes)
		h.was = append(h.was, h.m.groups.held[g])
	}
}

// start opens a group, whose Raft takes nothing.
func (h *holder) start(g GroupID) {
	if h.open[g] == nil {
		h.open[g] = h.m.Raft(g, 0)
		h.full[g] = sum(h.held[g])
		delete(h.held, g)
	}
}

// stop closes a group.
func (h *holder) stop(g GroupID) {
	if rt := h.open[g]; rt != nil {
		rt.Close()
		delete(h.open, g)
		delete(h.full, g)
	}
}

// expire is the end of a hold's time, if it is one that is over already, too.
func (h *holder) expire(g GroupID, f *heldFrames) {
	if h.m.groups.held[g] == f {
		delete(h.held, g)
	}
	h.m.groups.expire(g, f)
}

// TestHeldFramesAreCounted: the bytes of a frame count from when it is held until it goes to Raft, expires or is
// forgotten at the end, once.
func TestHeldFramesAreCounted(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHolder(t, func(c *Config) { c.InboxBytesMax, c.InboxDepth = 1000, 1<<10 })
		defer h.m.Close()
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			g := GroupID(rapid.IntRange(2, 5).Draw(r, "group"))
			stopped := false
			switch rapid.IntRange(0, 5).Draw(r, "step") {
			case 0, 1, 2:
				h.frame(g, int64(rapid.IntRange(1, 400).Draw(r, "bytes")))
			case 3:
				h.start(g)
			case 4:
				h.stop(g)
				stopped = true
			default:
				if n := len(h.was); n > 0 {
					h.expire(g, h.was[rapid.IntRange(0, n-1).Draw(r, "hold")])
				}
			}
			if stopped { // what Raft had not answered is let go of by a goroutine
				until(t, "the requests are answered", func() bool { return h.m.Stats().InboxBytes == h.bytes() })
			}
			if got := h.m.Stats().InboxBytes; got != h.bytes() || got > h.m.cfg.InboxBytesMax {
				r.Fatalf("%d bytes wait, want %d", got, h.bytes())
			}
		}
		h.m.Close()
		if got := h.m.Stats().InboxBytes; got != 0 {
			r.Fatalf("%d bytes wait at the end", got)
		}
	})
}

// TestHeldFramesAreBounded fills a node with frames of groups that never start: the sender is told to come back later,
// and may when they have expired.
func TestHeldFramesAreBounded(t *testing.T) {
	a, b := pair(t, func(c *Config) {
		c.InboxBytesMax, c.GroupHold, c.AnswerWait = heldShare*10_000, time.Hour, time.Minute
	})
	b.OnUnknownGroup(func(GroupID, NodeID, uint64) {})
	results := make(chan error, 4)
	send := func(g GroupID) {
		rt := a.Raft(g, 0)
		go func() {
			var resp raft.AppendEntriesResponse
			results <- rt.AppendEntries("b/1", "b/1", &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1, Entries: logs(1, 1, 4000)}, &resp)
		}()
	}
	for g := GroupID(2); g < 5; g++ {
		send(g)
	}
	if err := <-results; !errors.Is(err, ErrBusy) {
		t.Fatalf("a frame beyond the bound: %v", err)
	}
	for g := GroupID(2); g < 5; g++ {
		script(t, b, g, agreeable)
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Fatalf("a frame that was held: %v", err)
		}
	}
	until(t, "nothing is counted any more", func() bool { return b.Stats().InboxBytes == 0 })
}

// TestQuestionsAreOfHeldGroups has the host busy with one group while those of others expire and are held again.
func TestQuestionsAreOfHeldGroups(t *testing.T) {
	h := newHolder(t, func(*Config) {})
	asked, goOn := make(chan GroupID, 100), make(chan struct{})
	t.Cleanup(func() { close(goOn) }) // before the mesh is closed
	h.m.OnUnknownGroup(func(g GroupID, _ NodeID, _ uint64) { asked <- g; <-goOn })
	waiting := func(want int) {
		t.Helper()
		h.m.groups.hookMu.Lock()
		defer h.m.groups.hookMu.Unlock()
		if got := len(h.m.groups.asks); got != want {
			t.Fatalf("%d questions wait, want %d", got, want)
		}
	}
	h.frame(2, 1)
	if g := <-asked; g != 2 {
		t.Fatalf("asked for group %d", g)
	}
	for range 10 {
		for g := GroupID(3); g < 6; g++ {
			h.frame(g, 1)
			h.frame(g, 1)
		}
		waiting(3)
		for g := GroupID(3); g < 6; g++ {
			h.expire(g, h.m.groups.held[g])
		}
		waiting(0)
	}
	for g := GroupID(3); g < 5; g++ {
		h.frame(g, 1)
	}
	h.start(4) // which nobody need be asked for any more
	waiting(1)
	goOn <- struct{}{}
	if g := <-asked; g != 3 {
		t.Fatalf("asked for group %d, want the one that is held", g)
	}
	h.expire(2, h.m.groups.held[2])
	h.frame(2, 1) // asked for once, and held anew
	goOn <- struct{}{}
	if g := <-asked; g != 2 {
		t.Fatalf("asked for group %d, want the one that is held anew", g)
	}
	waiting(0)
}
