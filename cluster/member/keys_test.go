package member

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

func key(b byte, size int) []byte { return bytes.Repeat([]byte{b}, size) }

func TestParseKeys(t *testing.T) {
	line := func(b byte, size int) string { return base64.StdEncoding.EncodeToString(key(b, size)) + "\n" }
	for _, tc := range []struct {
		name, content string
		count         int
		reason        string
	}{
		{name: "one", content: line(1, 32), count: 1},
		{name: "three sizes and comments", content: "# first\n" + line(1, 16) + "\n \r\n" + line(2, 24) + strings.TrimSpace(line(3, 32)), count: 3},
		{name: "none", content: "# nothing\n", reason: "no key"},
		{name: "no base64", content: line(1, 32) + "secret!", reason: "line 2 is no base64"},
		{name: "short", content: line(1, 15), reason: "has 15 bytes"},
		{name: "twice", content: line(1, 16) + line(1, 16), reason: "line 2 is there twice"},
		{name: "too many", content: func() (s string) {
			for i := range keysMax + 1 {
				s += line(byte(i), 16)
			}
			return s
		}(), reason: "17 keys"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keys, err := ParseKeys([]byte(tc.content))
			switch {
			case tc.reason == "" && (err != nil || len(keys) != tc.count):
				t.Errorf("%d keys, %v", len(keys), err)
			case tc.reason != "" && (err == nil || !strings.Contains(err.Error(), tc.reason)):
				t.Errorf("got %v, want %q in it", err, tc.reason)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("%v tells the key", err)
			}
		})
	}
	if a, b := Fingerprint(key(1, 16)), Fingerprint(key(2, 16)); a == b || len(a) != 12 {
		t.Errorf("fingerprints %q and %q", a, b)
	}
}

func rings(t *testing.T, mode Encryption, keys ...[]byte) *ring {
	t.Helper()
	r, err := newRing(mode, keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealedPackets(t *testing.T) {
	a, b := rings(t, EncryptionOn, key(1, 32)), rings(t, EncryptionOn, key(2, 16), key(1, 32))
	message := []byte("\xf4hello")
	sealed := a.sealPacket(message)
	if bytes.Contains(sealed, []byte("hello")) {
		t.Error("a packet is sent as it is")
	}
	if got, ok := b.openPacket(sealed, "x"); !ok || !bytes.Equal(got, message) {
		t.Errorf("%q, %t", got, ok)
	}
	if _, ok := a.openPacket(b.sealPacket(message), "x"); ok || a.unopened.Load() != 1 {
		t.Error("opened with a key that is not there")
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, ok := b.openPacket(changed, "x"); ok {
			t.Errorf("a packet with byte %d changed was opened", i)
		}
		if _, ok := b.openPacket(sealed[:i], "x"); ok {
			t.Errorf("the first %d bytes of a packet were opened", i)
		}
	}
	off, accept := rings(t, EncryptionOff), rings(t, EncryptionAccept, key(1, 32))
	if _, ok := b.openPacket(message, "x"); ok {
		t.Error("on: took a packet that was not sealed")
	}
	if got, ok := off.openPacket(message, "x"); !ok || !bytes.Equal(got, message) {
		t.Error("off: did not take a packet")
	}
	if _, ok := off.openPacket(sealed, "x"); ok {
		t.Error("off: took a sealed packet")
	}
	if accept.sealsTo("x") {
		t.Error("accept: seals to whom it does not know")
	}
	if _, ok := accept.openPacket(message, "y"); !ok || accept.sealsTo("y") {
		t.Error("accept: seals to who does not")
	}
	if _, ok := accept.openPacket(sealed, "x"); !ok || !accept.sealsTo("x") {
		t.Error("accept: does not seal to who does")
	}
	if _, err := newRing("some", nil); err == nil {
		t.Error("took a mode that there is not")
	}
	if _, err := newRing(EncryptionOn, nil); err == nil {
		t.Error("took no keys")
	}
}

// streams returns both ends of a sealed stream, and what the opener wrote first.
func streams(t *testing.T, a, b *ring, hello string) (*sealedConn, *sealedConn, error) {
	t.Helper()
	x, y := net.Pipe()
	t.Cleanup(func() { x.Close(); y.Close() })
	opener := a.openSealed(x)
	go func() { _, _ = opener.Write([]byte(hello)) }() // ends with the pipe
	acceptor, err := b.acceptSealed(y, bufio.NewReader(y))
	return opener, acceptor, err
}

func TestSealedStreams(t *testing.T) {
	a, b := rings(t, EncryptionOn, key(1, 32)), rings(t, EncryptionAccept, key(2, 16), key(1, 32), key(3, 16))
	if err := a.set([][]byte{key(1, 32), key(2, 16)}); err != nil {
		t.Fatal(err)
	}
	long := make([]byte, 3*recordBytesMax+5)
	_, _ = rand.Read(long)
	opener, acceptor, err := streams(t, a, b, "hello")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(acceptor, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	go func() { _, _ = acceptor.Write(long) }() // ends with the pipe
	back := make([]byte, len(long))
	if _, err := io.ReadFull(opener, back); err != nil || !slices.Equal(back, long) {
		t.Fatal(err)
	}
	if _, _, err := streams(t, rings(t, EncryptionOn, key(9, 16)), b, "hello"); err == nil {
		t.Error("a stream of another key was taken")
	}
	if _, _, err := streams(t, a, rings(t, EncryptionOff), "hello"); err == nil {
		t.Error("a sealed stream was taken without keys")
	}
}

// A record is good for its stream, direction and place only.
func TestSealedRecordsDoNotMove(t *testing.T) {
	keys := rings(t, EncryptionOn, key(1, 32))
	record := func(write func(c *sealedConn)) []byte {
		x, y := net.Pipe()
		defer y.Close()
		go func() { write(keys.openSealed(x)); x.Close() }()
		b, err := io.ReadAll(y)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	two := record(func(c *sealedConn) { _, _ = c.Write([]byte("a")); _, _ = c.Write([]byte("b")) })
	head, size := 2+saltBytes, 2+sealOverhead+1
	if len(two) != head+2*size {
		t.Fatalf("%d bytes", len(two))
	}
	first, second := two[head:head+size], two[head+size:]
	other := record(func(c *sealedConn) { _, _ = c.Write([]byte("c")) })
	for name, b := range map[string][]byte{
		"swapped": slices.Concat(two[:head], second, first), "repeated": slices.Concat(two[:head], first, first),
		"of another stream": slices.Concat(other[:head], first),
	} {
		c, err := keys.acceptSealed(nil, bufio.NewReader(bytes.NewReader(b)))
		if err == nil {
			_, err = io.ReadAll(c)
		}
		if err == nil {
			t.Errorf("records %s were taken", name)
		}
	}
	back := keys.openSealed(nil)
	back.in, back.salt = bytes.NewReader(two[head:]), two[2:head]
	if err := back.fill(); err == nil {
		t.Error("a record was taken by who had sent it")
	}
}

func FuzzSealedStream(f *testing.F) {
	keys, err := newRing(EncryptionOn, [][]byte{key(1, 16)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{sealedFirst, sealedStream})
	f.Add(append([]byte{sealedFirst, sealedStream}, make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, ok := keys.openPacket(b, "x"); ok {
			t.Fatal("opened")
		}
		if _, err := keys.acceptSealed(nil, bufio.NewReader(bytes.NewReader(b))); err == nil {
			t.Fatal("accepted")
		}
	})
}

// Gossip with keys forms, without them it does not, and keys are exchanged while it goes on.
func TestGossipWithKeys(t *testing.T) {
	with := func(keys ...[]byte) Config { return Config{Encryption: EncryptionOn, Keys: keys} }
	a := open(t, "n1", with(key(1, 32)))
	join := func(c Config) Config { c.Join = []string{a.Self().GossipAddr}; return c }
	b, stranger, plain := open(t, "n2", join(with(key(1, 32)))), open(t, "n3", join(with(key(9, 32)))), open(t, "n4", join(Config{}))
	until(t, "the lobby is sealed", func() bool { return is("n2")(a.Visitors()) && is("n1")(b.Visitors()) })
	for _, g := range []*Gossip{a, b, stranger, plain} {
		if err := g.SetCluster(clusterA); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "two see each other", func() bool { return is("n1", "n2")(a.Members()) && is("n1", "n2")(b.Members()) })
	until(t, "the stranger is heard of", func() bool { return a.KeyStats().Unopened > 0 || b.KeyStats().Unopened > 0 })
	if len(stranger.Members()) != 1 || len(plain.Members()) != 1 || len(stranger.Visitors()) != 0 {
		t.Errorf("%v, %v", names(stranger.Members()), names(plain.Members()))
	}
	for _, keys := range [][][]byte{{key(1, 32), key(2, 32)}, {key(2, 32), key(1, 32)}, {key(2, 32)}} {
		for _, g := range []*Gossip{a, b} {
			if err := g.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := open(t, "n5", join(with(key(2, 32))))
	if err := c.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	until(t, "the new key counts", func() bool { return is("n1", "n2", "n5")(b.Members()) && is("n1", "n2", "n5")(c.Members()) })
	if err := a.SetKeys(nil); err == nil {
		t.Error("took no keys")
	}
	if err := plain.SetKeys([][]byte{key(1, 16)}); err == nil {
		t.Error("took keys although nothing is sealed")
	}
	if got := a.KeyStats(); got.Mode != EncryptionOn || !slices.Equal(got.Fingerprints, []string{Fingerprint(key(2, 32))}) {
		t.Errorf("%+v", got)
	}
}

// Turning it on one by one keeps the gossip together.
func TestGossipTurnsKeysOn(t *testing.T) {
	accept := Config{Encryption: EncryptionAccept, Keys: [][]byte{key(1, 16)}}
	off, a := open(t, "n1", Config{}), open(t, "n2", accept)
	accept.Join = []string{a.Self().GossipAddr, off.Self().GossipAddr}
	b := open(t, "n3", accept)
	on := open(t, "n4", Config{Encryption: EncryptionOn, Keys: accept.Keys, Join: []string{a.Self().GossipAddr}})
	for _, g := range []*Gossip{off, a, b, on} {
		if err := g.SetCluster(clusterA); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "who accepts sees all", func() bool {
		return is("n1", "n2", "n3", "n4")(a.Members()) && is("n1", "n2", "n3", "n4")(b.Members())
	})
	until(t, "who insists sees those who accept", func() bool { m := names(on.Members()); return slices.Contains(m, "n2") && slices.Contains(m, "n3") })
	until(t, "who accepts seals to who does", func() bool { return a.ring.sealsTo(on.Self().GossipAddr) })
	if a.ring.sealsTo(off.Self().GossipAddr) {
		t.Error("who accepts seals to who cannot open")
	}
}
