package shovel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func frame(kind byte, payload []byte) []byte {
	b := append([]byte{kind, 0, 1}, binary.BigEndian.AppendUint32(nil, uint32(len(payload)))...)
	return append(append(b, payload...), 0xCE)
}

// message is what a broker sends for a delivery.
func message(size int) []byte {
	header := binary.BigEndian.AppendUint64(make([]byte, 4), uint64(size))
	return append(append(frame(frameMethod, []byte("deliver")), frame(frameHeader, header)...), frame(frameBody, make([]byte, size))...)
}

// TestThrottledPassesOn: what comes out is what went in, whatever the pieces.
func TestThrottledPassesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent []byte
		for range rapid.IntRange(0, 8).Draw(t, "messages") {
			sent = append(sent, message(rapid.IntRange(0, 300).Draw(t, "size"))...)
			if rapid.Bool().Draw(t, "heartbeat") {
				sent = append(sent, frame(8, nil)...)
			}
		}
		c := newThrottled(readConn{r: bytes.NewReader(sent)}, 0, 1000)
		var got []byte
		for {
			p := make([]byte, rapid.IntRange(1, 100).Draw(t, "piece"))
			n, err := c.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes of %d", len(got), len(sent))
		}
	})
}

// readConn is a connection of which only the reader counts.
type readConn struct {
	net.Conn
	r io.Reader
}

func (c readConn) Read(p []byte) (int, error)      { return c.r.Read(p) }
func (c readConn) SetReadDeadline(time.Time) error { return nil }
func (c readConn) Close() error                    { return nil }

// TestThrottledWaits: no message is begun while as much is held as there is room for, and the wait does not count against the deadline.
func TestThrottledWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := newThrottled(ours, 100, 1000)
		got := make(chan int)
		ended := make(chan error, 1)
		go func() {
			b := make([]byte, 4096)
			for {
				n, err := c.Read(b)
				if err != nil {
					ended <- err
					return
				}
				got <- n
			}
		}()
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		all := append(message(150), message(10)...)
		go theirs.Write(all)
		read := 0
		count := func() {
			for {
				synctest.Wait()
				select {
				case n := <-got:
					read += n
				default:
					return
				}
			}
		}
		if count(); read != len(message(150)) {
			t.Fatalf("%d bytes were read, the first message has %d", read, len(message(150)))
		}
		time.Sleep(time.Hour)
		c.release(49)
		if count(); read != len(message(150)) {
			t.Fatalf("%d bytes were read while 101 were held", read)
		}
		c.release(10)
		if count(); read != len(all) {
			t.Fatalf("%d bytes of %d", read, len(all))
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("ended before the deadline: %v", err)
		default:
		}
		time.Sleep(2 * time.Second)
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestThrottledEndsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := newThrottled(ours, 1, 1000)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, c)
		}()
		go theirs.Write(append(message(5), message(5)...))
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("it did not wait")
		default:
		}
		c.Close()
		<-ended
	})
}

func TestThrottledRefuses(t *testing.T) {
	for want, sent := range map[string][]byte{
		"frame of 4294967295 bytes": {frameBody, 0, 1, 255, 255, 255, 255},
		"does not speak AMQP 0-9-1": []byte("HTTP/1.1 400 Bad Request\r\n"),
		"message of 1001 bytes":     message(1001),
	} {
		_, err := io.ReadAll(newThrottled(readConn{r: bytes.NewReader(sent)}, 0, 1000))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestPacing(t *testing.T) {
	const budget = 32 << 20
	for _, tc := range []struct {
		p    pacing
		want int
	}{
		{pacing{current: 16, seen: 1, largest: 100}, 16},          // too few
		{pacing{current: 16, seen: 4, largest: 100}, 1000},        // small ones
		{pacing{current: 16, seen: 1, largest: 16 << 20}, 2},      // a large one counts at once
		{pacing{current: 16, seen: 9, largest: 0}, 1000},          // empty ones
		{pacing{current: 1000, seen: 9, largest: 40 << 10}, 1000}, // a little more than there is room for
		{pacing{current: 1000, seen: 9, largest: 100 << 10}, 327}, // much more
		{pacing{current: 300, seen: 9, largest: 100 << 10}, 300},  // near enough
		{pacing{current: 16, seen: 9, largest: 100 << 20}, 1},     // one goes in any case
		{pacing{current: 600, seen: 9, largest: 100}, 1000},       // all that is allowed
	} {
		if got := tc.p.wanted(1000, budget); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.p, got, tc.want)
		}
	}
}
