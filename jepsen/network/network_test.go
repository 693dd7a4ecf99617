package network

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(helperEnv); addr != "" {
		helper(addr)
	}
	if code, entered := Enter(); entered {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func needLan(t *testing.T, nodes ...string) *Lan {
	t.Helper()
	return openLan(t, LanConfig{Nodes: nodes})
}

func openLan(t *testing.T, cfg LanConfig) *Lan {
	t.Helper()
	if !Inside() {
		t.Skip("no network namespaces here")
	}
	l, err := OpenLan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// echo listens on a node and sends back what it gets.
func echo(t *testing.T, l *Lan, node string) (addr string) {
	t.Helper()
	place, err := l.Place(node)
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	if err := place.Run(func() error {
		var err error
		listener, err = net.Listen("tcp", net.JoinHostPort(place.Host, "7000"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go io.Copy(conn, conn)
		}
	}()
	return listener.Addr().String()
}

// say sends a byte and waits for it to come back.
func say(conn net.Conn, patience time.Duration) error {
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return fmt.Errorf("no echo: %w", err)
	}
	return nil
}

func TestLanCutsOneWay(t *testing.T) {
	l := needLan(t, "a", "b")
	addr := echo(t, l, "b")
	between, err := l.hosts["a"].dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer between.Close()
	client, err := net.DialTimeout("tcp", addr, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, way := range []Pair{{"a", "b"}, {"b", "a"}} {
		if err := say(between, 3*time.Second); err != nil {
			t.Fatalf("before %v is cut: %v", way, err)
		}
		if err := l.Harm([]Pair{way}, Link{Cut: true}); err != nil {
			t.Fatal(err)
		}
		if err := say(between, 300*time.Millisecond); err == nil {
			t.Errorf("with %v cut an echo came back", way)
		}
		if err := say(client, 3*time.Second); err != nil {
			t.Errorf("with %v cut the clients are cut off, too: %v", way, err)
		}
		l.Heal()
		// What was sent meanwhile arrives when TCP tries again.
		between.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(between, make([]byte, 1)); err != nil {
			t.Fatalf("after %v is healed: %v", way, err)
		}
	}
	if err := l.Harm([]Pair{{"a", "z"}}, Link{Cut: true}); err == nil {
		t.Error("a link to nobody can be cut")
	}
}

func TestLanSlowAndLossy(t *testing.T) {
	l := needLan(t, "a", "b")
	addr := echo(t, l, "b")
	conn, err := l.hosts["a"].dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := l.Harm([]Pair{{"a", "b"}}, Link{Delay: 100 * time.Millisecond, Jitter: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := say(conn, 3*time.Second); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d < 100*time.Millisecond {
		t.Errorf("an echo over a slow link took %v", d)
	}
	if err := l.Harm([]Pair{{"a", "b"}, {"b", "a"}}, Link{Loss: 0.2}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := say(conn, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if carried, dropped := l.Packets(); carried == 0 {
		t.Errorf("%d carried, %d dropped", carried, dropped)
	}
}

// TestLanRenumbers: hosts get other addresses, each other's too, and two Lans do not see each other.
func TestLanRenumbers(t *testing.T) {
	number := byte(0)
	for _, v6 := range []bool{false, true} {
		for range 2 {
			number++
			l := openLan(t, LanConfig{Nodes: []string{"a", "b"}, Number: number, IPv6: v6})
			place := func(node string) string {
				p, err := l.Place(node)
				if err != nil {
					t.Fatal(err)
				}
				return p.Host
			}
			reach := func(from, host string) error {
				conn, err := l.hosts[from].dial("tcp", net.JoinHostPort(host, "7000"))
				if err != nil {
					return err
				}
				defer conn.Close()
				return say(conn, 3*time.Second)
			}
			was := place("b")
			echo(t, l, "b")
			if err := reach("a", was); err != nil {
				t.Fatal(err)
			}
			if err := l.Renumber(map[string]int{"b": 1}); err == nil {
				t.Error("two hosts got the same number")
			}
			if err := l.Renumber(map[string]int{"a": 2, "b": 17}); err != nil {
				t.Fatal(err)
			}
			if place("a") != was || place("b") == was {
				t.Errorf("a is at %s, b at %s", place("a"), place("b"))
			}
			echo(t, l, "b")
			if err := reach("a", place("b")); err != nil {
				t.Errorf("at its new address: %v", err)
			}
			if err := reach("b", place("a")); err == nil {
				t.Error("somebody echoes where b was")
			}
			had := map[string]bool{place("a"): true, place("b"): true}
			for range 10 {
				if err := l.Readdress("a"); err != nil || had[place("a")] {
					t.Fatalf("%v: a is at %s, which was given before", err, place("a"))
				}
				had[place("a")] = true
			}
			for range 2 * clientsNumber { // more than there are
				if err := l.Readdress("a"); err != nil || place("a") == place("b") {
					t.Fatalf("%v: both are at %s", err, place("a"))
				}
			}
		}
	}
}

// TestLanResolvConf: each Lan's hosts have a resolv.conf of their own, which this process does not see.
func TestLanResolvConf(t *testing.T) {
	before, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Fatal(err)
	}
	l := openLan(t, LanConfig{Nodes: []string{"a"}, ResolvConf: func(clients string) string { return "nameserver " + clients + "\n" }})
	err = l.hosts["a"].run(func() error {
		out, err := exec.Command("cat", "/etc/resolv.conf").Output()
		if want := "nameserver " + l.ClientsAddress() + "\n"; string(out) != want {
			t.Errorf("a host has %q, want %q", out, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile("/etc/resolv.conf"); err != nil || string(after) != string(before) {
		t.Errorf("this process has %q: %v", after, err)
	}
}
