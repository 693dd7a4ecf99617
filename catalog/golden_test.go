package catalog

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/policy"
)

// goldenHash is the hash of "test12".
const goldenHash = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"

// goldenBcrypt is one of bcrypt.
const goldenBcrypt = "$2b$04$abcdefghijklmnopqrstuu.DVVGLfP4tg2vyQ7TXKFqBaf6BeH1Ge"

// goldenCommands has every command of version 1 with every field in use.
func goldenCommands() []Command {
	args := amqp.Table{{Name: "x-message-ttl", Value: int32(1000)}, {Name: "x-dead-letter-exchange", Value: "dlx"}}
	b := Binding{Vhost: "/", Source: "x", Destination: "q", Key: "a.#", Arguments: args}
	queue := Queue{Vhost: "/", Name: "q", Durable: true, AutoDelete: true, Arguments: args, Kind: Replicated, Members: []NodeID{n1, n2}, Preferred: n2}
	exclusive := Queue{Vhost: "/", Name: "e", Exclusive: true, Owner: Owner{n1, 2, 7}, Kind: Transient, Members: []NodeID{n1}, Preferred: n1}
	return []Command{
		&Found{ClusterID: "cluster", Admin: auth.User{Name: "guest", PasswordHash: "hash", Tags: []string{"administrator"}}},
		&RegisterNode{n1, "h:1", "h:2", "h:3", "h:4", "h:5", 7, []Process{{n2, 8}}},
		&RegisterNode{ID: n2},
		&PutVhost{Vhost: Vhost{Name: "v", Description: "d", Tags: []string{"t"}, DefaultQueueType: "quorum", Tracing: true}},
		&PutUser{auth.User{Name: "u", Tags: []string{"management", "own"}}},
		&PutPermission{"v", "u", "c", "w", "r"},
		&DeclareExchange{Exchange: Exchange{Vhost: "/", Name: "x", Type: exchange.Topic, Durable: true, AutoDelete: true, Internal: true, Arguments: args}},
		&DeclareQueue{queue, 0},
		&DeclareQueue{exclusive, 2},
		&Bind{b},
		&Bind{Binding{Vhost: "/", Source: "amq.fanout", Destination: "x", ToExchange: true}},
		&UpdateMembers{8, []NodeID{n2, n3}, n3, 8},
		&Unbind{Binding{Vhost: "/", Source: "amq.fanout", Destination: "x", ToExchange: true}},
		&DeclareQueue{Queue{Vhost: "v", Name: "gone", Kind: Replicated, Members: []NodeID{n1}, Preferred: n1}, 0},
		&DeleteQueue{"v", "gone", 14},
		&DeletePermission{"v", "u"},
		&DeleteUser{"u"},
		&DeleteExchange{"/", "nox", true},
		&QueueGone{99},
		&RemoveNode{n3},
		&DeleteVhost{"w"},
		&PutUser{auth.User{Name: "t"}},
		&PutTopicPermission{"/", "t", "amq.topic", "^a", "r"},
		&PutTopicPermission{"/", "t", "gone", "", ""},
		&DeleteTopicPermission{"/", "t", "gone"},
		&DeclareExchange{Exchange{Vhost: "/", Name: "d", Type: exchange.Delayed, Arguments: amqp.Table{{Name: "x-delayed-type", Value: "fanout"}}}, []NodeID{n1, n2}, n1, 0},
		&PutVhostLimits{"/", VhostLimits{auth.LimitOf(1 << 40), auth.LimitOf(-1)}, true},
		&PutVhostLimits{"v", VhostLimits{Connections: auth.LimitOf(7)}, false},
		&DeleteVhostLimits{"/", auth.LimitConnections},
		&PutUserLimits{"t", auth.UserLimits{Connections: auth.LimitOf(0), Channels: auth.LimitOf(300)}},
		&PutUserLimits{"guest", auth.UserLimits{Channels: auth.LimitOf(5)}},
		&DeleteUserLimits{"guest", ""},
		&PutPolicy{policy.Spec{VHost: "/", Name: "DLX", Pattern: ".*", ApplyTo: policy.Queues, Priority: -7, Definition: amqp.Table{
			{Name: "dead-letter-exchange", Value: "my-dlx"}, {Name: "message-ttl", Value: int64(1 << 33)}, {Name: "delayed-retry-multiplier", Value: 1.5},
		}}},
		&PutPolicy{policy.Spec{VHost: "/", Name: "cap", Operator: true, ApplyTo: policy.All, Definition: amqp.Table{{Name: "max-length", Value: int64(5)}}}},
		&PutPolicy{policy.Spec{VHost: "v", Name: "gone", ApplyTo: policy.Exchanges, Definition: amqp.Table{{Name: "alternate-exchange", Value: "ae"}}}},
		&DeletePolicy{"v", "gone", false},
		&ChangeUser{auth.User{Name: "c", PasswordHash: auth.PasswordHash(goldenHash)}, AddUser},
		&ChangeUser{auth.User{Name: "c", Tags: []string{"a", "b"}}, SetTags},
		&ChangeUser{auth.User{Name: "t", PasswordHash: auth.PasswordHash(goldenHash)}, SetPassword},
	}
}

// goldenLevel2 has what level 2 brought, in a cluster that has taken it; it goes on behind goldenCommands.
func goldenLevel2() []Command {
	return []Command{
		&ActivateLevel{2},
		&RegisterNode{ID: n3, AMQPAddr: "h:6"},
		&NodeAbout{n1, 2, "zone-a", "1.2.3", 2, []string{"amqp h:3", "http h:4"}},
		&SetNodeState{ID: n2, State: NodeDraining},
		&SetNodeState{ID: n3, State: NodeLeaving},
		&NodeDown{n2, 3, 1_700_000_000_000},
		&DeclareQueue{Queue{Vhost: "/", Name: "moves", Durable: true, Kind: Replicated, Members: []NodeID{n1, n2}, Preferred: n1}, 0},
		&SetPreferred{46, n2, 46},
		&PlanMembers{46, []NodeID{n1, n3}, nil, n3, 46, "why"},
		&DeclareQueue{Queue{Vhost: "/", Name: "moved", Durable: true, Kind: Replicated, Members: []NodeID{n1}, Preferred: n1}, 0},
		&PlanMembers{49, []NodeID{n3}, nil, n3, 49, ""},
		&MembersReached{49, 50},
		&RegisterNode{ID: "n4/d"},
		&ForgetNode{"n4/d", 52},
		&DeclareExchange{Exchange{Vhost: "/", Name: "slow", Type: exchange.Delayed, Durable: true, Arguments: amqp.Table{{Name: "x-delayed-type", Value: "fanout"}}}, []NodeID{n2, n1}, n1, 0},
		&RecoverQueue{54, []NodeID{n1}, []NodeID{n2}, 54},
		&QueueRecovered{55, 55, Kept{1000, 7, 20, 3}},
		&DeclareQueue{Queue{Vhost: "/", Name: "half", Durable: true, Kind: Replicated, Members: []NodeID{n3, n1, n2}, Preferred: n2}, 0},
		&NodeDown{n3, 41, 1_700_000_000_001},
		&RecoverQueue{57, []NodeID{n1}, []NodeID{n2, n3}, 57},
		&NoteDefinitions{"3b9c"},
		&DeclareQueue{Queue{Vhost: "/", Name: "short", Durable: true, Kind: Replicated, Members: []NodeID{n1}, Preferred: n1, Size: 3}, 0},
		&DeclareExchange{Exchange{Vhost: "/", Name: "later", Type: exchange.Delayed, Durable: true, Arguments: amqp.Table{{Name: "x-delayed-type", Value: "fanout"}}}, []NodeID{n1}, n1, 5},
		&RegisterNode{ID: "n5/e"},
		&RegisterNode{ID: "n6/f"},
		&DeclareQueue{Queue{Vhost: "/", Name: "renewed", Durable: true, Kind: Replicated, Members: []NodeID{n1, "n5/e", "n6/f"}, Preferred: n1}, 0},
		&PlanMembers{65, []NodeID{n1, "n5/e", "n6/f"}, []NodeID{n1}, "n5/e", 65, "damaged"},
		&NameCluster{"shop"},
		&ChangeUser{auth.User{Name: "costly", PasswordHash: goldenBcrypt}, AddUser},
		&PutUser{auth.User{Name: "t", PasswordHash: goldenBcrypt, Tags: []string{"monitoring"}}},
		&PauseQueue{46, true},
		&PauseQueue{49, true},
		&PauseQueue{49, false},
		&PutShovel{"v", "s", "guest", `{"src-queue":"q"}`},
		&PutShovel{"/", "gone", "guest", "{}"},
		&DeleteShovel{Vhost: "/", Name: "gone"},
		&DeclareQueue{Queue{Vhost: "/", Name: "whose", Durable: true, Kind: Replicated, Members: []NodeID{n1}, Preferred: n1, DeclaredBy: "ann"}, 0},
		&DeclareQueue{Queue{Vhost: "/", Name: "led", Durable: true, Kind: Replicated, Members: []NodeID{n1, n3}, Preferred: n3, FirstLeader: n3}, 0},
		&PutVhost{Vhost: Vhost{Name: "v", Description: "not taken", Tags: []string{"only these"}}, Only: VhostName | VhostTags},
		&SetNodeState{ID: "n5/e", State: NodeLeaving, NotLast: true},
		&PutVhost{Vhost: Vhost{Name: "v", Description: "not taken"}, Only: VhostName | VhostExisting},
		&PutVhost{Vhost: Vhost{Name: "v", Description: "not taken"}, Only: VhostDescription | VhostNew},
	}
}

// TestGolden holds the bytes of version 1 still: what one release wrote the next must read.
// With WARREN_REWRITE set it writes the files anew.
func TestGolden(t *testing.T) {
	var log strings.Builder
	m := newMachine(func(*applied) {})
	for i, c := range goldenCommands() {
		entry := encodeEntry(requestID{0: byte(i + 1)}, c)
		fmt.Fprintf(&log, "%x\n", entry)
		m.apply(uint64(i+1), entry)
	}
	check(t, m.view.Load())
	compareGolden(t, "entries-v1.txt", log.String())
	compareGolden(t, "snapshot-v1.txt", hex.Dump(snapshotBytes(t, m)))
	log.Reset()
	for i, c := range goldenLevel2() {
		n := len(goldenCommands()) + i + 1
		entry := encodeEntry(requestID{0: byte(n)}, c)
		fmt.Fprintf(&log, "%x\n", entry)
		if a := m.apply(uint64(n), entry); a.outcome.code != 0 {
			t.Errorf("%T: %s", c, a.outcome.text)
		}
	}
	check(t, m.view.Load())
	compareGolden(t, "entries-level2.txt", log.String())
	compareGolden(t, "snapshot-level2.txt", hex.Dump(snapshotBytes(t, m)))
	v, err := (&Salvaged{View: m.view.Load(), Last: 1000, LastTerm: 9}).Succeed(Succession{ClusterID: nextLife, Lost: []NodeID{n2}})
	if err != nil {
		t.Fatal(err)
	}
	m.view.Store(v)
	compareGolden(t, "snapshot-life.txt", hex.Dump(snapshotBytes(t, m)))
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("WARREN_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has changed:\n%s", name, got)
	}
}

// TestGoldenReplays reads the committed entries, as a later release does, and finds the committed
// snapshot's state.
func TestGoldenReplays(t *testing.T) {
	var raw []byte
	for _, name := range []string{"entries-v1.txt", "entries-level2.txt"} {
		lines, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, lines...)
	}
	m := newMachine(func(*applied) {})
	for i, line := range strings.Fields(string(raw)) {
		entry, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		m.apply(uint64(i+1), entry)
	}
	v, requests, err := readSnapshot(bytes.NewReader(snapshotBytes(t, m)))
	if err != nil || v.QueueCount() != m.view.Load().QueueCount() || len(requests.byID) != len(m.requests.byID) || v.Level() != 2 {
		t.Fatalf("snapshot does not give the state back: %v", err)
	}
}
