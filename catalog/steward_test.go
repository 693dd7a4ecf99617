package catalog

import "testing"

// TestLed: who is said to lead is believed in, unless it is dead or denies it.
func TestLed(t *testing.T) {
	dead := func(id NodeID) bool { return id == "dead" }
	for _, tc := range []struct {
		name string
		all  []position
		want bool
	}{
		{"nobody knows one", []position{{id: "a"}, {id: "b"}}, false},
		{"one does, and it did not answer", []position{{id: "a"}, {id: "b", leader: "c"}}, true},
		{"a dead one", []position{{id: "a"}, {id: "b", leader: "dead"}}, false},
		{"it says so itself", []position{{id: "a"}, {id: "b", leader: "b"}}, true},
		{"it has stepped down and a late heartbeat of it was heard", []position{{id: "a"}, {id: "b", leader: "a"}, {id: "c", leader: "a"}}, false},
		{"it knows another", []position{{id: "a", leader: "c"}, {id: "b", leader: "a"}}, true},
	} {
		if got := led(tc.all, dead); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
