package management

import (
	"fmt"
	"testing"
)

// measuredLocal is a node's own part that tells of its memory.
type measuredLocal struct{ Local }

func (measuredLocal) Memory() Memory {
	return Memory{Used: 7, Limit: 20, Total: 9, Parts: []MemoryPart{{"queues", 4, "q"}, {"stacks", 5, "s"}}}
}

func (measuredLocal) LogTail(n int) ([]string, uint64) { return []string{fmt.Sprint(n)}, 9 }

func (measuredLocal) LogAfter(number uint64, n int) ([]string, uint64, uint64) {
	return []string{fmt.Sprint(number, " ", n)}, 11, 3
}

// TestLogLines: the newest lines, or those behind one.
func TestLogLines(t *testing.T) {
	f := newFakeCluster("a")
	f.apis["a"].cfg.Local = measuredLocal{}
	for query, want := range map[string]string{
		"": `200 {"lines":["50"],"last":9}`, "?lines=2": `200 {"lines":["2"],"last":9}`, "?lines=3&after=8": `200 {"lines":["8 3"],"last":11,"missed":3}`,
		"?after=x":  `400 {"error":"bad_request","reason":"after must be the number of a line, got \"x\""}`,
		"?after=-1": `400 {"error":"bad_request","reason":"after must be the number of a line, got \"-1\""}`,
	} {
		if status, body := f.request(t, "admin", "GET", "/api/warren/log"+query, ""); fmt.Sprint(status, " ", body) != want {
			t.Errorf("%s: %d %s, want %s", query, status, body, want)
		}
	}
	if status, _ := f.request(t, "monitor", "GET", "/api/warren/log?after=1", ""); status != 401 {
		t.Errorf("for no administrator: %d", status)
	}
}

func TestMemory(t *testing.T) {
	f := newFakeCluster("a")
	f.apis["a"].cfg.Local = measuredLocal{}
	const want = `{"node":"a","used":7,"limit":20,"total":9,"parts":[{"part":"queues","bytes":4,"about":"q"},{"part":"stacks","bytes":5,"about":"s"}]}`
	for user, status := range map[string]int{"admin": 200, "monitor": 200, "manager": 401} {
		if got, body := f.request(t, user, "GET", "/api/warren/memory", ""); got != status || status == 200 && body != want {
			t.Errorf("%s: %d %s", user, got, body)
		}
	}
}
