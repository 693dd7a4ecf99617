package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"
)

// TestMain looks for leaked goroutines. memberlist's Shutdown does not wait for a probe in
// progress, which ends by its own timeout.
func TestMain(m *testing.M) {
	code := m.Run()
	err := goleak.Find()
	for start := time.Now(); err != nil && time.Since(start) < 30*time.Second; {
		err = goleak.Find()
	}
	if code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const (
	clusterA = "aaaaaaaa-0000-4000-8000-000000000000"
	clusterB = "bbbbbbbb-0000-4000-8000-000000000000"
)

func open(t *testing.T, name string, cfg Config) *Gossip {
	t.Helper()
	cfg.Node = NodeID(name + "/storage-" + name)
	if cfg.Bind == "" {
		cfg.Bind = "127.0.0.1:0"
	}
	if cfg.ClusterAddr == "" {
		cfg.ClusterAddr = "127.0.0.1:5681"
	}
	g, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return g
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting until %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func names(infos []Info) []string {
	var out []string
	for _, i := range infos {
		out = append(out, i.Name())
	}
	slices.Sort(out)
	return out
}

func is(want ...string) func([]Info) bool {
	return func(infos []Info) bool { return slices.Equal(names(infos), want) }
}

func TestLobbySpreadsThroughOneAddress(t *testing.T) {
	first := open(t, "n1", Config{})
	join := []string{first.Self().GossipAddr}
	second := open(t, "n2", Config{Join: join})
	third := open(t, "n3", Config{Join: append(join, "nobody.invalid:1")})
	until(t, "each knows the two others", func() bool {
		return is("n2", "n3")(first.Visitors()) && is("n1", "n3")(second.Visitors()) && is("n1", "n2")(third.Visitors())
	})
	if a, ok := third.Resolve(second.Self().Node); !ok || a != second.Self().ClusterAddr {
		t.Fatalf("third resolves second to %q, %v", a, ok)
	}
}

func TestGossipFormsAndSurvivesAddressChange(t *testing.T) {
	dir := t.TempDir()
	first := open(t, "n1", Config{BookPath: filepath.Join(dir, "n1.json")})
	second := open(t, "n2", Config{Join: []string{first.Self().GossipAddr}})
	for _, g := range []*Gossip{first, second} {
		if err := g.SetCluster(clusterA); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "both are members", func() bool { return is("n1", "n2")(first.Members()) && is("n1", "n2")(second.Members()) })

	// The second restarts elsewhere, at once and without notice.
	old := second.Self()
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, "n2", Config{Boot: 1, ClusterAddr: "127.0.0.1:7777", Join: []string{first.Self().GossipAddr}})
	if err := again.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	until(t, "the new address is known", func() bool {
		a, _ := first.Resolve(old.Node)
		return a == "127.0.0.1:7777" && is("n1", "n2")(first.Members())
	})

	// The first restarts with nothing but its book.
	until(t, "the book is saved", func() bool {
		b, err := openBook(filepath.Join(dir, "n1.json"), nil)
		if err != nil {
			t.Fatal(err)
		}
		i, ok := b.lookup(old.Node)
		return ok && i.Boot == 1
	})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	back := open(t, "n1", Config{Boot: 1, BookPath: filepath.Join(dir, "n1.json")})
	if a, _ := back.Resolve(old.Node); a != "127.0.0.1:7777" {
		t.Fatalf("resolves to %q after restart", a)
	}
	if err := back.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	until(t, "it finds the other by its book", func() bool { return is("n1", "n2")(back.Members()) })
}

func TestTwoClustersNeverMerge(t *testing.T) {
	a := open(t, "a", Config{})
	b := open(t, "b", Config{Join: []string{a.Self().GossipAddr}})
	if err := a.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	if err := b.SetCluster(clusterB); err != nil {
		t.Fatal(err)
	}
	// Even a member of the right label but the wrong metadata stays out.
	if _, err := b.list.Join([]string{a.Self().GossipAddr}); err == nil {
		t.Fatal("joined another cluster's gossip")
	}
	d := &delegate{g: a, cluster: clusterA}
	meta, err := encodeMeta(b.Self())
	if err != nil {
		t.Fatal(err)
	}
	n := &memberlist.Node{Name: "b", Addr: net.IPv4(127, 0, 0, 1), Meta: meta}
	if d.NotifyAlive(n) == nil || d.NotifyMerge([]*memberlist.Node{n}) == nil {
		t.Fatal("a member of another cluster was let in")
	}
	if !is("a")(a.Members()) || !is("b")(b.Members()) {
		t.Fatalf("members %v and %v", names(a.Members()), names(b.Members()))
	}
	if err := a.SetCluster(clusterB); err == nil {
		t.Fatal("changed the cluster")
	}
	if err := a.SetCluster(clusterA); err != nil {
		t.Fatalf("same cluster again: %v", err)
	}
}

func TestVirginFindsFoundedClusterInLobby(t *testing.T) {
	founded := open(t, "n1", Config{})
	if err := founded.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	virgin := open(t, "n2", Config{Join: []string{"seed.test:" + portOf(founded)}, Resolve: func(_ context.Context, host string) ([]string, error) {
		if host != "seed.test" {
			return nil, fmt.Errorf("unexpected name %q", host)
		}
		return []string{"127.0.0.1"}, nil
	}})
	until(t, "the virgin hears of the cluster", func() bool {
		v := virgin.Visitors()
		return len(v) == 1 && v[0].ClusterID == clusterA
	})
}

func portOf(g *Gossip) string {
	_, p, _ := net.SplitHostPort(g.Self().GossipAddr)
	return p
}

func TestGarbageOnThePort(t *testing.T) {
	g := open(t, "n1", Config{})
	if err := g.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	for _, garbage := range []string{"", "x", "GET / HTTP/1.1\r\n\r\n", "warren-lobby/1\n\xff\xff\xff\xff", "warren-lobby/1\n\x00\x00\x00\x02{}", "\xf4\x03abc"} {
		conn, err := net.Dial("tcp", g.Self().GossipAddr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(garbage)); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	other := open(t, "n2", Config{Join: []string{g.Self().GossipAddr}})
	until(t, "the lobby still answers", func() bool { return is("n1")(other.Visitors()) })
}

func TestHosts(t *testing.T) {
	for _, c := range []struct{ addr, host, want string }{
		{"0.0.0.0:1", "10.0.0.1", "10.0.0.1:1"},
		{":1", "10.0.0.1", "10.0.0.1:1"},
		{"[::]:1", "fe80::1", "[fe80::1]:1"},
		{"node-1.local:1", "10.0.0.1", "node-1.local:1"},
		{"10.0.0.2:1", "10.0.0.1", "10.0.0.2:1"},
		{"0.0.0.0:1", "", "0.0.0.0:1"},
	} {
		if got := withHost(c.addr, c.host); got != c.want {
			t.Errorf("withHost(%q, %q) = %q, want %q", c.addr, c.host, got, c.want)
		}
	}
}

// TestBadBookHindersNobody: a book that cannot be understood, as a power failure leaves one, is as good as none.
func TestBadBookHindersNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.json")
	for _, content := range []string{"", "{", `{"version":2}`, `{"version":1,"nodes":[{"node":"x"}]}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := openBook(path, nil); !errors.Is(err, errBook) || len(b.entries) > 0 {
			t.Errorf("book %q was accepted: %v", content, err)
		}
		g := open(t, "n1", Config{BookPath: path})
		if err := g.SetCluster(clusterA); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullBookTakesNewNodes: a node that begins with an empty disk again and again fills the book, and who belongs to the cluster is in it all the same,
// also after a restart.
func TestFullBookTakesNewNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.json")
	away := NodeID("away/u")
	open := func() *book {
		b, err := openBook(path, func(id NodeID) bool { return id == away })
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	info := func(id NodeID) Info {
		return Info{Node: id, Boot: 1, ClusterAddr: "h:1", GossipAddr: "h:2", ClusterID: clusterA}
	}
	b := open()
	b.hear(info(away))
	b.hear(info("live/u"))
	for i := range 2 * bookEntriesMax {
		if i == bookEntriesMax {
			if err := b.save(clusterA); err != nil {
				t.Fatal(err)
			}
			b = open()
		}
		b.hear(info(NodeID(fmt.Sprintf("crashes/%d", i))))
		if i%100 == 0 {
			b.hear(info("live/u"))
		}
	}
	b.hear(info("new/u"))
	for _, id := range []NodeID{away, "live/u", "new/u", NodeID(fmt.Sprintf("crashes/%d", 2*bookEntriesMax-1))} {
		if _, ok := b.lookup(id); !ok {
			t.Errorf("%s is not in the book", id)
		}
	}
	if _, ok := b.lookup("crashes/0"); ok || len(b.entries) != bookEntriesMax {
		t.Errorf("%d entries, the oldest is there: %t", len(b.entries), ok)
	}
}

func FuzzReadLobby(f *testing.F) {
	m := &lobbyMessage{Self: Info{Node: "n1/u", ClusterAddr: ":1", GossipAddr: ":2"}, Others: []Info{{Node: "n2/u", ClusterAddr: "h:1", GossipAddr: "h:2"}}}
	keys, err := newRing(EncryptionAccept, [][]byte{make([]byte, 16)})
	if err != nil {
		f.Fatal(err)
	}
	for _, k := range []*ring{nil, keys} {
		good, err := m.encode(k)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(good)
	}
	f.Add([]byte("warren-lobby/1\n\x00\x00\x00\x02{}"))
	f.Add([]byte("warren-lobby/2\n\x00\x00\x00\x02{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, sealed, err := readLobby(bytes.NewReader(b), keys)
		if err != nil {
			return
		}
		var k *ring
		if sealed {
			k = keys
		}
		again, err := m.encode(k)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := readLobby(bytes.NewReader(again), keys); err != nil {
			t.Fatalf("not readable again: %v", err)
		}
	})
}

func FuzzDecodeMeta(f *testing.F) {
	good, err := encodeMeta(Info{Node: "n1/u", Boot: 3, ClusterAddr: ":1", GossipAddr: ":2", ClusterID: clusterA})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if i, err := decodeMeta(b, "127.0.0.1"); err == nil && i.validate() != nil {
			t.Fatalf("accepted %+v", i)
		}
	})
}

// TestClusterNames: nodes of two names do not hear each other before they have a cluster, whoever asks; one without a name
// hears both.
func TestClusterNames(t *testing.T) {
	a := open(t, "a", Config{ClusterName: "red"})
	b := open(t, "b", Config{ClusterName: "blue", Join: []string{a.Self().GossipAddr}})
	friend := open(t, "c", Config{ClusterName: "red", Join: []string{a.Self().GossipAddr}})
	any := open(t, "d", Config{Join: []string{a.Self().GossipAddr, b.Self().GossipAddr}})
	until(t, "nodes of one name know each other", func() bool {
		return is("a", "d")(friend.Visitors()) && is("c", "d")(a.Visitors()) && is("a", "b", "c")(any.Visitors()) && is("d")(b.Visitors())
	})
	if _, known := a.Resolve(b.Self().Node); known {
		t.Error("a has an address of b")
	}
}
