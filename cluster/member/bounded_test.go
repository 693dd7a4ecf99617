package member

import (
	"bytes"
	"compress/lzw"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// message is one of memberlist's: the label, its type, and what is encoded after it.
func message(t *testing.T, label string, kind byte, parts ...any) []byte {
	t.Helper()
	b := new(bytes.Buffer)
	if label != "" {
		b.WriteByte(labelFirst)
		b.WriteByte(byte(len(label)))
		b.WriteString(label)
	}
	b.WriteByte(kind)
	enc := codec.NewEncoder(b, &codec.MsgpackHandle{})
	for _, p := range parts {
		if err := enc.Encode(p); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

type stateHeader struct {
	Nodes, UserStateLen int
	Join                bool
}

type compressed struct {
	Algo byte
	Buf  []byte
}

func TestBoundedStreams(t *testing.T) {
	for _, tc := range []struct {
		name  string
		types []byte
		sent  []byte
		fails bool
	}{
		{"state", asked, message(t, clusterA, typePushPull, stateHeader{Nodes: 3}, "and more"), false},
		{"large state", asked, message(t, clusterA, typePushPull, stateHeader{Nodes: stateNodesMax, UserStateLen: stateBytesMax}, "and more"), false},
		{"ping", asked, message(t, clusterA, typePing, "ping"), false},
		{"no label", answered, message(t, "", typePushPull, stateHeader{Nodes: 3}), false},
		{"ack", answered, message(t, "", typeAck, "ack"), false},
		{"error", answered, message(t, "", typeErr, "error"), false},
		{"nodes", asked, message(t, clusterA, typePushPull, stateHeader{Nodes: stateNodesMax + 1}), true},
		{"nodes twice", asked, append(message(t, clusterA, typePushPull), "\x82\xa5Nodes\x01\xa5Nodes\xd2\x00\x10\x00\x00"...), true},
		{"user state", asked, message(t, clusterA, typePushPull, stateHeader{Nodes: 1, UserStateLen: stateBytesMax + 1}), true},
		{"compressed", asked, message(t, clusterA, 9, compressed{}), true},
		{"compressed answer", answered, message(t, "", 9, compressed{}), true},
		{"two labels", asked, message(t, clusterA, labelFirst, clusterA), true},
		{"endless header", asked, message(t, clusterA, typePushPull, bytes.Repeat([]byte("h"), stateHeadMax)), true},
		{"no header", asked, message(t, clusterA, typePushPull), true},
		{"bytes", asked, append(message(t, clusterA, typePushPull, stateHeader{Nodes: 3}), make([]byte, stateBytesMax)...), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := net.Pipe()
			_ = a.SetDeadline(time.Now().Add(time.Minute))
			go func() {
				_, _ = a.Write(tc.sent) // fails where the stream is refused
				_ = a.Close()
			}()
			freed := 0
			c := bounded(b, tc.types, func() { freed++ })
			got, err := io.ReadAll(c)
			if refused := errors.Is(err, errState); refused != tc.fails {
				t.Errorf("read with %v", err)
			}
			if !tc.fails && !bytes.Equal(got, tc.sent) {
				t.Errorf("%d bytes came of %d", len(got), len(tc.sent))
			}
			_ = c.Close()
			_ = c.Close()
			if freed != 1 {
				t.Errorf("freed %d times", freed)
			}
		})
	}
}

// TestStatesAreBounded shows that memberlist has no more than statesMax streams of others at a time, that those beyond wait and that
// nothing of it hinders the gossip afterwards.
func TestStatesAreBounded(t *testing.T) {
	g := open(t, "n1", Config{})
	if err := g.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	var zeros bytes.Buffer
	w := lzw.NewWriter(&zeros, lzw.LSB, 8)
	_, _ = w.Write(make([]byte, 1<<20)) // memory
	_ = w.Close()
	half := message(t, clusterA, typePushPull, stateHeader{Nodes: 3})
	bomb := message(t, clusterA, 9, compressed{Buf: zeros.Bytes()})
	for i := range 2 * statesMax {
		conn, err := net.Dial("tcp", g.Self().GossipAddr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([][]byte{half, bomb}[i%2]); err != nil {
			t.Fatal(err)
		}
		if n := len(g.port.states); n > statesMax {
			t.Fatalf("memberlist has %d streams", n)
		}
	}
	other := open(t, "n2", Config{Join: []string{g.Self().GossipAddr}})
	if err := other.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	until(t, "another one joins", func() bool { return is("n1", "n2")(g.Members()) })
}
