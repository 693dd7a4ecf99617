package process

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TestGossipOfStrangersIsBounded shows that who reaches a gossip port makes the node neither unpack nor keep what no node says: of
// 40 streams of 31 KB each it took 1.5 GiB and more.
func TestGossipOfStrangersIsBounded(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	n := c.Node(0)
	id := clusterIDByLobby(t, n.GossipAddr())
	head := append([]byte{244, byte(len(id))}, id...)
	large := append(bytes.Clone(head), "\x06\x83\xa5Nodes\x00\xacUserStateLen\xd2\x01\x40\x00\x00\xa4Join\xc2"...)
	large = append(large, make([]byte, 20<<20-1)...)
	before := residentBytes(t, n.PID(), "VmHWM:")
	for name, sent := range map[string][]byte{"compressed": append(bytes.Clone(head), packed(t)...), "large": large} {
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() { sayAndWait(t, n.GossipAddr(), sent) })
		}
		all.Wait()
		if grown := residentBytes(t, n.PID(), "VmHWM:") - before; grown > 200<<20 {
			t.Errorf("%s: the node took %d MiB more", name, grown>>20)
		}
	}
}

// packed is one of memberlist's compressed messages, of 39 MiB of zeros.
func packed(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	if _, err := w.Write(make([]byte, 39<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	m := binary.BigEndian.AppendUint16([]byte("\x09\x82\xa4Algo\x00\xa3Buf\xda"), uint16(b.Len()))
	return append(m, b.Bytes()...)
}

// sayAndWait sends b and waits until the node closes the stream.
func sayAndWait(t *testing.T, addr string, b []byte) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeoutReply))
	_, _ = conn.Write(b) // fails where the node has seen enough
	_, _ = io.Copy(io.Discard, conn)
}

// clusterIDByLobby asks a node for its cluster's id as a stranger can.
func clusterIDByLobby(t *testing.T, addr string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const magic = "warren-lobby/1\n"
	question := `{"self":{"node":"stranger/disk","boot":1,"cluster_addr":"127.0.0.1:1","gossip_addr":"127.0.0.1:1"}}`
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32([]byte(magic), uint32(len(question))), question...)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || len(answer) < len(magic)+4 {
		t.Fatalf("the lobby said %q, %v", answer, err)
	}
	var m struct {
		Self struct {
			ClusterID string `json:"cluster_id"`
		} `json:"self"`
	}
	if err := json.Unmarshal(answer[len(magic)+4:], &m); err != nil || m.Self.ClusterID == "" {
		t.Fatalf("the lobby said %q, %v", answer, err)
	}
	return m.Self.ClusterID
}
