package scale

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// bareExchange is the processor time of a ping and its answer without Warren: as many connections over loopback as n nodes have links, with as
// many messages of a ping's size a second. Each of them is alone, and nearly all that it costs is what the machine charges to wake somebody: about
// what a ping of Warren costs.
func bareExchange(t *testing.T, n int) time.Duration {
	t.Helper()
	const pause, pings = 250 * time.Millisecond, 8
	links := n * (n - 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ends := make([][2]net.Conn, links)
	for i := range ends {
		for j, open := range []func() (net.Conn, error){func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }, l.Accept} {
			c, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			ends[i][j] = c
		}
	}
	before := processorTime()
	var g errgroup.Group
	for i, e := range ends {
		g.Go(func() error { return answerBare(e[1], pings) })
		g.Go(func() error {
			time.Sleep(pause * time.Duration(i) / time.Duration(links))
			return pingBare(e[0], pings, pause)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return (processorTime() - before) / time.Duration(links*pings)
}

// pingBare sends so many messages, one in each pause, and reads their answers.
func pingBare(c net.Conn, pings int, pause time.Duration) error {
	b := make([]byte, DefaultCosts().PingBytes/2)
	for range pings {
		if _, err := c.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	return nil
}

// answerBare sends so many messages back.
func answerBare(c net.Conn, pings int) error {
	b := make([]byte, DefaultCosts().PingBytes/2)
	for range pings {
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	return nil
}
