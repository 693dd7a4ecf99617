package process

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// TestWrongAddressIsLeft: nodes that were told by gossip, which anybody may send that is not encrypted, that another one is where it is not, link it all the
// same: at the address that it has told the catalog. So they do where gossip does not get through, and says what was true once.
func TestWrongAddressIsLeft(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 3, func(*cluster.Config) {})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := nodes.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	moved := nodes.Node(2)
	self := lobbySays(t, moved, nil)
	self["boot"], self["cluster_addr"], self["gossip_addr"] = uint64(1)<<62, "127.0.0.1:1", "127.0.0.1:1"
	for i := range 2 {
		lobbySays(t, nodes.Node(i), self)
	}
	if err := moved.Kill(); err != nil {
		t.Fatal(err)
	}
	both := func(want bool) func() bool {
		return func() bool {
			for i := range 2 {
				if running, known := runs(ctx, nodes.Node(i), moved.Name); !known || running != want {
					return false
				}
			}
			return true
		}
	}
	await(t, time.Minute, "the others miss it", both(false))
	if err := moved.Start(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, time.Minute, "the others have linked it", both(true))
}

// runs tells whether a node takes another one for running; an error is neither.
func runs(ctx context.Context, at *cluster.Node, name string) (running, known bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.HTTP()+"/api/nodes/"+name, http.NoBody)
	if err != nil {
		return false, false
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, false
	}
	defer resp.Body.Close()
	var node struct {
		Running bool `json:"running"`
	}
	return node.Running, json.NewDecoder(resp.Body).Decode(&node) == nil && resp.StatusCode == http.StatusOK
}

// lobbySays asks a node in the lobby and returns what it says of itself. Who asks says that it is self; nil: nobody that matters.
func lobbySays(t *testing.T, n *cluster.Node, self map[string]any) map[string]any {
	t.Helper()
	if self == nil {
		self = map[string]any{"node": "asker/1", "boot": 1, "cluster_addr": "127.0.0.1:1", "gossip_addr": "127.0.0.1:1"}
	}
	body, err := json.Marshal(map[string]any{"self": self})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", n.GossipAddr(), timeoutReply)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeoutReply))
	const magic = "warren-lobby/1\n"
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32([]byte(magic), uint32(len(body))), body...)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if _, err := r.Discard(len(magic) + 4); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Self map[string]any `json:"self"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return answer.Self
}
