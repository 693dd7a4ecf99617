package network

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// helperEnv makes the test program a node that connects to an address and says each line of
// its input there, and writes the line that comes back.
const helperEnv = "WARREN_JEPSEN_TEST_HELPER"

func helper(addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	in, back := bufio.NewScanner(os.Stdin), bufio.NewScanner(conn)
	for in.Scan() {
		fmt.Fprintln(conn, in.Text())
		if !back.Scan() {
			os.Exit(1)
		}
		fmt.Println(back.Text())
	}
	os.Exit(0)
}

// TestProxies: the stream of each node is known by its process, so that one node's link
// is cut and another's is not; what was sent over a cut link comes when it is healed.
func TestProxies(t *testing.T) {
	p, err := OpenProxies([]string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if Inside() {
		if err := bringUp("lo"); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(conn, conn)
		}
	}()
	place, err := p.Place("c")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := place.Advertise(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		in    io.Writer
		lines chan string
	}
	nodes := map[string]node{}
	for _, name := range []string{"a", "b"} {
		cmd := exec.Command(os.Args[0], "serve", "--node-id", name)
		cmd.Env = append(os.Environ(), helperEnv+"="+addr)
		cmd.Stderr = os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := make(chan string)
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				lines <- s.Text()
			}
		}()
		defer func() {
			cmd.Process.Kill()
			for range lines {
			}
			cmd.Wait()
		}()
		nodes[name] = node{in, lines}
	}
	heard := func(n node, wait time.Duration) bool {
		select {
		case _, open := <-n.lines:
			return open
		case <-time.After(wait):
			return false
		}
	}
	say := func(name string) { fmt.Fprintln(nodes[name].in, "hello") }
	both := func(when string) {
		t.Helper()
		for name, n := range nodes {
			say(name)
			if !heard(n, 10*time.Second) {
				t.Fatalf("%s gets no echo %s", name, when)
			}
		}
	}
	both("at first")
	for _, way := range []Pair{{"a", "c"}, {"c", "a"}} {
		if err := p.Harm([]Pair{way}, Link{Cut: true}); err != nil {
			t.Fatal(err)
		}
		say("a")
		if heard(nodes["a"], 200*time.Millisecond) {
			t.Errorf("%v is cut and a has an echo", way)
		}
		say("b")
		if !heard(nodes["b"], 10*time.Second) {
			t.Errorf("%v is cut and b has no echo", way)
		}
		p.Heal()
		if !heard(nodes["a"], 10*time.Second) {
			t.Fatalf("%v is healed and a has no echo", way)
		}
	}
	if err := p.Harm([]Pair{{"a", "c"}}, Link{Delay: 150 * time.Millisecond, BytesPerSecond: 1000}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	both("over a slow link")
	if d := time.Since(begun); d < 150*time.Millisecond {
		t.Errorf("echoes over a slow link took %v", d)
	}
	if err := p.Harm([]Pair{{Clients, "a"}}, Link{Cut: true}); err == nil {
		t.Error("a link can be cut that is not proxied")
	}
}
