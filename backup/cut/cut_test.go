package cut

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/warrenmq/warren/backup"
	"github.com/warrenmq/warren/dlx/mover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// party is a node of a cluster of fakes, with a real Node and a real gate.
type party struct {
	name string
	gate mover.Gate
	node *Node

	mu     sync.Mutex
	leads  map[uint64]uint64 // queue: term
	down   bool
	open   int                   // states that nobody has closed
	before func(do string) error // asked before each call
	stale  bool                  // it cannot prove that it leads
}

func newParty(name string, leads map[uint64]uint64) *party {
	p := &party{name: name, leads: leads, before: func(string) error { return nil }}
	p.node = NewNode(NodeConfig{
		Gate: &p.gate, Logger: slog.New(slog.DiscardHandler),
		Led: func() (list []Queue) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for id, term := range p.leads {
				list = append(list, Queue{id, term})
			}
			return list
		},
		Capture: func(q Queue) (State, uint64, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.leads[q.ID] != q.Term {
				return nil, 0, errors.New("not led")
			}
			p.open++
			return &fakeState{p: p, q: q}, 10 * q.ID, nil
		},
	})
	return p
}

type fakeState struct {
	p    *party
	q    Queue
	once sync.Once
}

func (s *fakeState) Confirm(_, _ time.Time, wait func(time.Duration) bool) error {
	wait(time.Millisecond)
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.stale || s.p.leads[s.q.ID] != s.q.Term {
		return errors.New("led by somebody else")
	}
	return nil
}

func (s *fakeState) Open() (io.ReadCloser, int64, error) {
	b := content(s.q.ID)
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

func (s *fakeState) Close() {
	s.once.Do(func() {
		s.p.mu.Lock()
		defer s.p.mu.Unlock()
		s.p.open--
	})
}

// content is the state of a queue; that of queue 3 takes three reads.
func content(id uint64) []byte {
	if id == 3 {
		return bytes.Repeat([]byte("three"), chunkBytesMax/2)
	}
	return []byte(fmt.Sprint("state of ", id))
}

// town is a cluster of fakes.
type town struct {
	parties []*party
	level   int
	queues  []uint64
	// newer are queues that the catalog has from its nth reading on.
	reads int
	after map[int][]uint64
	// members of every queue
	members []string
}

func (w *town) cluster() Cluster {
	return Cluster{
		Nodes: func() (names []string) {
			for _, p := range w.parties {
				names = append(names, p.name)
			}
			return names
		},
		Call: func(ctx context.Context, node string, req []byte) ([]byte, error) {
			for _, p := range w.parties {
				if p.name != node {
					continue
				}
				r, err := decodeRequest(req)
				if err != nil {
					return nil, err
				}
				p.mu.Lock()
				down := p.down
				p.mu.Unlock()
				if down {
					<-ctx.Done() // as a node that is frozen
					return nil, ctx.Err()
				}
				if err := p.before(string(r.Do)); err != nil {
					return nil, err
				}
				return p.node.Answer(ctx, req)
			}
			return nil, errors.New("no such node")
		},
		Catalog: func(context.Context) (Catalog, error) {
			w.reads++
			ids := w.queues
			if other, ok := w.after[w.reads]; ok {
				ids = other
				w.queues = other
			}
			c := Catalog{
				ClusterID: "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", Level: w.level, Revision: revision,
				Members: func(uint64) []string { return w.members },
				GoesOn:  func(id uint64) bool { return slices.Contains(ids, id+nextLife) },
				Write: func(to io.Writer) error {
					_, err := to.Write([]byte("catalog"))
					return err
				},
			}
			for _, id := range ids {
				c.Queues = append(c.Queues, backup.Queue{ID: id, VHost: "/", Name: fmt.Sprint("q", id%nextLife)})
			}
			return c, nil
		},
		Hold: time.Second, Program: "test", Logger: slog.New(slog.DiscardHandler),
	}
}

// nextLife is added to the id of a queue that goes on under another one.
const (
	nextLife = 1000
	revision = 2000
)

func newTown() *town {
	return &town{
		level: 2, queues: []uint64{1, 2, 3}, members: []string{"a", "b"},
		parties: []*party{newParty("a", map[uint64]uint64{1: 5, 9: 1}), newParty("b", map[uint64]uint64{2: 7, 3: 2, 1: 4}), newParty("c", nil)},
	}
}

// over checks that nobody keeps or holds anything, and ends the nodes.
func (w *town) over(t *testing.T) {
	t.Helper()
	for _, p := range w.parties {
		p.node.Close()
		if !p.gate.Pass(func() {}) {
			t.Errorf("%s: the gate is closed", p.name)
		}
		if p.open != 0 {
			t.Errorf("%s: %d states are open", p.name, p.open)
		}
	}
}

func archive(t *testing.T, k *Cut) map[uint64]string {
	t.Helper()
	var b bytes.Buffer
	if err := k.WriteTo(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	r, err := backup.Open(&b)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[uint64]string{}
	for {
		p, err := r.Next()
		if err == io.EOF {
			return parts
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		id := uint64(0)
		if p.Queue != nil {
			id = p.Queue.ID
		}
		parts[id] = string(raw)
	}
}

func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		k, err := Take(t.Context(), w.cluster())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * keptFor) // whoever is not read from yet is kept all the same
		parts := archive(t, k)
		k.Close()
		k.Close()
		for _, id := range []uint64{1, 2, 3} {
			if parts[id] != string(content(id)) {
				t.Errorf("queue %d has %d bytes", id, len(parts[id]))
			}
		}
		if q := k.Header.Queues[0]; len(parts) != 4 || q.Node != "a" || q.Term != 5 || q.Index != 10 || k.Header.Revision != revision {
			t.Errorf("%d parts, %+v", len(parts), k.Header)
		}
		w.over(t)
	})
}

// TestTakeAgain has something come in between the first time, or for good.
func TestTakeAgain(t *testing.T) {
	failOnce := func(p *party, what string, do func()) {
		done := false
		p.before = func(d string) error {
			if d == what && !done {
				done = true
				do()
			}
			return nil
		}
	}
	moves := func(w *town, term uint64) { // queue 1 gets another leader
		a, c := w.parties[0], w.parties[2]
		a.mu.Lock()
		delete(a.leads, 1)
		a.mu.Unlock()
		c.mu.Lock()
		c.leads = map[uint64]uint64{1: term}
		c.mu.Unlock()
	}
	for name, x := range map[string]struct {
		prepare func(w *town)
		node    string // of queue 1 in the end
		fails   string
		voids   int // attempts in vain, if that is not 0
	}{
		"nothing":                    {prepare: func(*town) {}, node: "a"},
		"a new leader before":        {prepare: func(w *town) { failOnce(w.parties[0], "capture", func() { moves(w, 6) }) }, node: "c"},
		"a new leader afterwards":    {prepare: func(w *town) { failOnce(w.parties[0], "confirm", func() { moves(w, 6) }) }, node: "c"},
		"a new term of the same":     {prepare: func(w *town) { failOnce(w.parties[0], "confirm", func() { w.parties[0].leads[1] = 6 }) }, node: "a"},
		"a hold that ends too early": {prepare: func(w *town) { failOnce(w.parties[1], "release", func() { time.Sleep(2 * time.Second) }) }, node: "a"},
		"a node that is frozen":      {prepare: func(w *town) { w.parties[2].down = true }, node: "a"},
		// The other one believes that it leads queue 1, in an earlier term.
		"a leader that is frozen":  {prepare: func(w *town) { w.parties[0].down, w.parties[1].stale = true, true }, fails: "led by somebody else"},
		"a queue without a leader": {prepare: func(w *town) { w.queues = append(w.queues, 4) }, fails: "'q4' in vhost '/'"},
		"a queue that is declared meanwhile": {prepare: func(w *town) {
			w.after = map[int][]uint64{3: {1, 2, 3, 500}}
		}, node: "a"},
		"a queue that is deleted meanwhile": {prepare: func(w *town) { w.after = map[int][]uint64{3: {1, 3}} }, node: "a"},
		"a queue that is deleted meanwhile, with a node that is frozen": {prepare: func(w *town) {
			w.after = map[int][]uint64{3: {1, 3}}
			w.members = append(w.members, "c")
			w.parties[2].down = true
		}, node: "a", voids: 1},
		"a queue that is deleted meanwhile, and a node that is frozen may have got a replica of it": {prepare: func(w *town) {
			w.after = map[int][]uint64{3: {1, 3}}
			w.parties[2].down = true
		}, node: "a", voids: 1},
		"a level without backups": {prepare: func(w *town) { w.level = 1 }, fails: ErrLevel.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown()
				x.prepare(w)
				k, err := Take(t.Context(), w.cluster())
				switch {
				case x.fails != "":
					if err == nil || !strings.Contains(err.Error(), x.fails) || strings.HasSuffix(err.Error(), context.DeadlineExceeded.Error()) {
						t.Fatalf("taken, or failed with %v", err)
					}
				case err != nil:
					t.Fatal(err)
				default:
					parts := archive(t, k)
					if parts[1] != string(content(1)) || k.Header.Queues[0].Node != x.node {
						t.Errorf("queue 1 is of %s, %q", k.Header.Queues[0].Node, parts[1])
					}
					if _, has := parts[500]; has {
						t.Error("a queue that was not captured is there")
					}
					if x.voids > 0 && w.reads != 3+3*x.voids {
						t.Errorf("%d looks at the catalog", w.reads)
					}
					k.Close()
				}
				w.over(t)
			})
		})
	}
}

// TestQueuesComeAndGo: in the course of every attempt a queue is deleted, declared or both, wherever the attempt is then.
func TestQueuesComeAndGo(t *testing.T) {
	for _, step := range []string{"hold", "capture", "confirm", "release"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown()
				next := uint64(100)
				w.queues = append(w.queues, next)
				b := w.parties[1]
				b.leads[next] = 2
				b.before = func(do string) error {
					b.mu.Lock()
					defer b.mu.Unlock()
					if do != step || b.leads[next] == 0 {
						return nil // who has declared it waits for that
					}
					delete(b.leads, next)
					next++
					w.queues = []uint64{1, 2, 3, next} // it has no leader yet
					time.AfterFunc(50*time.Millisecond, func() {
						b.mu.Lock()
						defer b.mu.Unlock()
						b.leads[w.queues[3]] = 2
					})
					return nil
				}
				began := time.Now()
				k, err := Take(t.Context(), w.cluster())
				if err != nil {
					t.Fatal(err)
				}
				if parts := archive(t, k); len(parts) < 4 || parts[3] != string(content(3)) {
					t.Errorf("%d parts", len(parts))
				}
				k.Close()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
				w.over(t)
			})
		})
	}
}

// TestQueueGoesOnMeanwhile: a queue gets another id between the capture and the last look at the catalog. It is in the backup all the same.
func TestQueueGoesOnMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		const next = 1 + nextLife
		w.after = map[int][]uint64{3: {2, 3, next}}
		w.parties[2].leads = map[uint64]uint64{next: 1}
		k, err := Take(t.Context(), w.cluster())
		if err != nil {
			t.Fatal(err)
		}
		if parts := archive(t, k); parts[next] != string(content(next)) || len(parts) != 4 || w.reads < 5 {
			t.Errorf("%d parts after %d looks at the catalog", len(parts), w.reads)
		}
		k.Close()
		w.over(t)
	})
}

// TestTwoAtOnce begins two backups at once, whose calls take their time: one of them is taken, the other one is told why it is not.
func TestTwoAtOnce(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			w := newTown()
			for _, p := range w.parties {
				p.before = func(string) error {
					time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
					return nil
				}
			}
			cuts, errs := make([]*Cut, 2), make([]error, 2)
			var work sync.WaitGroup
			var mu sync.Mutex
			for i := range cuts {
				c := w.cluster()
				read := c.Catalog
				c.Catalog = func(ctx context.Context) (Catalog, error) {
					mu.Lock()
					defer mu.Unlock()
					return read(ctx)
				}
				work.Go(func() { cuts[i], errs[i] = Take(t.Context(), c) })
			}
			work.Wait()
			taken := 0
			for i, k := range cuts {
				if k != nil {
					taken++
					k.Close()
				} else if !errors.Is(errs[i], ErrUnavailable) || !strings.Contains(errs[i].Error(), errBusy.Error()) {
					t.Error(errs[i])
				}
			}
			if taken != 1 {
				t.Fatalf("%d of two are taken: %v", taken, errs)
			}
			w.over(t)
		})
	}
}

// TestCoordinatorDies: nodes that hear no more of a cut open their gates and drop what they keep.
func TestCoordinatorDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		p := w.parties[0]
		ask := func(text string) error {
			_, err := p.node.Answer(t.Context(), []byte(text))
			return err
		}
		for _, text := range []string{
			`{"version":1,"do":"hold","id":"x","limit_ms":500}`,
			`{"version":1,"do":"capture","id":"x","queues":[{"id":1,"term":5}]}`,
		} {
			if err := ask(text); err != nil {
				t.Fatal(err)
			}
		}
		if err := ask(`{"version":1,"do":"hold","id":"y","limit_ms":500}`); !errors.Is(err, errBusy) {
			t.Errorf("two backups at a time: %v", err)
		}
		if p.gate.Pass(func() {}) || p.open != 1 {
			t.Fatal("nothing is held")
		}
		time.Sleep(time.Second)
		if !p.gate.Pass(func() {}) {
			t.Error("the gate is closed for ever")
		}
		time.Sleep(keptFor)
		synctest.Wait()
		if p.open != 0 {
			t.Error("the state is kept for ever")
		}
		for _, text := range []string{
			`{"version":1,"do":"capture","id":"x"}`, `{"version":1,"do":"read","id":"x","queue":1}`, `{"version":2,"do":"hold","id":"x"}`,
			`{"version":1,"do":"hold","id":"x","limit_ms":600000}`, `{"version":1,"do":"hold"}`, `{`, `{"version":1,"do":"hold","id":"x","limit_ms":-1}`,
		} {
			if err := ask(text); err == nil {
				t.Errorf("%s is answered", text)
			}
		}
		w.over(t)
	})
}

// FuzzRequest gives a node requests of all kinds.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"version":1,"do":"hold","id":"x","limit_ms":500}`), []byte(`{"version":1,"do":"read","id":"x","queue":1,"offset":-1}`))
	f.Add([]byte(`{"version":1,"do":"confirm","id":"x","queues":[{"id":1}]}`), []byte(`{"version":1,"do":"drop","id":"x"}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		p := newParty("a", map[uint64]uint64{1: 5})
		for _, raw := range [][]byte{a, b, a} {
			_, _ = p.node.Answer(t.Context(), raw) // an error or an answer
		}
		p.node.Close()
		if p.open != 0 {
			t.Error("a state is open")
		}
	})
}
