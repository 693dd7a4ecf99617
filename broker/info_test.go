package broker

import (
	"testing"

	"github.com/warrenmq/warren/catalog"
)

func TestStateOf(t *testing.T) {
	three := []catalog.NodeID{"a/1", "b/2", "c/3"}
	for _, tc := range []struct {
		members []catalog.NodeID
		wanted  []catalog.NodeID
		online  int
		want    string
	}{
		{three, nil, 3, "running"},
		{three, nil, 2, "running"},
		{three, nil, 1, "minority"},
		{three, nil, 0, "down"},
		{three[:2], nil, 1, "minority"},
		{three[:1], nil, 1, "running"},
		{three[:1], nil, 0, "down"},
		{three, three[:1], 1, "running"}, // the others may be learners yet
		{three, three[:1], 0, "down"},
	} {
		if got := stateOf(&catalog.Queue{Members: tc.members, Wanted: tc.wanted}, tc.online); got != tc.want {
			t.Errorf("%d of %v online, wanted %v: %s, want %s", tc.online, tc.members, tc.wanted, got, tc.want)
		}
	}
}
