package management

import "testing"

// measuredLocal is a node's own part that tells of its memory.
type measuredLocal struct{ Local }

func (measuredLocal) Memory() Memory {
	return Memory{Used: 7, Limit: 20, Total: 9, Parts: []MemoryPart{{"queues", 4, "q"}, {"stacks", 5, "s"}}}
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
