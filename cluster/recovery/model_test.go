package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/bootstrap"
	"github.com/warrenmq/warren/transport"
)

const (
	modelLife    = "11111111-2222-4333-8444-555555555555"
	modelStorage = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
)

// modelViews are states of a real catalog of five nodes, each newer than the one before.
var modelViews = sync.OnceValue(func() []*catalog.View {
	const self = NodeID("a/" + modelStorage)
	dir, err := os.MkdirTemp("", "recovery-model-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	mesh, err := transport.New(transport.Config{
		Local: self, Listener: ln, ClusterID: func() string { return modelLife }, Resolve: func(transport.NodeID) (string, bool) { return "", false },
	})
	if err != nil {
		panic(err)
	}
	defer mesh.Close()
	c, err := catalog.Open(catalog.Config{Local: self, Dir: dir, Mesh: mesh, Founding: &catalog.Founding{
		ClusterID: modelLife, Members: []NodeID{self}, Admin: func() (auth.User, error) { return auth.User{Name: "guest", PasswordHash: auth.HashPassword("x")}, nil },
	}})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	var views []*catalog.View
	propose := func(cmd catalog.Command) {
		if _, err := c.Propose(context.Background(), cmd); err != nil {
			panic(err)
		}
		views = append(views, c.View())
	}
	for c.View().ClusterID() == "" { // a command may come before the founding
		time.Sleep(time.Millisecond)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		propose(&catalog.RegisterNode{ID: NodeID(name + "/" + modelStorage)})
	}
	for i := range 20 {
		propose(&catalog.PutVhost{Vhost: catalog.Vhost{Name: fmt.Sprint("v", i)}})
	}
	return views[4:]
})

// memory is where folders cost no syncs, if there is such a place: the model ends processes, not machines.
func memory() string {
	const dir = "/dev/shm"
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return dir
	}
	return ""
}

// entry is one of a log of the model.
type entry struct {
	term uint64
	id   int
}

// modelNode is a node of the model: its identity is real, in a folder, and so is what it makes for the next life; its catalog is a log of the model.
type modelNode struct {
	w      *world
	id     NodeID
	dir    string
	up     bool // its process runs
	dead   bool // for good
	frozen bool
	log    []entry
	local  *Local
}

// LeaderID, Freeze and Salvage implement Copy.
func (n *modelNode) LeaderID() NodeID { return "" }

func (n *modelNode) Freeze() error {
	n.frozen = true
	return nil
}

func (n *modelNode) Salvage() (*catalog.Salvaged, error) {
	views := modelViews()
	s := &catalog.Salvaged{View: views[min(len(n.log), len(views)-1)], LastTerm: 1}
	s.Last = views[len(views)-1].Revision() + uint64(len(n.log))
	if len(n.log) > 0 {
		s.LastTerm = n.log[len(n.log)-1].term
	}
	for i, id := range n.w.ids {
		server := raft.Server{ID: raft.ServerID(id), Suffrage: raft.Nonvoter}
		if i < 3 {
			server.Suffrage = raft.Voter
		}
		s.Servers = append(s.Servers, server)
	}
	return s, nil
}

// start opens the folder as a process does.
func (n *modelNode) start() {
	if n.up || n.dead {
		return
	}
	identity, err := bootstrap.OpenIdentity(n.dir, nodeNameOf(n.id))
	if err != nil {
		n.w.Fatalf("%s does not start: %v", n.id, err)
	}
	var l *Local
	l = &Local{
		Identity: identity, Part: "catalog", Copy: func() Copy { return n }, Met: func() []NodeID { return nil },
		Linked: func(o NodeID) bool { return n.w.linked(n, n.w.node(o)) },
		Call: func(ctx context.Context, to NodeID, method uint8, req []byte) ([]byte, error) {
			if n.local != l {
				return nil, errNoAnswer
			}
			return n.w.call(ctx, n, n.w.node(to), method, req)
		},
		Renew: func(string) {
			if n.local == l {
				n.w.renew = append(n.w.renew, n)
			}
		},
	}
	n.local, n.up, n.frozen = l, true, identity.Succession() != nil
}

func (n *modelNode) stop() {
	if n.up {
		n.up = false
		if err := n.local.Identity.Close(); err != nil {
			n.w.Fatal(err)
		}
	}
}

// life is the cluster that the node belongs to as its folder has it.
func (n *modelNode) life() string { return n.local.Identity.ClusterID() }

func nodeNameOf(id NodeID) string {
	name, _, _ := strings.Cut(string(id), "/")
	return name
}

// world is the model. Of five nodes a, b and c vote; b and c are said to be lost. c is; b may come back.
type world struct {
	*rapid.T
	ids   []NodeID
	nodes []*modelNode
	renew []*modelNode

	terms, made int
	committed   []entry
	seeds       map[string][]entry // what each life goes on from
	founded     []string           // lives of which a majority of the voters was there once
	stale       []func()           // answers that are late
	calm        bool               // nothing is lost and nobody ends any more
	nested      bool               // a recovery goes on within another
}

func (w *world) node(id NodeID) *modelNode { return w.nodes[slices.Index(w.ids, id)] }

// linked: two processes find each other, sooner or later.
func (w *world) linked(a, b *modelNode) bool {
	if w.calm {
		return a.up && b.up && a.life() == b.life()
	}
	return a.up && b.up && a.life() == b.life() && rapid.IntRange(0, 3).Draw(w.T, "linked") > 0
}

var errNoAnswer = errors.New("no answer")

// call carries a question, and may lose it, or its answer, or end either process.
func (w *world) call(ctx context.Context, from, to *modelNode, method uint8, req []byte) ([]byte, error) {
	if !from.up || !to.up || from.life() != to.life() && method == MethodSeed {
		return nil, errNoAnswer
	}
	what := 0
	if !w.calm {
		what = rapid.IntRange(0, 30).Draw(w.T, "call")
	}
	switch what {
	case 7:
		return nil, errNoAnswer
	case 1:
		to.stop()
		return nil, errNoAnswer
	case 2:
		from.stop()
		return nil, errNoAnswer
	}
	if method == MethodSuccession { // no step of a node is under way
		w.meanwhile()
	}
	if !from.up || !to.up || from.life() != to.life() && method == MethodSeed {
		return nil, errNoAnswer
	}
	handle, asked := to.local.Handle, to.local
	if method == MethodSeed {
		handle = to.local.HandleSeed
	}
	answer, err := handle(ctx, from.id, slices.Clone(req))
	switch what {
	case 3:
		return nil, errNoAnswer
	case 4:
		to.stop()
	case 5:
		from.stop()
		return nil, errNoAnswer
	case 6:
		w.stale = append(w.stale, func() { // the question is carried once more, late
			if to.up && to.local == asked {
				_, _ = handle(ctx, from.id, slices.Clone(req))
			}
		})
	}
	return answer, err
}

// meanwhile is what may happen between two steps of a recovery.
func (w *world) meanwhile() {
	if w.calm {
		return
	}
	switch rapid.IntRange(0, 11).Draw(w.T, "meanwhile") {
	case 1:
		w.nodes[1].start()
	case 2:
		w.nodes[1].start()
		w.commits()
	case 3:
		w.commits()
	case 4:
		w.arrives()
	case 5:
		if !w.nested { // somebody else has given the same command elsewhere
			w.nested = true
			_ = w.recover(rapid.SampledFrom(w.survivors()).Draw(w.T, "at too"), []string{"b", "c"})
			w.nested = false
		}
	case 7:
		w.begin()
	case 8: // all that is late arrives, and those who are to begin anew do
		for len(w.stale) > 0 {
			w.arrives()
		}
		w.begin()
	case 6:
		w.ask(rapid.SampledFrom(w.nodes).Draw(w.T, "asks"), rapid.SampledFrom(w.nodes).Draw(w.T, "asked"), rapid.Bool().Draw(w.T, "late"))
	}
}

// arrives has something that is late arrive.
func (w *world) arrives() {
	if len(w.stale) > 0 {
		i := rapid.IntRange(0, len(w.stale)-1).Draw(w.T, "arrives")
		late := w.stale[i]
		w.stale = slices.Delete(w.stale, i, i+1)
		late()
	}
}

func (w *world) survivors() []*modelNode { return []*modelNode{w.nodes[0], w.nodes[3], w.nodes[4]} }

// mortal is a party that does nothing any more once its process has ended.
type mortal struct {
	Party
	n *modelNode
}

func (m mortal) alive() error {
	if !m.n.up || m.n.local != m.Local {
		return errNoAnswer
	}
	return nil
}

func (m mortal) Survey(ctx context.Context, n NodeID, lost []string) (*Survey, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	return m.Party.Survey(ctx, n, lost)
}

func (m mortal) Promise(ctx context.Context, n NodeID, s *bootstrap.Succession) (*Survey, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	return m.Party.Promise(ctx, n, s)
}

func (m mortal) Prepare(ctx context.Context, n NodeID, id string, keep *Survey) (string, error) {
	if err := m.alive(); err != nil {
		return "", err
	}
	m.n.w.seeds[id] = slices.Clone(m.n.w.node(keep.Node).log)
	return m.Party.Prepare(ctx, n, id, keep)
}

func (m mortal) Found(ctx context.Context, n NodeID, id string) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.Party.Found(ctx, n, id)
}

func (m mortal) Abandon(ctx context.Context, n NodeID, id string) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.Party.Abandon(ctx, n, id)
}

// recover is the operator's command at a node, with the nodes that are lost.
func (w *world) recover(n *modelNode, lost []string) error {
	if !n.up {
		return errNoAnswer
	}
	l := n.local
	_, err := RecoverCluster(context.Background(), mortal{Party{l}, n}, &ClusterRequest{Lost: lost, Yes: true})
	if err == nil && n.up && n.local == l {
		w.renew = append(w.renew, n)
	}
	return err
}

// ask has a node hear what another one says of itself, now or later.
func (w *world) ask(a, b *modelNode, late bool) {
	if !a.up || !b.up {
		return
	}
	promised := a.local.Identity.Succession()
	answer, err := b.local.Identity.Handlers(5)[bootstrap.MethodStatus](context.Background(), a.id, nil)
	if err != nil {
		w.Fatal(err)
	}
	asked := a.local
	hear := func() {
		if !a.up || a.local != asked {
			return // that process has ended, and the answer with it
		}
		lost, err := a.local.Consider(promised, answer)
		if err != nil {
			w.Fatalf("%s hears of %s: %v", a.id, b.id, err)
		}
		if lost != "" {
			if a.id != w.ids[1] && !slices.ContainsFunc(w.nodes, func(n *modelNode) bool { return n.dead && n.id == a.id }) {
				w.Fatalf("%s is told to go: %s", a.id, lost)
			}
			a.stop()
			a.dead = true
		}
	}
	if late {
		w.stale = append(w.stale, hear)
	} else {
		hear()
	}
}

// commits has the present life's catalog take an entry, if a majority of its voters is there and takes part.
func (w *world) commits() {
	var there []*modelNode
	for _, n := range w.nodes[:3] {
		if n.up && !n.frozen && n.life() == modelLife {
			there = append(there, n)
		}
	}
	if len(there) < 2 {
		return
	}
	best := slices.MaxFunc(there, func(a, b *modelNode) int { return newerLog(a.log, b.log) })
	w.terms++
	w.made++
	log := append(slices.Clone(best.log), entry{uint64(w.terms), w.made})
	for _, n := range there {
		n.log = slices.Clone(log)
	}
	if len(w.founded) > 0 {
		w.Fatalf("%s and %s commit in a life that has ended", there[0].id, there[1].id)
	}
	w.committed = log
	for _, n := range w.nodes[3:] { // a follower that does not vote may get it
		if n.up && !n.frozen && n.life() == modelLife && rapid.Bool().Draw(w.T, "gets it") {
			n.log = slices.Clone(log)
		}
	}
}

func newerLog(a, b []entry) int {
	last := func(l []entry) (t uint64) {
		if len(l) > 0 {
			t = l[len(l)-1].term
		}
		return t
	}
	if last(a) != last(b) {
		return int(last(a)) - int(last(b))
	}
	return len(a) - len(b)
}

// begin has nodes begin anew that are to.
func (w *world) begin() {
	for len(w.renew) > 0 {
		n := w.renew[0]
		w.renew = w.renew[1:]
		n.stop()
		n.start()
	}
}

// settle lets nodes begin anew, and checks what must be true at any time.
func (w *world) settle() {
	w.begin()
	lives := map[string]int{}
	for _, n := range w.nodes {
		if n.local == nil || n.life() == modelLife {
			continue
		}
		m, _ := n.local.Identity.Membership()
		voters := min(3, len(m.Founding))
		if slices.Index(m.Founding, n.id) < voters {
			lives[m.ClusterID]++
		}
		if seed, ok := w.seeds[m.ClusterID]; !ok || len(w.committed) > len(seed) || !slices.Equal(seed[:len(w.committed)], w.committed) {
			w.Fatalf("%s goes on in %s from %v, %v was committed", n.id, m.ClusterID, seed, w.committed)
		}
		if lives[m.ClusterID] > voters/2 && !slices.Contains(w.founded, m.ClusterID) {
			w.founded = append(w.founded, m.ClusterID)
		}
	}
	if len(w.founded) > 1 {
		w.Fatalf("two lives have had a majority: %v", w.founded)
	}
}

// TestNoTwoLives recovers a catalog again and again, at any node, with lost and late messages, processes that end anywhere, and a lost node that comes back: at
// most one next life ever has a majority, it has all that was committed, and the former one commits nothing any more. In the end, with processes that
// stay, everybody is in the same life.
func TestNoTwoLives(t *testing.T) {
	modelViews()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t, seeds: map[string][]entry{}}
		dir, err := os.MkdirTemp(memory(), "recovery-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			w.ids = append(w.ids, NodeID(name+"/"+modelStorage))
		}
		for _, id := range w.ids {
			n := &modelNode{w: w, id: id, dir: dir + "/" + nodeNameOf(id)}
			w.nodes = append(w.nodes, n)
			w.settled(n)
			n.start()
		}
		defer func() {
			for _, n := range w.nodes {
				n.stop()
			}
		}()
		w.play()
	})
}

// settled makes the folder of a member of the cluster.
func (w *world) settled(n *modelNode) {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		w.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{
		"version": 2, "node": nodeNameOf(n.id), "storage": modelStorage, "cluster": map[string]any{"id": modelLife, "members": w.ids}, "parts": []string{},
	})
	if err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(n.dir+"/node.json", raw, 0o600); err != nil {
		w.Fatal(err)
	}
}

func (w *world) play() {
	for range rapid.IntRange(0, 3).Draw(w.T, "before") {
		w.commits()
	}
	if rapid.Bool().Draw(w.T, "tail") { // an entry that one node alone has, of a leader that is gone
		n := w.nodes[rapid.SampledFrom([]int{0, 3, 4}).Draw(w.T, "of")]
		w.made++
		n.log = append(slices.Clone(n.log), entry{uint64(w.terms), w.made})
	}
	b, c := w.nodes[1], w.nodes[2]
	b.stop()
	c.stop()
	c.dead = true
	survivors := w.survivors()
	lost := []string{"b", "c"}
	any := func(what string) *modelNode { return rapid.SampledFrom(survivors).Draw(w.T, what) }
	for range rapid.IntRange(0, 25).Draw(w.T, "steps") {
		switch rapid.IntRange(0, 10).Draw(w.T, "step") {
		case 0, 1:
			_ = w.recover(any("at"), lost)
		case 2:
			any("ends").stop()
		case 3, 4:
			any("starts").start()
		case 5:
			b.start() // it has been switched on again
		case 6:
			b.stop()
		case 7:
			w.commits()
		case 8:
			w.ask(rapid.SampledFrom(w.nodes).Draw(w.T, "asks"), rapid.SampledFrom(w.nodes).Draw(w.T, "asked"), rapid.Bool().Draw(w.T, "late"))
		case 9:
			w.arrives()
		case 10: // everybody asks everybody, and all answers are late
			for _, n := range survivors {
				for _, o := range survivors {
					w.ask(n, o, true)
				}
			}
		}
		w.settle()
	}
	w.calm = true
	for range 10 { // the command is repeated until it is done
		b.stop()
		for _, n := range survivors {
			n.start()
		}
		w.settle()
		for _, n := range survivors {
			for _, o := range survivors {
				w.ask(n, o, false)
			}
		}
		w.settle()
		if life := survivors[0].life(); life != modelLife && survivors[1].life() == life && survivors[2].life() == life {
			b.start()
			w.ask(b, survivors[0], false)
			if b.up {
				w.Fatalf("%s came back and was not told to go", b.id)
			}
			return
		}
		if err := w.recover(survivors[0], lost); err != nil {
			w.Logf("the command: %v", err)
		}
		w.settle()
	}
	w.Fatalf("it does not end: %v %v %v", survivors[0].local.Identity.Succession(), survivors[1].local.Identity.Succession(), survivors[2].local.Identity.Succession())
}
