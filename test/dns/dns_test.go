package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestServer(t *testing.T) {
	s, err := Listen("127.0.0.1", "0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, s.Addr())
	}}
	look := func(name string) ([]string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return r.LookupHost(ctx, name)
	}
	const name = "nodes.example"
	var e *net.DNSError
	if _, err := look(name + "."); !errors.As(err, &e) || !e.IsNotFound {
		t.Errorf("a name that is not there: %v", err)
	}
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")}
	for _, truncate := range []bool{false, true} {
		s.Set(name, Answer{Addrs: addrs, TTL: 1, Truncate: truncate})
		before := s.Asked(name)
		got, err := look("NODES.example.")
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if want := []string{"10.0.0.1", "10.0.0.2", "fd00::1"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if asked := s.Asked(name); asked.UDP == before.UDP || truncate != (asked.TCP > before.TCP) {
			t.Errorf("truncated %t: asked %+v, before %+v", truncate, asked, before)
		}
	}
	s.Set(name, Answer{Addrs: addrs, Delay: 300 * time.Millisecond})
	begun := time.Now()
	if _, err := look(name + "."); err != nil || time.Since(begun) < 300*time.Millisecond {
		t.Errorf("a slow answer came after %v: %v", time.Since(begun), err)
	}
	s.Set(name, Answer{Fail: true})
	if _, err := look(name + "."); !errors.As(err, &e) || e.IsNotFound || !e.IsTemporary {
		t.Errorf("a failing server: %v", err)
	}
	s.Set(name, Answer{Silent: true})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.LookupHost(ctx, name+"."); err == nil {
		t.Error("a silent server answered")
	}
	s.Remove(name)
	if _, err := look(name + "."); !errors.As(err, &e) || !e.IsNotFound {
		t.Errorf("a name that was removed: %v", err)
	}
}
