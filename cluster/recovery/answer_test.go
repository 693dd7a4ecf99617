package recovery

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/warrenmq/warren/cluster/bootstrap"
	"github.com/warrenmq/warren/transport"
)

const promiseText = `{"version":1,"do":"promise","succession":{"id":"` + nextLife + `","former":"` + modelLife + `","by":"a/` + modelStorage +
	`","members":["a/` + modelStorage + `"],"lost":["b/` + modelStorage + `"]}}`

const nextLife = "22222222-2222-4333-8444-555555555555"

// alone is a node whose cluster is a.
func alone(t testing.TB) *Local {
	t.Helper()
	dir := t.TempDir()
	raw := fmt.Sprintf(`{"version":2,"node":"a","storage":%q,"cluster":{"id":%q},"parts":[]}`, modelStorage, modelLife)
	if err := os.WriteFile(dir+"/node.json", []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	identity, err := bootstrap.OpenIdentity(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = identity.Close() })
	w := &world{ids: []NodeID{identity.NodeID(), "b/" + modelStorage, "c/" + modelStorage}}
	n := &modelNode{w: w, id: identity.NodeID(), log: []entry{{1, 1}}}
	return &Local{
		Identity: identity, Part: "catalog", Copy: func() Copy { return n }, Met: func() []NodeID { return nil },
		Linked: func(NodeID) bool { return false }, Renew: func(string) {},
		Call: func(context.Context, NodeID, uint8, []byte) ([]byte, error) { return nil, errNoAnswer },
	}
}

// TestBadQuestions has what a node answers with an error, and does not do.
func TestBadQuestions(t *testing.T) {
	l := alone(t)
	for name, raw := range map[string]string{
		"nothing": "", "no JSON": "x", "more behind it": `{"version":1,"do":"survey"} {}`, "another version": `{"version":2,"do":"survey"}`,
		"an unknown verb": `{"version":1,"do":"found it"}`, "a promise to nothing": `{"version":1,"do":"promise"}`, "another's cluster": strings.Replace(promiseText, modelLife, modelStorage, 1),
		"a promise without members": strings.Replace(promiseText, `["a/`+modelStorage+`"]`, `[]`, 1), "prepared before promised": `{"version":1,"do":"prepare","id":"` + nextLife + `","keep":{"node":"a/` + modelStorage + `"}}`,
		"prepared from nobody": `{"version":1,"do":"prepare","id":"` + nextLife + `"}`, "founded before promised": `{"version":1,"do":"found","id":"` + nextLife + `"}`,
		"too long": `{"version":1,"do":"survey","lost":["` + strings.Repeat("x", messageBytesMax) + `"]}`,
	} {
		_, err := l.Handle(t.Context(), "b/x", []byte(raw))
		if e, ok := errors.AsType[*transport.RemoteError](err); !ok || e.Code != codeRefused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.Identity.Succession() != nil {
		t.Error("it has promised")
	}
	if _, err := l.Handle(t.Context(), "b/x", []byte(`{"version":1,"do":"abandon","id":"`+nextLife+`"}`)); err != nil {
		t.Errorf("what was not promised cannot be given up: %v", err)
	}
	for _, raw := range []string{"", "x", `{"version":1}`, `{"version":1,"id":"` + nextLife + `","offset":9}`} {
		if _, err := l.HandleSeed(t.Context(), "b/x", []byte(raw)); err == nil {
			t.Errorf("%q gets a part", raw)
		}
	}
}

// TestBadSeeds has what a node does not begin a life with.
func TestBadSeeds(t *testing.T) {
	l := alone(t)
	if _, err := l.Handle(t.Context(), "a/x", []byte(promiseText)); err != nil {
		t.Fatal(err)
	}
	keep := &Survey{Node: "b/" + modelStorage, Term: 1, Index: 9}
	part := func(total uint64, n int) []byte { return append(binary.AppendUvarint(nil, total), make([]byte, n)...) }
	for name, answer := range map[string][]byte{
		"nothing": {}, "no length": {0xff}, "an empty part": part(9, 0), "too much": part(9, 10), "more than can be": part(seedBytesMax+1, 1), "no snapshot": part(9, 9),
	} {
		l.Call = func(context.Context, NodeID, uint8, []byte) ([]byte, error) { return answer, nil }
		if sum, err := l.Prepare(t.Context(), nextLife, keep); err == nil {
			t.Errorf("%s is taken: %s", name, sum)
		}
	}
	// The snapshot of this node's own copy, as if it were the newest one, with an end that others did not see.
	keep.Node = l.Identity.NodeID()
	if _, err := l.Prepare(t.Context(), nextLife, keep); err == nil || !strings.Contains(err.Error(), "its copy ends at") {
		t.Errorf("a copy that has gone on: %v", err)
	}
	open := l.Copy
	l.Copy = func() Copy { return nil }
	if _, err := l.Prepare(t.Context(), nextLife, keep); !errors.Is(err, errNotOpen) {
		t.Errorf("a node that was started again since it promised: %v", err)
	}
	l.Copy = open
	if s := l.Identity.Succession(); s == nil || s.Ready {
		t.Errorf("promised to %+v", s)
	}
	have, err := l.Survey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := l.Prepare(t.Context(), nextLife, have); err != nil || len(sum) != 64 || !l.Identity.Succession().Ready {
		t.Errorf("%q %v", sum, err)
	}
}

// TestPromisedWhileAsked: the question went out before the promise, and the answer came when the next life was founded and ready here.
func TestPromisedWhileAsked(t *testing.T) {
	l := alone(t)
	renewed := ""
	l.Renew = func(why string) { renewed = why }
	before := l.Identity.Succession()
	if _, err := l.Handle(t.Context(), "a/x", []byte(promiseText)); err != nil {
		t.Fatal(err)
	}
	have, err := l.Survey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Prepare(t.Context(), nextLife, have); err != nil {
		t.Fatal(err)
	}
	answer := fmt.Sprintf(`{"version":1,"node":"c/%s","cluster":{"id":%q},"former":[%q]}`, modelStorage, nextLife, modelLife)
	if lost, err := l.Consider(before, []byte(answer)); lost != "" || err != nil || l.Identity.ClusterID() != nextLife || renewed == "" {
		t.Errorf("in cluster %s (%q): %q %v", l.Identity.ClusterID(), renewed, lost, err)
	}
}

// TestRefusals has the requests that are refused, with the reason that operators read.
func TestRefusals(t *testing.T) {
	const a, b, c, d = NodeID("a/1"), NodeID("b/1"), NodeID("c/1"), NodeID("d/1")
	for _, tc := range []struct {
		name string
		lost []string
		do   func(f fakePeers)
		want string
	}{
		{"as it should be", []string{"b", "c"}, func(fakePeers) {}, ""},
		{"by its id", []string{string(b), "c"}, func(fakePeers) {}, ""},
		{"nobody is named", nil, func(fakePeers) {}, "are to be named"},
		{"a stranger is named", []string{"b", "c", "x"}, func(fakePeers) {}, "no node of the cluster is called 'x'"},
		{"this node is named", []string{"a"}, func(fakePeers) {}, "this node is named as lost"},
		{"somebody does not answer", []string{"b"}, func(f fakePeers) { delete(f, c) }, "no answer from node 'c/1'"},
		{"only another's copy knows of one", []string{"b", "c"}, func(f fakePeers) { f[d].Nodes = append(f[d].Nodes, "e/1") }, "no answer from node 'e/1'"},
		{"only gossip knows of one", []string{"b", "c"}, func(f fakePeers) { f[d].Met = []NodeID{"e/1"} }, "no answer from node 'e/1'"},
		{"one is there", []string{"b", "c"}, func(f fakePeers) { f[d].Linked = []NodeID{c} }, "node 'd/1' is linked to it"},
		{"one with an empty folder is there", []string{"b", "c"}, func(f fakePeers) { f.comes("c/2", &Survey{}) }, ""},
		{"one is there that has something", []string{"b", "c"}, func(f fakePeers) { f.comes("c/2", &Survey{Term: 1, Index: 3}) }, "node 'a/1' is linked to it"},
		{"one is there and does not say what it has", []string{"b", "c"}, func(f fakePeers) { f.comes("c/2", nil) }, "node 'a/1' is linked to it"},
		{"one is there that votes", []string{"b", "c"}, func(f fakePeers) {
			f.comes("c/2", &Survey{})
			f[d].Voters = append(f[d].Voters, "c/2")
		}, "node 'a/1' is linked to it"},
		{"a majority is there", []string{"b"}, func(fakePeers) {}, "2 of the catalog's 3 voters are there"},
		{"there is a leader", []string{"b", "c"}, func(f fakePeers) { f[a].Leader, f[d].Leader = d, d }, "has a leader, node 'd/1'"},
		{"who follows a lost leader does not know yet", []string{"b", "c"}, func(f fakePeers) { f[a].Leader, f[d].Leader = b, b }, ""},
		{"who follows one that is none any more", []string{"b", "c"}, func(f fakePeers) { f[a].Leader = d }, ""},
		{"somebody has gone on", []string{"b", "c"}, func(f fakePeers) { f[d].Cluster = nextLife }, "a recovery is under way"},
		{"one was replaced, as one copy knows", []string{"b", "c"}, func(f fakePeers) {
			f[a].Nodes, f[d].Replaced = append(f[a].Nodes, "e/0"), []NodeID{"e/0"}
			f["e/0"] = &Survey{Node: "e/0", Cluster: modelLife}
		}, ""},
		{"only replaced ones are named", []string{"b"}, func(f fakePeers) { f[d].Replaced, f[d].Nodes = []NodeID{b}, []NodeID{a, c, d} }, "in the place of those"},
	} {
		f := fakePeers{}
		for _, n := range []NodeID{a, b, c, d} {
			f[n] = &Survey{Node: n, Cluster: modelLife, Term: 1, Index: 5, Voters: []NodeID{a, b, c}, Nodes: []NodeID{a, b, c, d}}
		}
		f[d].Index = 7
		tc.do(f)
		report, err := RecoverCluster(t.Context(), f, &ClusterRequest{Lost: tc.lost})
		_, refusal := errors.AsType[*Error](err)
		switch {
		case tc.want == "" && (err != nil || report.Keep != d || report.Next != "" || len(report.Survivors) != 2):
			t.Errorf("%s: %+v %v", tc.name, report, err)
		case tc.want != "" && (!refusal || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// fakePeers answer surveys, and nothing else is asked of them.
type fakePeers map[NodeID]*Survey

// comes has a hear of a node, and linked to it.
func (f fakePeers) comes(n NodeID, s *Survey) {
	f["a/1"].Met, f["a/1"].Linked = append(f["a/1"].Met, n), append(f["a/1"].Linked, n)
	if s != nil {
		s.Node = n
		f[n] = s
	}
}

func (f fakePeers) Self() NodeID { return "a/1" }

func (f fakePeers) Survey(_ context.Context, n NodeID, _ []string) (*Survey, error) {
	if s := f[n]; s != nil {
		return s, nil
	}
	return nil, errNoAnswer
}

func (fakePeers) Promise(context.Context, NodeID, *bootstrap.Succession) (*Survey, error) {
	panic("asked to promise")
}

func (fakePeers) Prepare(context.Context, NodeID, string, *Survey) (string, error) {
	panic("asked to prepare")
}
func (fakePeers) Found(context.Context, NodeID, string) error   { panic("asked to found") }
func (fakePeers) Abandon(context.Context, NodeID, string) error { panic("asked to give up") }

func FuzzHandle(f *testing.F) {
	f.Add([]byte(promiseText))
	f.Add([]byte(`{"version":1,"do":"prepare","id":"` + nextLife + `","keep":{"node":"a","term":1,"index":2}}`))
	f.Add([]byte(`{"version":1,"do":"survey","lost":["a"]}`))
	l := alone(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = l.Handle(t.Context(), "b/x", raw)
		_, _ = l.HandleSeed(t.Context(), "b/x", raw)
	})
}
