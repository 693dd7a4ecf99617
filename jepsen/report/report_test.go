package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/history"
)

// TestWrite: the three files are there, tell the verdict, and the page needs nothing else
// and takes no names for markup.
func TestWrite(t *testing.T) {
	ops := []history.Op{
		{Index: 1, Time: time.Second, Type: history.Invoke, F: history.Publish, Value: "0.1.1", Queue: "<b>"},
		{Index: 2, Of: 1, Time: 2 * time.Second, Type: history.OK, F: history.Publish, Value: "0.1.1", Queue: "<b>"},
		{Index: 3, Time: 2 * time.Second, Process: history.Nemesis, Type: history.Invoke, F: history.Fault, Value: "kill", Node: "node1", Extra: map[string]string{"what": "killed <node1>"}},
		{Index: 4, Of: 3, Time: 4 * time.Second, Process: history.Nemesis, Type: history.OK, F: history.Fault, Value: "kill"},
		{Index: 5, Time: 5 * time.Second, Type: history.OK, F: history.Deliver, Value: "0.1.1"},
	}
	r := Report{
		System: "warren", Workload: "queue", Nemeses: []string{"kill"}, Seed: 7, Repeat: "make me", Ops: len(ops), Dir: t.TempDir(),
		Results: []checker.Result{{Checker: "nothing lost", Count: 1, Problems: []string{"0.1.1 is <lost>"}}},
		Faults:  FaultsOf(ops),
	}
	if len(r.Faults) != 1 || r.Faults[0].End != 4*time.Second || r.Faults[0].Node != "node1" {
		t.Errorf("faults %+v", r.Faults)
	}
	if err := Write(r, ops); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(r.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if text := read(TextFile); !strings.Contains(text, "INVALID") || !strings.Contains(text, "0.1.1 is <lost>") || !strings.Contains(text, "make me") {
		t.Errorf("text:\n%s", text)
	}
	var back Report
	if err := json.Unmarshal([]byte(read(JSONFile)), &back); err != nil || back.Seed != 7 || back.Valid {
		t.Errorf("JSON: %v, %+v", err, back)
	}
	page := read(HTMLFile)
	for _, bad := range []string{"http:", "https:", "<script", "src=", "<node1>", "<b>", "<lost>"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if !strings.Contains(page, "<circle") || !strings.Contains(page, "<rect") {
		t.Error("the page has no timeline")
	}
}

// TestEmpty: a run that recorded nothing has a report, too.
func TestEmpty(t *testing.T) {
	if err := Write(Report{Dir: t.TempDir(), Errors: []string{"the nodes did not start"}}, nil); err != nil {
		t.Fatal(err)
	}
}
