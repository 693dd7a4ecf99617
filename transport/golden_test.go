package transport

import (
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// rewriteGolden rewrites the golden file; a difference means another protocol
// version.
var rewriteGolden = flag.Bool("rewrite", false, "rewrite golden files")

// TestVersionOneStaysAsItIs compares the encodings with those of the first release.
func TestVersionOneStaysAsItIs(t *testing.T) {
	c := raftCodec{self: []byte("a/1")}
	var out strings.Builder
	line := func(name string, b []byte) { fmt.Fprintf(&out, "%s %s\n", name, hex.EncodeToString(b)) }
	line("hello", hello{versionMin: 1, version: 1, cluster: "c", from: "a/1", to: "b/1", process: 7}.encode())
	line("welcome", welcome{version: 1, node: "b/1", process: 8, epoch: 9, window: 300}.encode())
	line("refusal", encodeRefusal(&RemoteError{Code: CodeCluster, Text: "no"}))
	line("envelope", envelope{cluster: "c", from: "a/1", method: 3, payload: []byte("p")}.encode())
	line("target", appendTarget(binary.AppendUvarint(nil, 300), "b/1", 2))
	line("head", appendHead(nil, frameCall, []byte{1, 2}, 300))
	h := headerOf("a/1")
	requests := []any{
		&raft.AppendEntriesRequest{RPCHeader: h, Term: 3, Leader: []byte("a/1"), PrevLogEntry: 300, PrevLogTerm: 2, LeaderCommitIndex: 299, Entries: []*raft.Log{
			{Index: 301, Term: 3, Data: []byte("d"), AppendedAt: time.Unix(1, 2)}, {Index: 302, Term: 3, Type: raft.LogNoop, Extensions: []byte{}},
		}},
		&raft.RequestVoteRequest{RPCHeader: h, Term: 4, Candidate: []byte("a/1"), LastLogIndex: 5, LastLogTerm: 3, LeadershipTransfer: true},
		&raft.RequestPreVoteRequest{RPCHeader: h, Term: 4, LastLogIndex: 5, LastLogTerm: 3},
		&raft.TimeoutNowRequest{RPCHeader: h},
		&raft.InstallSnapshotRequest{RPCHeader: h, SnapshotVersion: 1, Term: 4, Leader: []byte("a/1"), LastLogIndex: 5, LastLogTerm: 3, Configuration: []byte{9}, ConfigurationIndex: 1, Size: 70},
	}
	for _, r := range requests {
		b, _, err := c.request(r, form{})
		if err != nil {
			t.Fatal(err)
		}
		line(fmt.Sprintf("%T", r), b.join())
	}
	responses := []any{
		&appendAnswer{raft.AppendEntriesResponse{RPCHeader: h, Term: 3, LastLog: 302, Success: true}, 300},
		&raft.RequestVoteResponse{RPCHeader: h, Term: 4, Granted: true},
		&raft.RequestPreVoteResponse{RPCHeader: h, Term: 4},
		&raft.TimeoutNowResponse{RPCHeader: h},
		&raft.InstallSnapshotResponse{Term: 4, Success: true},
	}
	for _, r := range responses {
		b, err := c.response(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		line(fmt.Sprintf("%T", r), b)
	}
	req, _, _ := c.request(requests[4], form{})
	line("snapshot", snapshotHeader{cluster: "c", from: "a/1", to: "b/1", epoch: 9, group: 2, catalog: 11, request: req.join()}.encode())
	const file = "testdata/protocol-1.golden"
	// Level 2.
	apart, _, _ := c.request(requests[0], form{apart: true, sum: func(index, _ uint64) (uint32, bool) { return 0x01020304, index == 301 }})
	line("append with data apart", apart.join())
	if *rewriteGolden {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("encodings changed; got\n%s\nwant\n%s", out.String(), want)
	}
}
