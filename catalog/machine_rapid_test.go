package catalog

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/policy"
)

// check recounts a view.
func check(t interface{ Fatalf(string, ...any) }, v *View) {
	bySource, byDestination := 0, 0
	counts := make(map[string]int)
	for b := range v.bySource.all() {
		bySource++
		counts[string(key(b.Vhost, b.Source))]++
		if other, _ := v.byDestination.get(b.destinationKey()); other != b {
			t.Fatalf("binding %+v is in one index only", b)
		}
		if v.Exchange(b.Vhost, b.Source) == nil || b.ToExchange && v.Exchange(b.Vhost, b.Destination) == nil ||
			!b.ToExchange && v.Queue(b.Vhost, b.Destination) == nil {
			t.Fatalf("binding %+v lacks an end", b)
		}
	}
	for range v.byDestination.all() {
		byDestination++
	}
	if bySource != byDestination {
		t.Fatalf("%d bindings by source, %d by destination", bySource, byDestination)
	}
	for x := range v.exchanges.all() {
		if (x.Type == exchange.Delayed) != (x.DelayQueue != 0) || x.DelayQueue != 0 && v.QueueByID(x.DelayQueue) == nil {
			t.Fatalf("exchange %+v lacks its queue", x)
		}
		if alternate := searchAlternate(v, x); x.Alternate() != alternate {
			t.Fatalf("exchange %+v has the alternate %q, want %q", x, x.Alternate(), alternate)
		}
		if x.bindings != counts[string(key(x.Vhost, x.Name))] || v.Vhost(x.Vhost) == nil {
			t.Fatalf("exchange %+v counts %d bindings, has %d", x, x.bindings, counts[string(key(x.Vhost, x.Name))])
		}
	}
	running := 0
	for q := range v.queuesByID.all() {
		if q.DelayOf != "" {
			if x := v.Exchange(q.Vhost, q.DelayOf); (x != nil && x.DelayQueue == q.ID) != (q.State == Running) {
				t.Fatalf("queue %+v belongs to exchange %+v", q, x)
			}
			if v.Queue(q.Vhost, q.Name) == q {
				t.Fatalf("queue %+v has a name", q)
			}
			continue
		}
		if named := v.Queue(q.Vhost, q.Name); (named == q) != (q.State == Running) {
			t.Fatalf("queue %+v under its name is %+v", q, named)
		}
		if problem := q.checkExtra(); problem != "" || q.Kind == Replicated && !slices.Contains(q.Members, q.Preferred) {
			t.Fatalf("queue %+v: %s", q, problem)
		}
		if q.State == Running {
			running++
		}
	}
	if running != v.queues.len() || v.nodes.len() != v.nodesByNumber.len() {
		t.Fatalf("%d running queues, %d names; %d nodes, %d numbers", running, v.queues.len(), v.nodes.len(), v.nodesByNumber.len())
	}
	checkTallies(t, v)
}

// checkTallies works out anew what the view keeps beside its content.
func checkTallies(t interface{ Fatalf(string, ...any) }, v *View) {
	tx := begin(emptyView(), v.revision)
	for q := range v.queuesByID.all() {
		tx.tallyQueue(q, 1)
		tx.tallyLives(q, true)
	}
	for x := range v.exchanges.all() {
		tx.tallyExchange(x)
	}
	same := equalIndexes(tx.named, v.named) && equalIndexes(tx.replicas, v.replicas) &&
		equalIndexes(tx.transients, v.transients) && equalIndexes(tx.fleeting, v.fleeting) && equalIndexes(tx.former, v.former) && tx.short == v.short
	if !same {
		t.Fatalf("kept are %v, want %v", []any{v.named, v.replicas, v.transients, v.fleeting}, []any{tx.named, tx.replicas, tx.transients, tx.fleeting})
	}
	running := 0
	for h := range v.vhosts.all() {
		running += int(tx.namedQueues(h.Name))
	}
	if running != v.queues.len() {
		t.Fatalf("%d queues counted, %d names", running, v.queues.len())
	}
}

func equalIndexes[T comparable](a, b index[T]) bool {
	type entry struct {
		key   string
		value T
	}
	list := func(x index[T]) (all []entry) {
		x.tree.Root().Walk(func(k []byte, v T) bool {
			all = append(all, entry{string(k), v})
			return false
		})
		return all
	}
	return slices.Equal(list(a), list(b))
}

// searchAlternate finds the alternate exchange of x without what the machine keeps.
func searchAlternate(v *View, x *Exchange) string {
	if a, ok := x.Arguments.Get(argAlternate); ok {
		return a.(string)
	}
	for _, p := range v.Policies(x.Vhost).List(false) {
		if p.Matches(policy.Exchange, x.Name) {
			a, _ := p.Definition.Get(argAlternate)
			s, _ := a.(string)
			return s
		}
	}
	return ""
}

func snapshotBytes(t interface{ Fatalf(string, ...any) }, m *machine) []byte {
	var b bytes.Buffer
	if err := (&snapshot{view: m.view.Load(), requests: m.requests.save()}).write(&b); err != nil {
		t.Fatalf("write: %v", err)
	}
	return b.Bytes()
}

// randomCommand draws a command over few names, so that commands meet.
func randomCommand(t *rapid.T) Command {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	vhost := func() string { return pick("vhost", "/", "/", "v\x00w") }
	x := func() string { return pick("exchange", "x1", "x2", "x3", "amq.topic") }
	queue := func() string { return pick("queue", "q1", "q2", "q3") }
	binding := func() Binding {
		b := Binding{Vhost: vhost(), Source: x(), Destination: queue(), Key: pick("key", "", "a", "a.b", "#")}
		if rapid.Bool().Draw(t, "e2e") {
			b.Destination, b.ToExchange = x(), true
		}
		if rapid.IntRange(0, 3).Draw(t, "args") == 0 {
			b.Arguments = amqp.Table{{Name: "h", Value: int32(1)}, {Name: "x-match", Value: "any"}}
		}
		return b
	}
	node := func() NodeID { return NodeID(pick("node", "n1/a", "n1/b", "n2/a")) }
	id := func() uint64 { return uint64(rapid.IntRange(0, 40).Draw(t, "id")) }
	limit := func() auth.Limit {
		if rapid.Bool().Draw(t, "limited") {
			return auth.LimitOf(rapid.Int64Range(-2, 3).Draw(t, "limit"))
		}
		return auth.Limit{}
	}
	switch rapid.IntRange(0, 38).Draw(t, "command") {
	case 0:
		c := &RegisterNode{ID: node(), AMQPAddr: pick("addr", "h:1", "h:2"), Process: id() / 10}
		for range rapid.IntRange(0, 2).Draw(t, "met") {
			c.Met = append(c.Met, Process{node(), id() / 10})
		}
		return c
	case 1:
		return &PutVhost{Vhost: Vhost{Name: vhost(), Tags: []string{"t"}}, Only: VhostParts(rapid.Uint64Range(0, uint64(vhostPartsEnd)-1).Draw(t, "only"))}
	case 2:
		return &DeleteVhost{Name: vhost()}
	case 3:
		u := auth.User{Name: pick("user", "u1", "u2"), Tags: []string{pick("tag", "management", "monitoring")}}
		if what := UserChange(rapid.IntRange(0, 3).Draw(t, "change")); what != 0 {
			return &ChangeUser{u, what}
		}
		return &PutUser{u}
	case 4:
		return &DeleteUser{Name: pick("user", "u1", "u2")}
	case 5:
		return &PutPermission{Vhost: vhost(), User: pick("user", "u1", "guest"), Read: ".*"}
	case 6:
		return &DeletePermission{Vhost: vhost(), User: pick("user", "u1", "guest")}
	case 7, 8:
		c := &DeclareExchange{Exchange: Exchange{Vhost: vhost(), Name: x(), Type: rapid.SampledFrom([]exchange.Type{1, 2, 3, 4}).Draw(t, "type"), AutoDelete: rapid.Bool().Draw(t, "auto"), Durable: rapid.Bool().Draw(t, "durable")}}
		if rapid.Bool().Draw(t, "ae") {
			c.Exchange.Arguments = amqp.Table{{Name: argAlternate, Value: x()}}
		}
		if rapid.IntRange(0, 3).Draw(t, "delayed") == 0 {
			c.Exchange.Arguments = append(c.Exchange.Arguments, amqp.Field{Name: "x-delayed-type", Value: c.Exchange.Type.String()})
			c.Exchange.Type, c.Members, c.Preferred = exchange.Delayed, []NodeID{n1, n2}, n1
		}
		return c
	case 9:
		return &DeleteExchange{Vhost: vhost(), Name: pick("exchange", "x1", "x2", "x3"), IfUnused: rapid.Bool().Draw(t, "unused")}
	case 10, 11:
		return &Bind{binding()}
	case 12:
		return &Unbind{binding()}
	case 13, 14:
		c := &DeclareQueue{Queue: Queue{
			Vhost: vhost(), Name: queue(), Kind: Replicated, Members: []NodeID{n1, n2}, Preferred: n2, Size: uint64(rapid.IntRange(0, 4).Draw(t, "size")),
		}}
		c.Queue.DeclaredBy = pick("declarer", "", "ann", "bob")
		c.Queue.FirstLeader = NodeID(pick("first", "", string(n2)))
		if rapid.Bool().Draw(t, "transient") {
			c.Queue.Kind, c.Queue.Members, c.Queue.FirstLeader = Transient, []NodeID{node()}, ""
			c.Queue.Preferred, c.NodeIncarnation = c.Queue.Members[0], id()
		}
		return c
	case 15:
		return &DeleteQueue{Vhost: vhost(), Name: queue(), ID: id() / 8}
	case 16:
		return &QueueGone{ID: id()}
	case 17:
		return &PutVhostLimits{Vhost: vhost(), Limits: VhostLimits{limit(), limit()}, Replace: rapid.Bool().Draw(t, "replace")}
	case 18:
		return &DeleteVhostLimits{Vhost: vhost(), Name: pick("limit", "", "max-connections", "max-queues")}
	case 19:
		return &PutUserLimits{User: pick("user", "u1", "guest"), Limits: auth.UserLimits{Connections: limit(), Channels: limit()}}
	case 20:
		return &DeleteUserLimits{User: pick("user", "u1", "guest"), Name: pick("limit", "", "max-connections", "max-channels")}
	case 21, 22:
		p := policy.Spec{
			VHost: vhost(), Name: pick("policy", "p1", "p2"), Operator: rapid.Bool().Draw(t, "operator"), Pattern: pick("pattern", "", "1", "^amq"),
			ApplyTo: policy.ApplyTo(rapid.IntRange(1, 6).Draw(t, "apply to")), Priority: int64(rapid.IntRange(-1, 1).Draw(t, "priority")),
			Definition: amqp.Table{{Name: "max-length", Value: int64(3)}},
		}
		if !p.Operator && rapid.Bool().Draw(t, "alternate") {
			p.Definition = append(p.Definition, amqp.Field{Name: argAlternate, Value: x()})
		}
		return &PutPolicy{p}
	case 24:
		return &ActivateLevel{2}
	case 25:
		return &SetNodeState{ID: node(), State: NodeState(rapid.IntRange(1, 3).Draw(t, "state")), NotLast: rapid.Bool().Draw(t, "not last")}
	case 26:
		return &SetPreferred{id(), node(), id() / 8}
	case 27, 28:
		c := &PlanMembers{ID: id(), Wanted: []NodeID{node()}, IfSettings: id()}
		if other := node(); other != c.Wanted[0] {
			c.Wanted = append(c.Wanted, other)
		}
		c.Preferred = rapid.SampledFrom(c.Wanted).Draw(t, "preferred")
		if rapid.Bool().Draw(t, "renew") {
			c.Renew = []NodeID{c.Preferred}
		}
		return c
	case 29:
		return &MembersReached{id(), id()}
	case 30:
		return &NodeDown{node(), id(), int64(id())}
	case 31:
		return &ForgetNode{node(), id() / 8}
	case 32:
		return &NodeAbout{node(), id(), pick("zone", "", "a"), "v", 2, []string{"amqp h:1"}}
	case 33:
		c := &RecoverQueue{ID: id(), Survivors: []NodeID{node()}, IfSettings: id()}
		for _, n := range []NodeID{n1, n2, n3} {
			if n != c.Survivors[0] && rapid.Bool().Draw(t, "lost") {
				c.Lost = append(c.Lost, n)
			}
		}
		return c
	case 34:
		return &QueueRecovered{id(), id(), Kept{1, 2, 3, 4}}
	case 35:
		return &NoteDefinitions{pick("hash", "a", "b")}
	case 36:
		return &PauseQueue{id(), rapid.Bool().Draw(t, "paused")}
	case 37:
		return &PutShovel{vhost(), pick("shovel", "s1", "s2"), "u", pick("value", "{}", "[]")}
	case 38:
		return &DeleteShovel{vhost(), pick("shovel", "s1", "s2"), id()}
	case 23:
		return &DeletePolicy{Vhost: vhost(), Name: pick("policy", "p1", "p2"), Operator: rapid.Bool().Draw(t, "operator")}
	}
	return &UpdateMembers{ID: id(), Members: []NodeID{n3}, Preferred: n3}
}

// TestMachineProperties applies random commands and holds that: indexes agree with a
// recount; a refused command changes nothing; two replicas are byte for byte equal, also if one
// was restored in the middle; old views never change; changed queues are all told; and
// routing agrees with a search over the bindings.
func TestMachineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		silent := func(*applied) {}
		a, b := newMachine(silent), newMachine(silent)
		entries := [][]byte{encodeEntry(requestID{15: 1}, &Found{ClusterID: "c", Admin: auth.User{Name: "guest"}})}
		for i := range rapid.IntRange(1, 40).Draw(t, "n") {
			c := randomCommand(t)
			if c.validate() == nil {
				entries = append(entries, encodeEntry(requestID{15: byte(i % 30), 1: 1}, c))
			}
		}
		cut := rapid.IntRange(0, len(entries)-1).Draw(t, "cut")
		var old *View
		var oldBytes []byte
		for i, e := range entries {
			index := uint64(2*i + 1) // other entries of the log are not the machine's
			before := a.view.Load()
			out := a.apply(index, e)
			v := a.view.Load()
			check(t, v)
			if out.outcome.code != 0 && (v.queues != before.queues || v.bySource != before.bySource || v.exchanges != before.exchanges) {
				t.Fatalf("refused with %q and changed something", out.outcome.text)
			}
			b.apply(index, e)
			if i == cut {
				raw := snapshotBytes(t, b)
				b = newMachine(silent)
				if err := (fsm{b}).Restore(io.NopCloser(bytes.NewReader(raw))); err != nil {
					t.Fatalf("restore: %v", err)
				}
				check(t, b.view.Load())
				old = a.view.Load()
				oldBytes = viewBytes(t, old)
			}
		}
		if x, y := snapshotBytes(t, a), snapshotBytes(t, b); !bytes.Equal(x, y) {
			t.Fatalf("replicas differ: %x and %x", x, y)
		}
		last := a.view.Load()
		if !bytes.Equal(viewBytes(t, old), oldBytes) {
			t.Fatalf("an old view has changed")
		}
		compareChanges(t, old, last)
		compareRoutes(t, last)
	})
}

func viewBytes(t interface{ Fatalf(string, ...any) }, v *View) []byte {
	m := newMachine(func(*applied) {})
	m.view.Store(v)
	return snapshotBytes(t, m)
}

func compareChanges(t *rapid.T, old, now *View) {
	told := maps.Collect(func(yield func(uint64, bool) bool) {
		for id := range now.QueuesChangedSince(old) {
			if !yield(id, true) {
				return
			}
		}
	})
	for _, v := range []*View{old, now} {
		for q := range v.AllQueues() {
			if old.QueueByID(q.ID) != now.QueueByID(q.ID) && !told[q.ID] {
				t.Fatalf("queue %d changed and was not told", q.ID)
			}
		}
	}
}

// compareRoutes routes from every exchange and compares with a search.
func compareRoutes(t *rapid.T, v *View) {
	headers := amqp.Table{{Name: "h", Value: int16(1)}}
	for x := range v.exchanges.all() {
		if x.Name == "" {
			continue
		}
		got, err := v.Route(x.Vhost, x.Name, []string{"a.b"}, headers, nil)
		if err != nil {
			t.Fatalf("route: %v", err)
		}
		want := make(map[uint64]bool)
		searchRoutes(v, x, headers, make(map[string]bool), want)
		if len(got) != len(want) {
			t.Fatalf("%q routes to %d queues, want %d", x.Name, len(got), len(want))
		}
		for _, q := range got {
			if !want[q.ID] {
				t.Fatalf("%q routes to %q", x.Name, q.Name)
			}
		}
		compareFixed(t, v, x)
	}
}

// compareFixed checks that what is said to hold for all messages does for some.
func compareFixed(t *rapid.T, v *View, x *Exchange) {
	for _, anyKey := range []bool{false, true} {
		fixed, ok := v.FixedRoute(x.Vhost, x.Name, "a.b", anyKey)
		if !ok {
			continue
		}
		for _, keys := range [][]string{{"a.b"}, {"c"}, {"c", "a.b"}} {
			for _, h := range []amqp.Table{nil, {{Name: "h", Value: int16(1)}}, {{Name: exchange.HeaderDelay, Value: int32(9)}}} {
				if !anyKey && !slices.Equal(keys, []string{"a.b"}) {
					continue
				}
				m := Message{Message: exchange.Message{Keys: keys, Headers: h, Random: rapid.Uint64().Draw(t, "random")}}
				got, err := v.RouteMessage(x.Vhost, x.Name, &m, nil)
				if err != nil || !sameQueues(got, fixed) {
					t.Fatalf("%q with %v and %v: %v, said to be fixed: %v (%v)", x.Name, keys, h, got, fixed, err)
				}
			}
		}
	}
}

func sameQueues(a, b []*Queue) bool {
	for _, q := range a {
		if !slices.Contains(b, q) {
			return false
		}
	}
	return len(a) == len(b)
}

func searchRoutes(v *View, x *Exchange, headers amqp.Table, visited map[string]bool, found map[uint64]bool) {
	if visited[x.Name] {
		return
	}
	visited[x.Name] = true
	matched := false
	for b := range v.BindingsFrom(x.Vhost, x.Name) {
		single := exchange.New(x.Type, x.Arguments).Add(b.routing())
		if len(single.Match(nil, "a.b", headers)) == 0 {
			continue
		}
		matched = true
		if b.ToExchange {
			searchRoutes(v, v.Exchange(b.Vhost, b.Destination), headers, visited, found)
		} else {
			found[v.Queue(b.Vhost, b.Destination).ID] = true
		}
	}
	if ae := v.Exchange(x.Vhost, x.Alternate()); !matched && x.Alternate() != "" && ae != nil {
		searchRoutes(v, ae, headers, visited, found)
	}
}
