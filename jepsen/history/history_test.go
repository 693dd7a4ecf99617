package history

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecorder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	id := MessageID{Process: 2, Life: 1, Seq: 17}
	first := r.Record(Op{Process: 2, Life: 1, Type: Invoke, F: Publish, Queue: "q", Value: id.String()})
	r.Record(Op{Of: first, Process: 2, Life: 1, Type: OK, F: Publish, Queue: "q", Value: id.String()})
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for range 100 {
				r.Record(Op{Process: i, Type: OK, F: Deliver, Redelivered: true, Extra: map[string]string{"a": "b"}})
			}
		})
	}
	clients.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	ops, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(ops) != 402 {
		t.Fatalf("%d operations, want 402", len(ops))
	}
	for i, op := range ops {
		if op.Index != i+1 || i > 0 && op.Time < ops[i-1].Time {
			t.Fatalf("operation %d has index %d and time %v", i, op.Index, op.Time)
		}
	}
	got := ops[1]
	got.Time = 0
	want := Op{Index: 2, Of: 1, Process: 2, Life: 1, Type: OK, F: Publish, Queue: "q", Value: "2.1.17"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if back, err := ParseMessageID(got.Value); err != nil || back != id {
		t.Errorf("the id comes back as %v, %v", back, err)
	}
}

func TestBadHistory(t *testing.T) {
	for name, text := range map[string]string{"no JSON": "hello\n", "cut off": `{"index":1,"f":"publ`} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, id := range []string{"", "1.2", "1.2.x", "1.2.3.4"} {
		if _, err := ParseMessageID(id); err == nil {
			t.Errorf("ParseMessageID(%q): no error", id)
		}
	}
}
